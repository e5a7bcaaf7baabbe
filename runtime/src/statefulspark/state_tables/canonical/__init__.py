"""Converts checkpoints into canonical savepoints."""
