"""The dialect `v2_july`, of the build of 17 July 2026: tables of its routes, requests and answers. Pure.

Source: recordings `compat_fixtures/opencode2/v2-20260717`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shim.faces.opencode2.dialects.v2_july import NO_MESSAGES, message, session
from shim.faces.opencode2.envelope import with_project
from shim.faces.opencode2.rewrite_rules import Alias, Answer, Ask, NoContent, of_data, of_each, rename_body, without_types
from shim.faces.opencode2.wire_event import ReadOnlyWire, Wire
from shim.http.operations import RequestInput
from universal.lib.jsonvalue import obj

SESSION = "/api/session/{sessionID}"

ALIASES: tuple[Alias, ...] = (
    Alias("GET", "/api/server", "server.info", "july.server"),
    Alias("GET", "/api/form/request", "form.list"),
    Alias("GET", "/api/project/current", "location.get", "july.project"),
    Alias("GET", "/api/project/{projectID}/directories", "worktree.list"),
    Alias("PUT", "/api/mcp/{server}", "experimental.mcp.add"),
    Alias("DELETE", "/api/mcp/{server}", "experimental.mcp.remove"),
    Alias("POST", "/api/mcp/{server}/connect", "experimental.mcp.connect"),
    Alias("POST", "/api/mcp/{server}/disconnect", "experimental.mcp.disconnect"),
    Alias("POST", "/api/generate", "experimental.generate.text"),
    Alias("GET", f"{SESSION}/pending", "session.inbox.list"),
    Alias("GET", f"{SESSION}/form/{{formID}}/state", "session.form.get", "july.form.state"),
    Alias("POST", f"{SESSION}/form/{{formID}}/cancel", "session.form.cancel"),
    Alias("POST", f"{SESSION}/rename", "session.update"),
    Alias("POST", f"{SESSION}/revert/clear", "session.revert.clear"),
    Alias("POST", f"{SESSION}/wait", "experimental.session.wait"),
    Alias("POST", f"{SESSION}/skill", "experimental.session.skill"),
    Alias("GET", f"{SESSION}/instructions/entries", "experimental.session.instructions.entry.list"),
    Alias("PUT", f"{SESSION}/instructions/entries/{{key}}", "experimental.session.instructions.entry.put"),
    Alias("DELETE", f"{SESSION}/instructions/entries/{{key}}", "experimental.session.instructions.entry.remove"),
)
"""Its lists of questions are empty, because its questions are forms: `shim.faces.opencode2.routes.form`."""


def _command(input_: RequestInput) -> RequestInput:
    """`{command, arguments?}` is `{name, text}` in `v2_0`."""
    renamed = rename_body(command="name", arguments="text")(input_)
    return renamed._replace(body={"text": "", **obj(renamed.body)}) if "name" in obj(renamed.body) else renamed


REQUESTS: Mapping[str, Ask] = {
    "session.permission.reply": rename_body(reply="decision"),
    "session.message.list": without_types(*NO_MESSAGES),
    "session.fork": rename_body(messageID="before"),
    "session.command": _command,
    "experimental.session.skill": rename_body(skill="id"),
}


def request(operation: str, input_: RequestInput) -> RequestInput:
    """Convert the fields of a request to `v2_0`."""
    row = REQUESTS.get(operation)
    return input_ if row is None else row(input_)


def inbox(item: ReadOnlyWire) -> Wire:
    """Convert an `Inbox.Info` to an admitted input. `admittedSeq` is 0 if the handler did not add it."""
    admitted: Wire = {"admittedSeq": item.get("admittedSeq", 0), "id": item["id"], "sessionID": item["sessionID"]}
    admitted |= {"timeCreated": item["time"]["created"], "type": item["type"]}
    if item["type"] != "compaction":
        admitted |= {"data": item["payload"], "delivery": item["delivery"]}
    return admitted


def permission(wire: ReadOnlyWire) -> ReadOnlyWire:
    """Convert a `Permission.Request`: the id of its tool call is named `callID`."""
    source = wire.get("source")
    return wire if source is None else {**wire, "source": _call(source)}


def saved_permission(wire: ReadOnlyWire) -> Wire:
    """Convert a `Permission.Saved`: it has no time."""
    return {key: value for key, value in wire.items() if key != "time"}


def form(wire: ReadOnlyWire) -> ReadOnlyWire:
    """Convert a `Form.Info`: the id of its tool call is named `callID`."""
    tool = wire.get("metadata", {}).get("tool")
    return wire if tool is None else {**wire, "metadata": {**wire["metadata"], "tool": _call(tool)}}


def project(wire: ReadOnlyWire) -> Wire:
    """Convert a `Project`: the main working tree is named `worktree`, and there is no time of the last use."""
    time = {key: value for key, value in wire["time"].items() if key != "active"}
    row = {key: value for key, value in wire.items() if key != "canonical"}
    return {**row, "worktree": wire["canonical"], "time": time}


def provider(wire: ReadOnlyWire) -> Wire:
    """Convert a `ProviderInfo`: it has no `activation`."""
    return {key: value for key, value in wire.items() if key != "activation"}


def _call(tool: ReadOnlyWire) -> Wire:
    return {"callID" if key == "id" else key: value for key, value in tool.items()}


def _no_content(_body: Any) -> Any:
    return NoContent()


ANSWERS: Mapping[str, Answer] = {
    "session.create": of_data(session),
    "session.get": of_data(session),
    "session.fork": of_data(session),
    "session.list": of_each(session),
    "session.message.list": of_each(message),
    "session.message.get": lambda body: {**body, "data": message(body["data"]) or body["data"]},
    "session.context": of_each(message),
    "session.prompt": of_data(inbox),
    "session.synthetic": of_data(inbox),
    "session.compact": of_data(inbox),
    "session.inbox.list": of_each(inbox),
    "session.interrupt": _no_content,
    "session.permission.list": of_each(permission),
    "session.permission.get": of_data(permission),
    "permission.request.list": of_each(permission),
    "permission.saved.list": of_each(saved_permission),
    "session.form.list": of_each(form),
    "form.list": of_each(form),
    "session.form.create": of_data(form),
    "session.form.get": of_data(form),
    "july.form.state": of_data(lambda wire: wire["state"]),
    "location.get": lambda body: {**body, "project": {key: body["project"][key] for key in ("id", "directory")}},
    "project.list": lambda body: [project(row) for row in body],
    "project.update": project,
    "provider.list": of_each(provider),
    "provider.get": of_data(provider),
    "july.project": lambda body: {key: body["project"][key] for key in ("id", "directory")},
    "july.server": lambda body: {"urls": body["urls"]},
}


def answer(operation: str, body: Any) -> Any:
    """Convert the body of an answer. `NoContent` means 204."""
    row = ANSWERS.get(operation)
    body = with_project(body)
    return body if row is None else row(body)
