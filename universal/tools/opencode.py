"""OpenCode's own tools: no row, so each keeps its name and its arguments to the letter."""

from __future__ import annotations

from universal.tools.row import Row

TOOLS: dict[str, Row] = {}
