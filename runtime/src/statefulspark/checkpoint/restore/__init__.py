"""Rebuilds a slot's store from a checkpoint and changelogs."""
