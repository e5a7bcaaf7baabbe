"""From a manifest to a running job, with every check before an attempt is claimed."""
