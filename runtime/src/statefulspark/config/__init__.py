"""The manifest of a job: models, value types, loading. Nothing in here touches a running job."""
