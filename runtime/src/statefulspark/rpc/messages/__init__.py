"""What driver, slots and exchange tasks send each other."""
