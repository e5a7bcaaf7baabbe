"""Commands that talk to the driver of a running job."""
