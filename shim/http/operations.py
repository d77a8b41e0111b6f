"""Rows of the generated tables of OpenCode's operations, and of the tables of refused operations. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Operation(NamedTuple):
    """An operation of OpenCode 1. `path` has `{name}` placeholders; `streams`: it answers with events, not JSON."""

    method: str
    path: str
    tag: str
    streams: bool = False


class OpenCode2Operation(NamedTuple):
    """An operation of OpenCode 2. `path` has `{name}` placeholders, or `*` for the rest of the path.

    `status`: its only success status (200, 204 or 101); clients treat any other as a failure. `streams`: it answers with events.
    """

    method: str
    path: str
    tag: str
    status: int = 200
    streams: bool = False


class RequestInput(NamedTuple):
    """The input of a request. `query`: the first value of each name; `body`: None without a body."""

    query: Mapping[str, str]
    body: Any


class Row(NamedTuple):
    """The answer to a refused operation: the status, and the end of "... is not served by opencode-shim: "."""

    status: int
    reason: str


class UndecidedOperations(NamedTuple):
    """Faults in the lists of served and refused operations; all sets are empty if there is none."""

    neither: frozenset[str]
    both: frozenset[str]
    unknown: frozenset[str]
