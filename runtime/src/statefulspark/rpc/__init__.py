"""Communication between the processes of a job: Flight, certificates, error codes."""
