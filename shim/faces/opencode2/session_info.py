"""Makes a session's `info` in OpenCode 2's form. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from shim.faces.opencode2.events import Wire
from shim.faces.opencode2.names import model_ref, rules
from shim.faces.opencode2.operations import OPENCODE2_VERSION
from universal.diffs import FileDiff
from universal.session.model import Revert, SessionRecord, Status, Usage

SUBAGENT_MARK = re.compile(r" \(@[^()]* subagent\)$")
"""The end of subagents' titles in 1.x. OpenCode 2 has no such mark (recording `task` of v2-20260717)."""


def info_of(record: SessionRecord) -> Wire:
    """The `SessionInfo` of a record, without `outcome`, `fork` and the times of idle and view, which `read` adds."""
    info: Wire = {
        "id": record.id,
        "projectID": record.project_id,
        "cost": record.cost or 0,
        "tokens": counts(record.usage),
        "time": {"created": record.created_ms, "updated": record.updated_ms},
        "location": {"directory": record.directory},
    }
    if record.archived_ms is not None:
        info["time"]["archived"] = record.archived_ms
    optional: Wire = {
        "parentID": record.parent_id,
        "title": SUBAGENT_MARK.sub("", record.title) if record.parent_id else record.title,
        "agent": record.mode,
        "subpath": record.path,
        "model": model_ref(record.model) if record.model is not None else None,
        "metadata": record.metadata,
        "permissions": rules(list(record.permission or ())),
    }
    return info | {key: value for key, value in optional.items() if value}


def counts(usage: Usage) -> Wire:
    """The `TokenUsageInfo` of a usage."""
    cache = {"read": usage.cache_read, "write": usage.cache_write}
    return {"input": usage.input, "output": usage.output, "reasoning": usage.reasoning, "cache": cache}


def status(value: Status) -> Wire:
    """The `SessionStatus` of a status."""
    if value.type == "retry":
        return {"type": "retry", "attempt": value.attempt, "message": value.message, "next": value.next_ms}
    return {"type": value.type}


def add_usage(total: Wire, step: Wire) -> Wire:
    """The sum of two `TokenUsageInfo`."""
    made: Wire = {key: total[key] + step[key] for key in ("input", "output", "reasoning")}
    return {**made, "cache": {key: total["cache"][key] + step["cache"][key] for key in ("read", "write")}}


CREATED = ("parentID", "subpath", "title", "agent", "model", "metadata", "permissions")


def created_data(info: Wire, slug: str) -> Wire:
    """The data of `session.created`."""
    told = {key: info[key] for key in CREATED if key in info}
    return {"projectID": info["projectID"], "location": info["location"], "slug": slug, "version": OPENCODE2_VERSION, **told}


def revert_of(revert: Revert, message_id: str, diffs: Sequence[FileDiff]) -> Wire:
    """The `SessionRevert` of an undo from `message_id` on. `diffs` show the undone changes; the result shows the way back."""
    kept = {"messageID": message_id, "partID": revert.part_id, "snapshot": revert.snapshot}
    return {**{key: value for key, value in kept.items() if value}, "files": list(map(_undone, diffs))}


_OTHER_WAY = {"added": "deleted", "deleted": "added"}
_HUNK = re.compile(r"^@@ -(\S+) \+(\S+) @@")


def _undone(diff: FileDiff) -> Wire:
    """The diff of a file from its state after the changes to its state before."""
    counted = {"additions": diff.deletions, "deletions": diff.additions}
    status = diff.status or "modified"
    return {"file": diff.file, "patch": reverse_diff(diff.patch), **counted, "status": _OTHER_WAY.get(status, status)}


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
