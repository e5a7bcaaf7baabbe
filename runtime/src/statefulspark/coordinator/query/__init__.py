"""The life of Spark's query, and queries of running state."""
