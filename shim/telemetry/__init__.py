"""Metrics, traces and hooks. They observe the server's work and do not influence it."""
