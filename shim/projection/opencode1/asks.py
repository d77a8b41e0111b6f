"""Permissions and questions as OpenCode's. Pure.

An agent's permission request becomes one of OpenCode's permissions with patterns, so that OpenCode's rules
(config and session) apply to it, and `always` means what it means there.
Source: recordings `perm_*`, `question_*` of 1.18.33.
"""

from __future__ import annotations

import posixpath
import re
from typing import Any, Literal, TypeAlias

from shim.opencode.build import Wire
from shim.projection.diffs import indexed, relative
from shim.projection.opencode1.shell_line import commands_of
from shim.projection.opencode1.tools import view_call
from universal.events import PermissionData, QuestionData
from universal.frozen import frozen
from universal.jsonvalue import arr, obj

ABORTED = "Tool execution aborted"
DISMISSED = "The user dismissed this question"
"""Native's words for calls that did not run. The TUI draws an error that has one of them as refused, not as failed."""

_WORDS_OF = {
    "git": 2,
    "npm": 2,
    "npx": 2,
    "pnpm": 2,
    "yarn": 2,
    "bun": 2,
    "cargo": 2,
    "go": 2,
    "uv": 2,
    "pip": 2,
    "docker": 2,
    "kubectl": 2,
    "make": 1,
}
"""How many leading words of a command `always` covers, where it is not one."""


@frozen
class Ask:
    """A permission request in OpenCode's terms: `patterns` must all be allowed; `always` is what a yes-for-ever covers."""

    permission: str
    patterns: tuple[str, ...]
    always: tuple[str, ...]
    metadata: Wire


def always_of(command: str) -> str:
    """What `always` covers of one command: `git status -s` -> `git status *`, `echo hi` -> `echo *`."""
    words = command.split()
    if not words:
        return "*"
    return " ".join(words[: min(_WORDS_OF.get(words[0], 1), len(words))]) + " *"


def ask_of(agent: str, data: PermissionData, directory: str) -> Ask:
    """A universal permission request as OpenCode's."""
    meta = data.metadata or {}
    own = obj(meta.get("opencode"))
    if own:  # OpenCode's own request
        patterns, always = (tuple(str(p) for p in arr(own.get(key))) for key in ("patterns", "always"))
        return Ask(str(own.get("permission", data.action)), patterns, always, obj(own.get("metadata")))
    name = str(meta.get("tool") or data.action)
    view = view_call(agent, name, obj(meta.get("input")), [])
    path = str(view.input.get("filePath") or view.input.get("path") or "")
    absolute = posixpath.normpath(posixpath.join(directory, path)) if path else ""
    if view.tool == "bash":
        command = str(view.input.get("command", ""))
        parts = commands_of(command)
        return Ask(
            "bash", tuple(parts), tuple(dict.fromkeys(always_of(p) for p in parts)), {"command": command, **_description(meta)}
        )
    if view.tool in ("edit", "write", "multiedit", "apply_patch"):
        metadata: Wire = {"filepath": absolute}
        if isinstance(meta.get("diff"), str):
            metadata["diff"] = indexed(absolute, meta["diff"])
        return Ask("edit", (relative(absolute, directory),), ("*",), metadata)
    if view.tool in ("read", "list"):
        return Ask(view.tool, (relative(absolute, directory) or "*",), ("*",), {"filepath": absolute})
    if view.tool in ("glob", "grep"):
        return Ask(view.tool, (str(view.input.get("pattern", "*")),), ("*",), dict(view.input))
    if view.tool == "webfetch":
        url = str(view.input.get("url", ""))
        return Ask("webfetch", (url,), (_origin(url),), dict(view.input))
    if view.tool == "task":
        return Ask("task", (str(view.input.get("subagent_type", "*")),), ("*",), dict(view.input))
    return Ask(view.tool, ("*",), ("*",), {**view.input, **_description(meta)})


def _description(meta: dict[str, Any]) -> Wire:
    text = meta.get("description") or meta.get("title")
    return {"description": str(text)} if text else {}


def _origin(url: str) -> str:
    match = re.match(r"^(https?://[^/]+)", url)
    return f"{match.group(1)}/*" if match else url or "*"


def permission_request(data: PermissionData, session_id: str, ask: Ask, tool: Wire | None) -> Wire:
    """`PermissionRequest` of the document."""
    wire: Wire = {
        "id": data.permission_id,
        "sessionID": session_id,
        "permission": ask.permission,
        "patterns": list(ask.patterns),
        "metadata": ask.metadata,
        "always": list(ask.always),
    }
    if tool:
        wire["tool"] = tool
    return wire


def question_request(data: QuestionData, session_id: str, tool: Wire | None) -> Wire:
    """`QuestionRequest` of the document."""
    questions: list[Wire] = []
    for q in data.questions:
        wire: Wire = {
            "question": q.question,
            "header": q.header,
            "options": [{"label": o.label, "description": o.description} for o in q.options],
        }
        if q.multiple:
            wire["multiple"] = True
        if not q.custom:
            wire["custom"] = False
        questions.append(wire)
    if not questions:
        questions = [{"question": data.prompt, "header": "", "options": [{"label": o, "description": ""} for o in data.options]}]
    request: Wire = {"id": data.question_id, "sessionID": session_id, "questions": questions}
    if tool:
        request["tool"] = tool
    return request


Decision: TypeAlias = Literal["accept", "accept_for_session", "reject"]

REPLIES: dict[Decision, str] = {"accept": "once", "accept_for_session": "always", "reject": "reject"}
"""Universal decision -> OpenCode's reply."""
DECISIONS: dict[str, Decision] = {reply: decision for decision, reply in REPLIES.items()}


def rejection(message: str) -> str:
    """Native's error of a call that a person rejected, with what the person said, if anything."""
    words = "The user rejected permission to use this specific tool call"
    return f"{words} with the following feedback: {message}" if message else f"{words}."
