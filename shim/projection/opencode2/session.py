"""A session's `info` as OpenCode 2 has it. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from shim.opencode2.events import Wire
from shim.opencode2.operations import OPENCODE2_VERSION
from shim.projection.opencode2.names import model_ref, rules
from universal.jsonvalue import arr, obj, text, whole

SUBAGENT_MARK = re.compile(r" \(@[^()]* subagent\)$")
"""What titles of subagents end with in 1.x. OpenCode 2 has none (recording `task` of v2-20260717)."""


def info_of(first: Mapping[str, Any]) -> Wire:
    """`SessionInfo` from 1.x's `info`, without what only this face knows (`outcome`, `fork`, times of idle and view)."""
    time = obj(first.get("time"))
    info: Wire = {
        "id": first["id"],
        "projectID": text(first.get("projectID"), "global"),
        "cost": first.get("cost") or 0,
        "tokens": counts(obj(first.get("tokens"))),
        "time": {key: whole(time.get(key)) for key in ("created", "updated")},
        "location": {"directory": text(first.get("directory"), "/")},
    }
    if time.get("archived") is not None:
        info["time"]["archived"] = whole(time["archived"])
    for key, name in (("parentID", "parentID"), ("title", "title"), ("agent", "agent"), ("path", "subpath")):
        if text(first.get(key)):
            info[name] = first[key]
    if "parentID" in info and "title" in info:
        info["title"] = SUBAGENT_MARK.sub("", info["title"])
    if first.get("model"):
        info["model"] = model_ref(obj(first["model"]))
    if first.get("metadata"):
        info["metadata"] = first["metadata"]
    if first.get("permission"):
        info["permissions"] = rules(first["permission"])
    return info


def counts(tokens: Mapping[str, Any]) -> Wire:
    """`TokenUsageInfo`."""
    cache = obj(tokens.get("cache"))
    made: Wire = {key: whole(tokens.get(key)) for key in ("input", "output", "reasoning")}
    return {**made, "cache": {key: whole(cache.get(key)) for key in ("read", "write")}}


def added(total: Wire, step: Wire) -> Wire:
    """Sum of two `TokenUsageInfo`."""
    made: Wire = {key: total[key] + step[key] for key in ("input", "output", "reasoning")}
    return {**made, "cache": {key: total["cache"][key] + step["cache"][key] for key in ("read", "write")}}


CREATED = ("parentID", "subpath", "title", "agent", "model", "metadata", "permissions")


def created(info: Wire, slug: str) -> Wire:
    """Data of `session.created`, flat."""
    told = {key: info[key] for key in CREATED if key in info}
    return {"projectID": info["projectID"], "location": info["location"], "slug": slug, "version": OPENCODE2_VERSION, **told}


def revert_of(first: Mapping[str, Any], diffs: Any) -> Wire:
    """`SessionRevert` from `info.revert` of 1.x and the diffs of what was undone: here they are of the undoing itself."""
    kept = {key: first[key] for key in ("messageID", "partID", "snapshot") if first.get(key)}
    return {**kept, "files": [_undone(obj(diff)) for diff in arr(diffs)]}


_OTHER_WAY = {"added": "deleted", "deleted": "added"}
_HUNK = re.compile(r"^@@ -(\S+) \+(\S+) @@")


def _undone(diff: Wire) -> Wire:
    """A file's diff the other way round."""
    status = text(diff.get("status"), "modified")
    counted = {"additions": diff["deletions"], "deletions": diff["additions"]}
    return {"file": diff["file"], "patch": turned(diff["patch"]), **counted, "status": _OTHER_WAY.get(status, status)}


def turned(patch: str) -> str:
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
