"""Operations of OpenCode 2 that are not served, each with its reason. A decision is a row; the server answers with it.

A row goes away when a handler comes: `shim.opencode2.decided` allows exactly one of the two. `SAME2` are served and always
answer the same, and why. Source: `shim/opencode2/operations.py`.
"""

from __future__ import annotations

from shim.opencode.unsupported import Row

_OWN: dict[str, str] = {}

UNSUPPORTED2: dict[str, Row] = {name: Row(501, reason) for name, reason in _OWN.items()}

SAME2: dict[str, str] = {}
"""Served, and the answer is always the same: not a fact that was looked up, but what a server answers that has no such thing."""
