"""Imports the server's modules in less time."""

from __future__ import annotations

import gc
import sys
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def quick_imports() -> Generator[None]:
    """A block of imports without garbage collections, in which structlog does not import rich.

    Imported modules are never garbage: collections find nothing in them, and take a tenth of the start. structlog would load rich
    for tracebacks, which `shim.lib.logging` renders plainly.
    """
    hides_rich = "rich" not in sys.modules
    if hides_rich:
        sys.modules["rich"] = None  # pyright: ignore[reportArgumentType] - None makes an import fail
    gc.disable()
    try:
        yield
    finally:
        if hides_rich:
            del sys.modules["rich"]
        gc.freeze()  # else the next collection visits all of them, which takes as long as one during the imports
        gc.enable()
