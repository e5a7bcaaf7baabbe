"""Storage formats."""
