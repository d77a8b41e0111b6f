"""The universal schema of agent sessions: events, items, the turn machine and the codecs.

Knows no server, no OpenCode and does no IO; `lint-imports` proves it (see `pyproject.toml`).
"""
