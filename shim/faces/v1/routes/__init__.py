"""The universal face: one module of handlers for each tag of its document. A module that is not in `MODULES` is not served."""

from __future__ import annotations

from types import ModuleType

from shim.faces.v1.routes import agents, events, files, messages, meta, metrics, sessions

MODULES: tuple[ModuleType, ...] = (meta, agents, sessions, messages, events, files, metrics)
"""In the order of the document."""
