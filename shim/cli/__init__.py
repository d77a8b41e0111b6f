"""The command `opencode-shim`."""

from __future__ import annotations

import signal
import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line of `opencode-shim`."""
    from shim.cli.imports import quick_imports

    with quick_imports():
        from shim.cli.commands import cli
        from shim.lib.errors import ShimError
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # it would end the process without a clean-up; `nohup` ignores SIGHUP
            signal.signal(number, _interrupt)
    try:
        cli(prog_name="opencode-shim")
    except ShimError as error:
        from shim.cli import screen

        screen.line(screen.console(sys.stderr), f"opencode-shim: {error}")
        sys.exit(1)


def _interrupt(_number: int, _frame: object) -> None:
    """End the command as Ctrl-C does, so that it ends what it has started: asyncio then cancels its work."""
    signal.raise_signal(signal.SIGINT)
