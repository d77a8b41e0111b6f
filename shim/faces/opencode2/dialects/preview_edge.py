"""The dialect `preview`, of the preview in 1.18: tables of its routes, requests and answers. Pure.

Its questions are no forms and have routes of their own (`shim.faces.opencode2.routes.form`).
Source: OpenCode's OpenAPI document of 1.18.33; recordings `endpoints` of 1.18.33 and of lildax 1.18.18.
"""

from __future__ import annotations

from collections.abc import Mapping

from shim.faces.opencode2.dialects.preview import NO_MESSAGES, message, permission, prompt, revert, session
from shim.faces.opencode2.dialects.v2_july import rename_fields
from shim.faces.opencode2.dialects.v2_july_edge import SAVED_PERMISSION
from shim.faces.opencode2.rewrite_rules import Alias, Answer, Ask, no_content, of_data, of_each, rename_body, without_types
from shim.faces.opencode2.wire_event import ReadOnlyWire, Wire
from shim.http.operations import RequestInput
from universal.lib.jsonvalue import arr, obj

SESSION = "/api/session/{sessionID}"

ALIASES: tuple[Alias, ...] = (
    Alias("POST", f"{SESSION}/wait", "experimental.session.wait"),
    Alias("POST", f"{SESSION}/revert/clear", "session.revert.clear"),
)


def _prompt(input_: RequestInput) -> RequestInput:
    """`{prompt: {text, files?, agents?}}` is `{text, files?, agents?}` in `v2_0`."""
    body = obj(input_.body)
    fields = obj(body.get("prompt"))
    if not fields:
        return input_
    mentions = {key: [_mention(obj(item)) for item in arr(fields[key])] for key in ("files", "agents") if key in fields}
    return input_._replace(body={**rename_fields(body, {"prompt": None}), **fields, **mentions})


def _mention(item: ReadOnlyWire) -> Wire:
    return rename_fields(item, {"source": "mention"})


REQUESTS: Mapping[str, Ask] = {
    "session.prompt": _prompt,
    "session.permission.reply": rename_body(reply="decision"),
    "session.message.list": without_types(*NO_MESSAGES),
}


def _admitted_prompt(item: ReadOnlyWire) -> Wire:
    """Convert an inbox item to an admitted prompt. `admittedSeq` is 0 if the handler did not add it."""
    ids: Wire = {"admittedSeq": item.get("admittedSeq", 0), "id": item["id"], "sessionID": item["sessionID"]}
    return ids | {"prompt": prompt(obj(item["payload"])), "delivery": item["delivery"], "timeCreated": item["time"]["created"]}


def _agent(agent: ReadOnlyWire) -> Wire:
    return {**rename_fields(agent, {"name": None}), "request": rename_fields(obj(agent["request"]), {"settings": None})}


def _model(model: ReadOnlyWire) -> Wire:
    moved = ("modelID", "canonical", "compatibility", "package", "settings", "headers", "body")
    api: Wire = {"id": model.get("modelID", model["id"]), "type": "aisdk", "package": model.get("package", "")}
    variants = [{"id": variant["id"], **_request(variant)} for variant in model["variants"]]
    fields = rename_fields(model, dict.fromkeys(moved))
    return {**fields, "api": {**api, **_settings(model)}, "request": _request(model), "variants": variants}


def _request(source: ReadOnlyWire) -> Wire:
    return {"headers": obj(source.get("headers")), "body": obj(source.get("body"))}


def _settings(source: ReadOnlyWire) -> Wire:
    return {"settings": source["settings"]} if source.get("settings") else {}


def _provider(provider: ReadOnlyWire) -> Wire:
    fields = {key: provider[key] for key in ("id", "integrationID", "name") if key in provider}
    disabled = {"disabled": True} if provider.get("activation") == "disabled" else {}
    api = {"type": "aisdk", "package": provider["package"], **_settings(provider)}
    return {**fields, **disabled, "api": api, "request": _request(provider)}


def _skill(skill: ReadOnlyWire) -> Wire:
    fields = {key: skill[key] for key in ("name", "description", "content") if key in skill}
    return {**fields, "location": skill["path"]}


def _location(body: ReadOnlyWire) -> Wire:
    return {**body, "project": {key: body["project"][key] for key in ("id", "directory")}}


ANSWERS: Mapping[str, Answer] = {
    "location.get": _location,
    "agent.list": of_each(_agent),
    "model.list": of_each(_model),
    "provider.list": of_each(_provider),
    "provider.get": of_data(_provider),
    "command.list": of_each(lambda command: {"template": "", **command}),
    "skill.list": of_each(_skill),
    "integration.list": of_each(lambda integration: rename_fields(integration, {"metadata": None})),
    "integration.get": of_data(lambda integration: rename_fields(integration, {"metadata": None})),
    "session.create": of_data(session),
    "session.get": of_data(session),
    "session.list": of_each(session),
    "session.message.list": of_each(message),
    "session.message.get": of_data(lambda body: message(body) or body),
    "session.context": of_each(message),
    "session.prompt": of_data(_admitted_prompt),
    "session.compact": no_content,
    "session.interrupt": no_content,
    "session.revert.stage": of_data(revert),
    "session.permission.list": of_each(permission),
    "session.permission.get": of_data(permission),
    "permission.request.list": of_each(permission),
    "permission.saved.list": of_each(lambda wire: permission(SAVED_PERMISSION(wire))),
}
