"""Declaring and accessing state, with PyFlink's names."""
