"""The command `opencode-shim`."""

from __future__ import annotations

import gc
import importlib
import sys

__all__ = ["main", "without_rich_tracebacks"]


def main() -> None:
    """Run the command line of `opencode-shim`."""
    # Imported modules are never garbage. Collections during the imports find nothing and take a tenth of the start.
    gc.disable()
    without_rich_tracebacks()
    from shim.cli.commands import cli
    from shim.lib.errors import ShimError

    gc.freeze()  # else the first collection visits all of them, which takes as long as a collection during the imports
    gc.enable()
    try:
        cli(prog_name="opencode-shim")
    except ShimError as error:
        from shim.cli import screen

        screen.line(screen.console(sys.stderr), f"opencode-shim: {error}")
        sys.exit(1)


def without_rich_tracebacks() -> None:
    """Import structlog without rich: it would load rich for tracebacks, and `shim.lib.logging` renders them plainly."""
    if "rich" in sys.modules or "structlog" in sys.modules:
        return
    sys.modules["rich"] = None  # pyright: ignore[reportArgumentType] - None makes an import fail
    try:
        importlib.import_module("structlog")
    finally:
        del sys.modules["rich"]
