"""Terminals and shell commands."""
