"""The dialect `v2_july`, of the build of 17 July 2026: tables of its routes, requests and answers. Pure.

Source: recordings `compat_fixtures/opencode2/v2-20260717`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from shim.faces.opencode2.dialects.v2_july import NO_MESSAGES, form, message, permission, rename_fields, session
from shim.faces.opencode2.rewrite_rules import Alias, Answer, Ask, no_content, of_data, of_each, rename_body, without_types
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


def inbox(item: ReadOnlyWire) -> Wire:
    """Convert an `Inbox.Info` to an admitted input. `admittedSeq` is 0 if the handler did not add it."""
    admitted: Wire = {"admittedSeq": item.get("admittedSeq", 0), "id": item["id"], "sessionID": item["sessionID"]}
    admitted |= {"timeCreated": item["time"]["created"], "type": item["type"]}
    if item["type"] != "compaction":
        admitted |= {"data": item["payload"], "delivery": item["delivery"]}
    return admitted


def project(wire: ReadOnlyWire) -> Wire:
    """Convert a `Project`: the main working tree is named `worktree`, and there is no time of the last use."""
    time = {key: value for key, value in wire["time"].items() if key != "active"}
    row = {key: value for key, value in wire.items() if key != "canonical"}
    return {**row, "worktree": wire["canonical"], "time": time}


def _without(field: str) -> Callable[[ReadOnlyWire], Wire]:
    return lambda wire: rename_fields(wire, {field: None})


SAVED_PERMISSION = _without("time")
_PROVIDER = _without("activation")

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
    "session.interrupt": no_content,
    "session.permission.list": of_each(permission),
    "session.permission.get": of_data(permission),
    "permission.request.list": of_each(permission),
    "permission.saved.list": of_each(SAVED_PERMISSION),
    "session.form.list": of_each(form),
    "form.list": of_each(form),
    "session.form.create": of_data(form),
    "session.form.get": of_data(form),
    "july.form.state": of_data(lambda wire: wire["state"]),
    "location.get": lambda body: {**body, "project": {key: body["project"][key] for key in ("id", "directory")}},
    "project.list": lambda body: [project(row) for row in body],
    "project.update": project,
    "provider.list": of_each(_PROVIDER),
    "provider.get": of_data(_PROVIDER),
    "july.project": lambda body: {key: body["project"][key] for key in ("id", "directory")},
    "july.server": lambda body: {"urls": body["urls"]},
}
