"""Composition: what a start needs, and what the first request needs."""
