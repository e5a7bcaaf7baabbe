"""Stores Spark's own checkpoint location and state durably."""
