"""Ways in which a job ends: no more input, drained, canceled."""
