"""All sessions of a server."""
