"""A slot: the process that owns a range of key groups, its keyed steps and its store."""
