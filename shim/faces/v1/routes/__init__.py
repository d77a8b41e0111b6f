"""The handlers of `/v1`: one module for each tag of its document. Only modules in `MODULES` are served."""

from __future__ import annotations

from types import ModuleType

from shim.faces.v1.routes import agents, events, files, messages, meta, sessions

MODULES: tuple[ModuleType, ...] = (meta, agents, sessions, messages, events, files)
"""All modules, in the order of the document."""
