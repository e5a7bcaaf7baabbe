"""Functions that get Arrow batches of many keys, and aggregates that the runtime makes with them."""
