"""Writes checkpoints and savepoints, and deletes objects that are no longer needed."""
