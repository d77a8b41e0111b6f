"""What is served: one package for each face, one module for each subject. See `shim.http.later` for when they are imported."""

from __future__ import annotations

from types import ModuleType

from shim.routes import health

EARLY: tuple[ModuleType, ...] = (health,)
"""Their handlers are there from the start, so they import nothing that is large."""


def modules() -> tuple[ModuleType, ...]:
    """All modules of all faces; importing them takes longer than the rest of a start."""
    from shim.routes import inspector, opencode1, opencode2, v1

    return (*opencode1.MODULES, *opencode2.MODULES, *v1.MODULES, inspector)
