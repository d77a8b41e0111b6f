"""Forks, moves and imports of sessions."""
