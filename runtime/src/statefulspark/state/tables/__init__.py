"""One module per kind of state, on top of the store."""
