"""The inspector: the files of its page, which `shim.routes.inspector_api` serves, and the replay and export behind its API."""
