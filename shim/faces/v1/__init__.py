"""The universal API's own vocabulary, shared by the server's routes and the client: models, and JSON Schema of events."""
