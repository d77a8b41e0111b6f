"""What the end-to-end tests stand on: a scripted model, servers, and drivers for the real clients."""
