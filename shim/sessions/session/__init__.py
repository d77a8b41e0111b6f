"""One session at work."""
