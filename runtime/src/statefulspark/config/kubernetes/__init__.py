"""What a manifest means on Kubernetes, and what operator and driver agree on about pods."""
