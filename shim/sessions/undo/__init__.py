"""Snapshots of the files, undo and redo."""
