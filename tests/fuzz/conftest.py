"""Fixtures of the fuzzing tests."""

from tests.fuzz.live_server import server  # noqa: F401 - a fixture
