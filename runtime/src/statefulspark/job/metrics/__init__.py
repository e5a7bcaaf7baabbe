"""Metrics of a job."""
