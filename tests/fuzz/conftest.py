"""Fixtures of the fuzzing tests."""

from tests.fuzz.served import server  # noqa: F401 - a fixture
