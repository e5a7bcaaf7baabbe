"""Jobs in a notebook or a PySpark shell: `statefulspark.local`."""
