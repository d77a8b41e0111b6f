"""The universal schema of agent sessions: events, items, the turn machine and the codecs.

It knows neither the server nor OpenCode and does no IO. `lint-imports` checks this (see `pyproject.toml`).
"""
