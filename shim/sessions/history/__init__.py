"""Journals and checkpoints: how a session is opened."""
