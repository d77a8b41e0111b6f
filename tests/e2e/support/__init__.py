"""Support of the end-to-end tests: a scripted model, servers, and drivers of the real clients."""
