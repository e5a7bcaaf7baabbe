"""statefulspark: state, timers, checkpoints and savepoints for PySpark streams."""
