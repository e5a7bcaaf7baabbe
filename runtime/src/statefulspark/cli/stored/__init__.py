"""Commands on checkpoints and savepoints in storage; no job needs to run."""
