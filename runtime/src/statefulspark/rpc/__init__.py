"""How the processes of a job talk: Flight, certificates, error codes."""
