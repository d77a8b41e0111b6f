"""Starts, watches and signals processes. No other package does."""
