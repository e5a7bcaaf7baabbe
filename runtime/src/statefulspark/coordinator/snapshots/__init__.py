"""Checkpoints and savepoints, from the request to publication."""
