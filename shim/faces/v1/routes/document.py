"""Generates the OpenAPI 3.1 document of `/v1` from its handlers. Pure; the same for every server."""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType
from typing import Any, cast

from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import models_json_schema

from shim.faces.v1 import models
from shim.faces.v1.routes.endpoint import Endpoint, endpoints
from shim.http.operation import BoundOperation, Handler, collect
from universal.events import EVENT_DATA, EventType, UniversalEvent
from universal.items import Frozen

TEMPLATE = "#/components/schemas/{model}"
VERSION = "1.0.0"
INFO = {
    "title": "opencode-shim, universal API",
    "version": VERSION,
    "description": "One API and one event schema for every agent. OpenCode's clients see the same sessions on the same server.",
    "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
}
SECURITY = {"basic": {"type": "http", "scheme": "basic"}, "bearer": {"type": "http", "scheme": "bearer"}}
"""The security schemes, which apply only if the server has a password."""
STATUS_TEXT = {
    200: "Done",
    204: "Done; the answer has no body",
    400: "The request is wrong",
    401: "The password is missing or wrong",
    404: "Not found",
    409: "It conflicts with the current state",
    413: "Too large",
    500: "The server failed",
}

Json = dict[str, Any]


def document(modules: Iterable[ModuleType]) -> Json:
    """Build the whole document."""
    listed = list(modules)
    bound = {operation.id: operation for operation in collect(listed)}
    schemas: Json = dict(event_schemas(TEMPLATE))
    schemas["EventsResponse"] = {
        "title": "EventsResponse",
        "type": "object",
        "required": ["events", "hasMore"],
        "properties": {
            "events": {"type": "array", "items": {"$ref": TEMPLATE.format(model=TITLE)}},
            "hasMore": {"type": "boolean"},
        },
    }
    _schema_of(models.ProblemDetails, schemas)
    paths: Json = {}
    for endpoint, handler in endpoints(listed):
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(
            endpoint, handler, bound[f"v1.{endpoint.id}"], schemas
        )
    return {
        "openapi": "3.1.0",
        "info": INFO,
        "jsonSchemaDialect": "https://json-schema.org/draft/2020-12/schema",
        "security": [{}, {"basic": []}, {"bearer": []}],
        "paths": paths,
        "components": {"schemas": dict(sorted(schemas.items())), "securitySchemes": SECURITY},
    }


def _operation(endpoint: Endpoint, handler: Handler, bound: BoundOperation, schemas: Json) -> Json:
    out: Json = {
        "operationId": endpoint.id,
        "tags": [endpoint.tag],
        "summary": " ".join((handler.__doc__ or "").split()),
        "parameters": [*_parameters(bound.path, "path"), *_parameters(bound.query, "query")],
        "responses": _responses(endpoint, schemas),
    }
    if endpoint.form == "events" and endpoint.method == "GET":
        out["parameters"].append(
            {"name": "Last-Event-ID", "in": "header", "required": False, "schema": {"type": "integer", "minimum": 0}}
        )
    if endpoint.takes_bytes:
        content = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
        out["requestBody"] = {"required": True, "content": content}
    elif bound.body is not None:
        body_schema = _schema_of(bound.body, schemas, mode="validation")
        out["requestBody"] = {"required": not bound.body_optional, "content": {"application/json": {"schema": body_schema}}}
    if endpoint.is_ours:
        out["x-extension"] = True
    return out


def _responses(endpoint: Endpoint, schemas: Json) -> Json:
    problem = {"application/problem+json": {"schema": {"$ref": TEMPLATE.format(model="ProblemDetails")}}}
    success: Json = {"description": STATUS_TEXT[endpoint.status]}
    match endpoint.form:
        case "json":
            success["content"] = {"application/json": {"schema": _schema_of(endpoint.answer, schemas)}}
        case "events":
            event = {"$ref": TEMPLATE.format(model=TITLE)}
            success["content"] = {"text/event-stream": {"schema": {"type": "string"}, "x-event-data": event}}
        case "bytes":
            success["content"] = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
        case "text":
            success["content"] = {"text/plain": {"schema": {"type": "string"}}}
        case "none":
            pass
    errors = {str(status): {"description": STATUS_TEXT[status], "content": problem} for status in (*endpoint.errors, 401)}
    return {
        str(endpoint.status): success,
        **dict(sorted(errors.items())),
        "default": {"description": "An error", "content": problem},
    }


