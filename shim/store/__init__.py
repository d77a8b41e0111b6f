"""Journals and checkpoints, in memory, in SQLite or in NATS."""
