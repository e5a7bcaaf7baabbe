"""Stores: a slot's entries in memory or in RocksDB."""
