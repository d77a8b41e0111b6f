"""The command `opencode-shim`."""

from __future__ import annotations

from shim.cli.commands import main

__all__ = ["main"]
