"""Reads the states of a checkpoint as tables."""
