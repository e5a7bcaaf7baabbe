"""Garbage collection: finds and deletes the objects of a job's folder that nothing references."""
