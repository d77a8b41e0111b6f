"""The interface of a directory's snapshots, and the differences between two of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from universal.lib.diffs import FileDiff, file_diff

WHOLE_FILE = 1_000_000
"""Lines of context in diffs for clients. OpenCode shows whole files."""


class Change(Protocol):
    """A changed file, as git reports it."""

    @property
    def file(self) -> str: ...
    @property
    def additions(self) -> int: ...
    @property
    def deletions(self) -> int: ...
    @property
    def status(self) -> str: ...
    @property
    def patch(self) -> str | None: ...


class Trees(Protocol):
    """The snapshots of a directory (`shim.host.git.snapshot.Snapshots`). All methods raise ShimError."""

    def has_taken(self, directory: str) -> bool:
        """Whether a snapshot of this directory was taken since the server's start."""
        ...

    async def track(self, directory: str) -> str:
        """Take a snapshot and return the name of its tree."""
        ...

    async def changed_files(self, directory: str, before: str, after: str) -> list[str]:
        """Names of files that differ between two trees."""
        ...

    async def diff(self, directory: str, before: str, after: str, names: list[str], context: int) -> list[Any]: ...

    async def patch(self, directory: str, before: str, after: str) -> str: ...

    async def restore(self, directory: str, tree_by_file: dict[str, str]) -> list[str]:
        """Restore files from a tree. Returns sentences about files that were left alone."""
        ...


async def diffs_of(trees: Trees, directory: str, before: str, after: str, names: list[str]) -> list[FileDiff]:
    """The diffs of these files between two trees, with whole files as context."""
    return await diffs_between(trees, directory, before, after, names, WHOLE_FILE)


async def diffs_between(trees: Trees, directory: str, before: str, after: str, names: list[str], context: int) -> list[FileDiff]:
    """The diffs with this number of lines around each change."""
    changes: list[Change] = await trees.diff(directory, before, after, names, context)
    return [file_diff(c.file, c.patch or "", c.additions, c.deletions, c.status) for c in changes]


def to_json(diffs: Iterable[FileDiff]) -> list[dict[str, Any]]:
    """Diffs in the journal's form."""
    return [diff.to_json() for diff in diffs]
