"""The history of a job: samples over time, snapshots and failures, bounded in memory and in storage."""
