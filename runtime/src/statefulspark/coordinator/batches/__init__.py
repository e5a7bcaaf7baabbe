"""One batch from its begin to its record: offsets, event times, changelogs, completion."""
