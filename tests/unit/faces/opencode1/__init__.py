"""Tests of the event streams."""
