"""The inspector: the files of its page, which `shim.routes.inspector` serves, and the replay and export behind its API."""
