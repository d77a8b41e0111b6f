"""Rows of the generated tables of OpenCode's operations, and of the tables of refused operations. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Set
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


class OperationTable(NamedTuple):
    """The operations of one wire, and what was decided about each: it has a handler, or a row in `refused`, not both.

    constant  served operations with a constant answer -> why it is constant
    shared    operations that the table of another wire decides -> what the page says of them
    """

    operations: Mapping[str, Operation] | Mapping[str, OpenCode2Operation]
    refused: Mapping[str, Row]
    constant: Mapping[str, str]
    shared: Mapping[str, str] = {}

    def faults(self, served: Set[str]) -> UndecidedOperations:
        """Find operations without a decision, operations with two, and rows of unknown operations."""
        documented, refused = frozenset(self.operations), frozenset(self.refused)
        return UndecidedOperations(documented - refused - served - self.shared.keys(), refused & served, refused - documented)

    def rows(self, served: Set[str]) -> dict[str, Row]:
        """List the operations that an app with these handlers must refuse, including undecided ones."""
        names = (name for name in self.operations if name not in served and name not in self.shared)
        return {name: self.refused.get(name, Row(501, "this build has no handler for it")) for name in names}

    def render(self, page: str, served: Set[str], **more: object) -> str:
        """Fill a page: `served`, `total` and `same` are counts, `tables` has a table for each tag."""
        tags: dict[str, list[str]] = {}
        refused = self.rows(served)
        for name, row in self.operations.items():
            if name in refused:
                status = f"{refused[name].status}: {refused[name].reason}"
            else:
                status = self.shared.get(name) or (
                    "yes" if name not in self.constant else f"yes, always the same: {self.constant[name]}"
                )
            tags.setdefault(row.tag, []).append(f"| `{name}` | {row.method} | `{row.path}` | {status} |")
        head = "| operation | method | path | served |\n| --- | --- | --- | --- |\n"
        tables = "\n".join(f"## {tag}\n\n{head}" + "\n".join(lines) + "\n" for tag, lines in tags.items())
        count = sum(name in served and name not in self.shared for name in self.operations)
        return page.format(served=count, total=len(self.operations), same=len(self.constant), tables=tables, **more)
