"""Rows that functions emit, as record batches of the declared schema."""
