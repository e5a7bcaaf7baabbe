"""A running job, and the commands that inspect and change it."""
