"""Makes a session's `info` in OpenCode 2's form. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

from shim.faces.opencode2._generated.operations import OPENCODE2_VERSION
from shim.faces.opencode2.names import model_ref, rules
from universal.lib.diffs import FileDiff
from universal.lib.jsonvalue import present
from universal.session.values import ForkSource, Revert, SessionRecord, Status, Usage

if TYPE_CHECKING:
    from shim.faces.opencode2._generated import event_types, types

SUBAGENT_MARK = re.compile(r" \(@[^()]* subagent\)$")
"""The end of subagents' titles in 1.x. OpenCode 2 has no such mark (recording `task` of v2-20260717)."""


def info_of(record: SessionRecord) -> types.SessionInfo:
    """The `SessionInfo` of a record, without `outcome`, `fork` and the times of idle and view, which `read` adds."""
    title = SUBAGENT_MARK.sub("", record.title) if record.parent_id else record.title
    info = present(
        id=record.id,
        projectID=record.project_id,
        cost=record.cost or 0,
        tokens=counts(record.usage),
        time=present(created=record.created_ms, updated=record.updated_ms, archived=record.archived_ms),
        location={"directory": record.directory},
        parentID=record.parent_id or None,
        title=title or None,
        agent=record.mode or None,
        subpath=record.path or None,
        model=None if record.model is None else model_ref(record.model),
        metadata=(record.shown_metadata if record.owner else record.metadata) or None,
        permissions=rules(list(record.permission)) if record.permission else None,
    )
    return cast("types.SessionInfo", info)


def counts(usage: Usage) -> types.TokenUsageInfo:
    """The `TokenUsageInfo` of a usage."""
    cache: types.TokenUsageInfoCache = {"read": usage.cache_read, "write": usage.cache_write}
    return {"input": usage.input, "output": usage.output, "reasoning": usage.reasoning, "cache": cache}


def fork(source: ForkSource) -> types.SessionInfoFork:
    """The `fork` of a `SessionInfo`."""
    return {"sessionID": source.session_id, "boundary": boundary(source)}


def boundary(source: ForkSource) -> types.SessionForkBoundary:
    """Where a fork begins to differ from its source."""
    return {"type": "through" if source.is_included else "before", "messageID": source.message_id}


def status(value: Status) -> event_types.SessionStatus:
    """The `SessionStatus` of a status."""
    if value.type == "retry":
        return {"type": "retry", "attempt": value.attempt, "message": value.message, "next": value.next_ms}
    return {"type": "busy"} if value.type == "busy" else {"type": "idle"}


def created_data(info: types.SessionInfo, slug: str) -> event_types.SessionCreatedData:
    """The data of `session.created`."""
    keys = ("projectID", "location", "parentID", "subpath", "title", "agent", "model", "metadata", "permissions")
    data = {key: value for key, value in info.items() if key in keys}
    return cast("event_types.SessionCreatedData", {**data, "slug": slug, "version": OPENCODE2_VERSION})


def revert_of(revert: Revert, message_id: str, diffs: Sequence[FileDiff]) -> types.SessionRevert:
    """The `SessionRevert` of an undo from `message_id` on. `diffs` show the undone changes; the result shows the way back."""
    place = present(partID=revert.part_id or None, snapshot=revert.snapshot or None)
    return cast("types.SessionRevert", {"messageID": message_id, **place, "files": list(map(_undone, diffs))})


_OTHER_WAY: Mapping[str, types.FileStatus] = {"added": "deleted", "deleted": "added"}
_HUNK = re.compile(r"^@@ -(\S+) \+(\S+) @@")


def file_diff(diff: FileDiff) -> types.FileDiffInfo:
    """The diff of a file."""
    status = cast("types.FileStatus", diff.status or "modified")
    return {
        "file": diff.file,
        "patch": diff.patch,
        "additions": diff.additions,
        "deletions": diff.deletions,
        "status": status,
    }


def _undone(diff: FileDiff) -> types.FileDiffInfo:
    """The diff of a file from its state after the changes to its state before."""
    info = file_diff(diff)
    status = _OTHER_WAY.get(info["status"], info["status"])
    patch = reverse_diff(diff.patch)
    return {**info, "patch": patch, "additions": diff.deletions, "deletions": diff.additions, "status": status}


def reverse_diff(patch: str) -> str:
    """Reverse a unified diff of one file."""
    start = patch.find("@@")
    if start < 0:
        return patch
    lines = [_HUNK.sub(r"@@ -\2 +\1 @@", line) if line[:2] == "@@" else line for line in patch[start:].split("\n")]
    turned_lines: list[str] = []
    added: list[str] = []
    for line in lines:
        if line[:1] == "-":
            added.append("+" + line[1:])
        elif line[:1] == "+":
            turned_lines.append("-" + line[1:])
        else:
            turned_lines += added
            added = []
            turned_lines.append(line)
    return patch[:start] + "\n".join([*turned_lines, *added])
