"""Failures that a job tolerates, and restarts after them."""
