"""What is served: one package for each face, one module for each subject. See `shim.http.later` for when they are imported."""

from __future__ import annotations

from types import ModuleType

from shim.http import health

EARLY: tuple[ModuleType, ...] = (health,)
"""Their handlers are there from the start, so they import nothing that is large."""


def modules() -> tuple[ModuleType, ...]:
    """All modules of all faces; importing them takes longer than the rest of a start."""
    from shim.faces.opencode1 import routes as opencode1
    from shim.faces.opencode2 import routes as opencode2
    from shim.faces.v1 import routes as v1
    from shim.routes import inspector

    return (*opencode1.MODULES, *opencode2.MODULES, *v1.MODULES, inspector)
