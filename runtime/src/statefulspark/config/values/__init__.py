"""Types of values in a manifest: durations, sizes, locations, cron lines."""
