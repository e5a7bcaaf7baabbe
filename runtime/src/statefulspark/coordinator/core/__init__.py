"""The core of the coordinator: decides about the life of batches, without threads, storage or calls (RFC 0016)."""
