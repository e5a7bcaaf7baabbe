"""Attempts of a job's driver, and the state that each of them started from."""
