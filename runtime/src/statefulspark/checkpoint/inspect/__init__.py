"""Reads and verifies checkpoints without running a job."""
