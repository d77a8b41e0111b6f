"""A session's `info` as OpenCode 2 has it. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from shim.faces.opencode2.events import Wire
from shim.faces.opencode2.names import model_ref, rules
from shim.faces.opencode2.operations import OPENCODE2_VERSION
from universal.diffs import FileDiff
from universal.session.model import Revert, SessionRecord, Status, Usage

SUBAGENT_MARK = re.compile(r" \(@[^()]* subagent\)$")
"""What titles of subagents end with in 1.x. OpenCode 2 has none (recording `task` of v2-20260717)."""


def info_of(record: SessionRecord) -> Wire:
    """`SessionInfo`, without what only this face keeps (`outcome`, `fork`, times of idle and view)."""
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
    """`TokenUsageInfo`."""
    cache = {"read": usage.cache_read, "write": usage.cache_write}
    return {"input": usage.input, "output": usage.output, "reasoning": usage.reasoning, "cache": cache}


def status(value: Status) -> Wire:
    """`SessionStatus`."""
    if value.type == "retry":
        return {"type": "retry", "attempt": value.attempt, "message": value.message, "next": value.next_ms}
    return {"type": value.type}


def add_usage(total: Wire, step: Wire) -> Wire:
    """Sum of two `TokenUsageInfo`."""
    made: Wire = {key: total[key] + step[key] for key in ("input", "output", "reasoning")}
    return {**made, "cache": {key: total["cache"][key] + step["cache"][key] for key in ("read", "write")}}


CREATED = ("parentID", "subpath", "title", "agent", "model", "metadata", "permissions")


def created_data(info: Wire, slug: str) -> Wire:
    """Data of `session.created`, flat."""
    told = {key: info[key] for key in CREATED if key in info}
    return {"projectID": info["projectID"], "location": info["location"], "slug": slug, "version": OPENCODE2_VERSION, **told}


def revert_of(revert: Revert, message_id: str, diffs: Sequence[FileDiff]) -> Wire:
    """`SessionRevert` of an undo from `message_id` on. `diffs` are of what is undone; here they are of the undoing itself."""
    kept = {"messageID": message_id, "partID": revert.part_id, "snapshot": revert.snapshot}
    return {**{key: value for key, value in kept.items() if value}, "files": list(map(_undone, diffs))}


_OTHER_WAY = {"added": "deleted", "deleted": "added"}
_HUNK = re.compile(r"^@@ -(\S+) \+(\S+) @@")


def _undone(diff: FileDiff) -> Wire:
    """A file's diff the other way round."""
    counted = {"additions": diff.deletions, "deletions": diff.additions}
    status = diff.status or "modified"
    return {"file": diff.file, "patch": reverse_diff(diff.patch), **counted, "status": _OTHER_WAY.get(status, status)}


def reverse_diff(patch: str) -> str:
    """A unified diff of one file from its end to its start."""
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
