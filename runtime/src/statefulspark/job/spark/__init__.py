"""How the job uses Spark: session, executors, query plans, sinks."""
