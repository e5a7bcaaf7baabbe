"""Runs a user's function over one batch of one slot."""
