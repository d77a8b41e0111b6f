"""The mock agent, which runs inside the server."""
