"""The job's folder in storage: attempts, fencing, recovery, going back, retention."""
