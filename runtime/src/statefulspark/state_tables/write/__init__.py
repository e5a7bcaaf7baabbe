"""Writes a new savepoint from an existing one."""
