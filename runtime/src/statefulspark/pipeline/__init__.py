"""The API of pipeline scripts: the job, keyed streams and their tick sources."""
