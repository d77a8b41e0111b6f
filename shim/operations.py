"""Rows of the tables of operations, which are generated from OpenCode's documents, and of those that are refused. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Operation(NamedTuple):
    """One operation of OpenCode 1. `path` has `{name}` placeholders; `streams`: it answers with events, not JSON."""

    method: str
    path: str
    tag: str
    streams: bool = False


class Operation2(NamedTuple):
    """One operation of OpenCode 2. `path` has `{name}` placeholders, or `*` for the rest of the path.

    `status`: of its only success, 200, 204 or 101; clients take any other for a failure. `streams`: it answers with events.
    """

    method: str
    path: str
    tag: str
    status: int = 200
    streams: bool = False


class AskedField(NamedTuple):
    """What comes with a request. `query` as sent, the first of each name; `body` None if there is none."""

    query: Mapping[str, str]
    body: Any


class Row(NamedTuple):
    """What a client gets: the status, and the end of the sentence "... is not served by opencode-shim: "."""

    status: int
    reason: str


class UndecidedOperations(NamedTuple):
    """What is wrong with the decisions; empty sets when nothing is."""

    neither: frozenset[str]
    both: frozenset[str]
    unknown: frozenset[str]
