"""Tests of the agent OpenCode 2."""
