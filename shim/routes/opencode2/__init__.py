"""The OpenCode 2 face (`/api`): one module of handlers for each subject of its table of operations.

A module that is not in `MODULES` is not served.
"""

from __future__ import annotations

from types import ModuleType

MODULES: tuple[ModuleType, ...] = ()
"""In the order of their routes, which do not overlap."""
