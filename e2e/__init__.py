"""End-to-end tests: every promise broken on purpose on a real cluster."""
