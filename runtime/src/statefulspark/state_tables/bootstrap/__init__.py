"""Makes states of a savepoint from rows that a caller gives."""
