"""Agents that wait for the next session."""
