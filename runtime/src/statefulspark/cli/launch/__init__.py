"""Commands that run a job or prepare one, and the entry point of an executor's container."""
