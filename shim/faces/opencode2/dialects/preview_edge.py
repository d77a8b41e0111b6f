"""P, the preview in 1.18: requests and answers that differ from R's, as rows. Pure.

Its questions have routes of their own (`shim.faces.opencode1.routes.preview`): they are no forms there.
Source: OpenCode's own document of 1.18.33; recording `endpoints` of 1.18.33 and of lildax 1.18.18.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shim.faces.opencode2.dialects.preview import NO_MESSAGES, message, permission, prompt, revert, session
from shim.faces.opencode2.dialects.v2_july import rename_fields
from shim.faces.opencode2.dialects.v2_july_edge import saved_permission
from shim.faces.opencode2.envelope import with_project
from shim.faces.opencode2.events import Wire
from shim.faces.opencode2.rewrite_rules import Alias, Answer, Ask, NoContent, leaving_out, of_data, of_each, rename_body
from shim.operations import AskedField
from universal.jsonvalue import arr, obj

SESSION = "/api/session/{sessionID}"

ALIASES: tuple[Alias, ...] = (
    Alias("POST", f"{SESSION}/wait", "experimental.session.wait"),
    Alias("POST", f"{SESSION}/revert/clear", "session.revert.clear"),
)


def _prompt(asked: AskedField) -> AskedField:
    """`{prompt: {text, files?, agents?}}` is R's `{text, files?, agents?}`."""
    body = obj(asked.body)
    said = obj(body.get("prompt"))
    if not said:
        return asked
    named = {key: [_mention(obj(one)) for one in arr(said[key])] for key in ("files", "agents") if key in said}
    return asked._replace(body={**rename_fields(body, {"prompt": None}), **said, **named})


def _mention(one: Wire) -> Wire:
    return rename_fields(one, {"source": "mention"})


REQUESTS: Mapping[str, Ask] = {
    "session.prompt": _prompt,
    "session.permission.reply": rename_body(reply="decision"),
    "session.message.list": leaving_out(*NO_MESSAGES),
}


def request(operation: str, asked: AskedField) -> AskedField:
    """What a client of P asks, as R has it."""
    row = REQUESTS.get(operation)
    return asked if row is None else row(asked)


def _admitted_prompt(item: Wire) -> Wire:
    """R's inbox item as an admitted prompt. `admittedSeq` is known to who made the answer, or 0."""
    made: Wire = {"admittedSeq": item.get("admittedSeq", 0), "id": item["id"], "sessionID": item["sessionID"]}
    return made | {"prompt": prompt(obj(item["payload"])), "delivery": item["delivery"], "timeCreated": item["time"]["created"]}


def _agent(agent: Wire) -> Wire:
    return {**rename_fields(agent, {"name": None}), "request": rename_fields(obj(agent["request"]), {"settings": None})}


def _model(model: Wire) -> Wire:
    own = ("modelID", "canonical", "compatibility", "package", "settings", "headers", "body")
    api: Wire = {"id": model.get("modelID", model["id"]), "type": "aisdk", "package": model.get("package", "")}
    sent = {"headers": obj(model.get("headers")), "body": obj(model.get("body"))}
    variants = [{"id": one["id"], "headers": obj(one.get("headers")), "body": obj(one.get("body"))} for one in model["variants"]]
    kept = rename_fields(model, dict.fromkeys(own))
    return {**kept, "api": {**api, **_settings(model)}, "request": sent, "variants": variants}


def _settings(given: Wire) -> Wire:
    return {"settings": given["settings"]} if given.get("settings") else {}


def _provider(provider: Wire) -> Wire:
    kept = {key: provider[key] for key in ("id", "integrationID", "name") if key in provider}
    sent = {"headers": obj(provider.get("headers")), "body": obj(provider.get("body"))}
    off = {"disabled": True} if provider.get("activation") == "disabled" else {}
    return {**kept, **off, "api": {"type": "aisdk", "package": provider["package"], **_settings(provider)}, "request": sent}


def _skill(skill: Wire) -> Wire:
    kept = {key: skill[key] for key in ("name", "description", "content") if key in skill}
    return {**kept, "location": skill["path"]}


def _location(said: Wire) -> Wire:
    return {**said, "project": {key: said["project"][key] for key in ("id", "directory")}}


def _no_content(_said: Any) -> Any:
    return NoContent()


ANSWERS: Mapping[str, Answer] = {
    "location.get": _location,
    "agent.list": of_each(_agent),
    "model.list": of_each(_model),
    "provider.list": of_each(_provider),
    "provider.get": of_data(_provider),
    "command.list": of_each(lambda command: {"template": "", **command}),
    "skill.list": of_each(_skill),
    "integration.list": of_each(lambda one: rename_fields(one, {"metadata": None})),
    "integration.get": of_data(lambda one: rename_fields(one, {"metadata": None})),
    "session.create": of_data(session),
    "session.get": of_data(session),
    "session.list": of_each(session),
    "session.message.list": of_each(message),
    "session.message.get": of_data(lambda one: message(one) or one),
    "session.context": of_each(message),
    "session.prompt": of_data(_admitted_prompt),
    "session.compact": _no_content,
    "session.interrupt": _no_content,
    "session.revert.stage": of_data(revert),
    "session.permission.list": of_each(permission),
    "session.permission.get": of_data(permission),
    "permission.request.list": of_each(permission),
    "permission.saved.list": of_each(lambda wire: permission(saved_permission(wire))),
}


def answer(operation: str, said: Any) -> Any:
    """What R answers, as P does; `Nothing` for 204."""
    row = ANSWERS.get(operation)
    said = with_project(said)
    return said if row is None else row(said)
