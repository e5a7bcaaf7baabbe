"""Operator state: lists that belong to a slot and not to a key."""
