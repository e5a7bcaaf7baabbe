"""State types and their encoding."""
