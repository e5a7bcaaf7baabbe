"""Messages between driver, slots and exchange tasks."""
