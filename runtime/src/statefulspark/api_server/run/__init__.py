"""The process of a driver: from the claim of a name to the termination message."""
