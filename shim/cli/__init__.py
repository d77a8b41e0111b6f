"""The command `opencode-shim`."""

from __future__ import annotations

import gc
import importlib
import sys

__all__ = ["main", "without_rich_tracebacks"]


def main() -> None:
    """The entry point of `opencode-shim`."""
    # Modules stay until the end: collections while they are imported find nothing, and are a tenth of a start.
    gc.disable()
    without_rich_tracebacks()
    from shim.cli.commands import cli
    from shim.errors import ShimError

    gc.enable()
    try:
        cli(prog_name="opencode-shim")
    except ShimError as error:
        from shim.cli import screen

        screen.line(screen.console(sys.stderr), f"opencode-shim: {error}")
        sys.exit(1)


def without_rich_tracebacks() -> None:
    """structlog imports rich, if there is one, for tracebacks that `shim.logging` has it render plainly."""
    if "rich" in sys.modules or "structlog" in sys.modules:
        return
    sys.modules["rich"] = None  # pyright: ignore[reportArgumentType] - how Python is told that there is none
    try:
        importlib.import_module("structlog")
    finally:
        del sys.modules["rich"]
