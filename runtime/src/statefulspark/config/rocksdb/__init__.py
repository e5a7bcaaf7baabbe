"""RocksDB's options and metrics by Flink's names."""
