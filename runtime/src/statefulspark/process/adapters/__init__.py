"""Map, filter, reduce and the other short forms, as keyed process functions."""
