"""State evolution: what stored types may become, and how stored values are read after it."""
