"""The inspector's page: files that a browser gets as they stand here. Served by `shim.routes.inspector`; no code of Python."""
