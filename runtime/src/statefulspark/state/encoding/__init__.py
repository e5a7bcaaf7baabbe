"""Encoding of store keys and values."""
