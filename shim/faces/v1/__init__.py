"""The models of the universal API (`/v1`) and the JSON Schema of its events, for the routes and the client."""
