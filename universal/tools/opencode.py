"""The table of OpenCode's own tools. It is empty, so each tool keeps its name and its arguments."""

from __future__ import annotations

from universal.tools.row import Row

TOOLS: dict[str, Row] = {}
