"""The operator: one resource runs a stateful PySpark job on Kubernetes."""