def _parameters(adapter: TypeAdapter[Any] | None, where: str) -> list[Json]:
    if adapter is None:
        return []
    body_schema = adapter.json_schema(mode="validation")
    required = set(body_schema.get("required", ()))
    return [
        {"name": name, "in": where, "required": where == "path" or name in required, "schema": _plain(field)}
        for name, field in body_schema.get("properties", {}).items()
    ]


def _plain(field: Json) -> Json:
    return {key: value for key, value in field.items() if key != "title" and not (key == "default" and value is None)}


def _schema_of(model: Any, schemas: Json, *, mode: Any = "serialization") -> Json:
    """Return a reference to the schema of a model or a name, and add the referenced schemas to `schemas`."""
    if isinstance(model, str):
        return {"$ref": TEMPLATE.format(model=model)}
    adapter = cast(TypeAdapter[Any], model) if isinstance(model, TypeAdapter) else TypeAdapter[Any](model)
    body_schema = adapter.json_schema(ref_template=TEMPLATE, mode=mode)
    schemas.update({name: _answer_schema(inner) for name, inner in body_schema.pop("$defs", {}).items()})
    if isinstance(model, type) and issubclass(model, BaseModel):
        schemas[model.__name__] = _answer_schema(body_schema)
        return {"$ref": TEMPLATE.format(model=model.__name__)}
    if "title" in body_schema and "properties" in body_schema:
        schemas[body_schema["title"]] = _answer_schema(body_schema)
        return {"$ref": TEMPLATE.format(model=body_schema["title"])}
    return body_schema


def _answer_schema(model: Json) -> Json:
    """Require only fields without a default, because answers leave out fields that are None."""
    required = [name for name, field in model.get("properties", {}).items() if "default" not in field]
    return {**model, "required": [name for name in model.get("required", ()) if name in required]} if required else model


# --- schemas of the events -------------------------------------------------------------------------------

# Generates the JSON Schema (2020-12) of universal events from the models in `universal`. Pure.
#
# Each event type has its own payload, so the schema is a `oneOf` by `type`. `raw` and `native_session_id` are always present.

Schema = dict[str, Any]

TITLE = "UniversalEvent"
ALWAYS = ("event_id", "sequence", "time", "session_id", "native_session_id", "source", "synthetic", "type", "data", "raw")
"""Fields of every event, in order."""


def event_schemas(template: str = "#/$defs/{model}") -> dict[str, Schema]:
    """Return schemas by name: `UniversalEvent`, and everything that it refers to through `template`."""
    models: list[type[Frozen]] = [UniversalEvent, *dict.fromkeys(EVENT_DATA.values())]
    _, whole = models_json_schema([(model, "serialization") for model in models], ref_template=template, by_alias=True)
    schemas: dict[str, Schema] = whole["$defs"]
    envelope = schemas[UniversalEvent.__name__]
    schemas[TITLE] = _by_type(envelope, template)
    return schemas


def _by_type(envelope: Schema, template: str) -> Schema:
    fields: Schema = {**envelope["properties"], "sequence": {"type": "integer", "minimum": 1}}
    fields["raw"] = {"description": "The agent's own payload; null unless asked for with include_raw=true."}
    variants = [
        {"properties": {"type": {"const": type_.value}, "data": {"$ref": template.format(model=EVENT_DATA[type_].__name__)}}}
        for type_ in EventType
    ]
    return {
        "title": TITLE,
        "description": "One event of one session. `synthetic` is true exactly when `source` is `daemon`.",
        "type": "object",
        "required": list(ALWAYS),
        "properties": {name: {} if name == "data" else fields[name] for name in ALWAYS},
        "oneOf": variants,
        "additionalProperties": False,
    }


def event_document() -> Schema:
    """Build the self-contained schema of one event, for publication."""
    schemas = event_schemas()
    event = schemas.pop(TITLE)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **event, "$defs": schemas}
