"""A step's description, and its input rows and keys as Python values."""
