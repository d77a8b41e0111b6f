"""The command `opencode-shim`."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line of `opencode-shim`."""
    from shim.cli.imports import quick_imports

    with quick_imports():
        from shim.cli.commands import cli
        from shim.lib.errors import ShimError
    try:
        cli(prog_name="opencode-shim")
    except ShimError as error:
        from shim.cli import screen

        screen.line(screen.console(sys.stderr), f"opencode-shim: {error}")
        sys.exit(1)
