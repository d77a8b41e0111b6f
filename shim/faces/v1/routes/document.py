"""The OpenAPI 3.1 document of `/v1`, made from what the handlers take and answer. Pure; the same for every server."""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType
from typing import Any, cast

from pydantic import BaseModel, TypeAdapter

from shim.faces.v1 import models, schema
from shim.faces.v1.routes.endpoint import Endpoint, endpoints
from shim.http.operation import BoundOperation, Handler, collect

TEMPLATE = "#/components/schemas/{model}"
VERSION = "1.0.0"
INFO = {
    "title": "opencode-shim, universal API",
    "version": VERSION,
    "description": "One API and one event schema for every agent. OpenCode's clients see the same sessions on the same server.",
    "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
}
SECURITY = {"basic": {"type": "http", "scheme": "basic"}, "bearer": {"type": "http", "scheme": "bearer"}}
"""Only if the server has a password."""
STATUS_TEXT = {
    200: "Done",
    204: "Done; there is nothing to tell",
    400: "The request is wrong",
    401: "The server has a password, which was not given",
    404: "There is no such thing",
    409: "It clashes with what is there",
    413: "Too large",
    500: "It failed",
}

Json = dict[str, Any]


def document(modules: Iterable[ModuleType]) -> Json:
    """The whole document."""
    listed = list(modules)
    bound = {one.id: one for one in collect(listed)}
    schemas: Json = dict(schema.event_schemas(TEMPLATE))
    schemas["EventsResponse"] = {
        "title": "EventsResponse",
        "type": "object",
        "required": ["events", "hasMore"],
        "properties": {
            "events": {"type": "array", "items": {"$ref": TEMPLATE.format(model=schema.TITLE)}},
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
        given = _schema_of(bound.body, schemas, mode="validation")
        out["requestBody"] = {"required": not bound.body_optional, "content": {"application/json": {"schema": given}}}
    if endpoint.ours:
        out["x-extension"] = True
    return out


def _responses(endpoint: Endpoint, schemas: Json) -> Json:
    problem = {"application/problem+json": {"schema": {"$ref": TEMPLATE.format(model="ProblemDetails")}}}
    success: Json = {"description": STATUS_TEXT[endpoint.status]}
    match endpoint.form:
        case "json":
            success["content"] = {"application/json": {"schema": _schema_of(endpoint.answer, schemas)}}
        case "events":
            event = {"$ref": TEMPLATE.format(model=schema.TITLE)}
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
    given = adapter.json_schema(mode="validation")
    required = set(given.get("required", ()))
    return [
        {"name": name, "in": where, "required": where == "path" or name in required, "schema": _plain(field)}
        for name, field in given.get("properties", {}).items()
    ]


def _plain(field: Json) -> Json:
    return {key: value for key, value in field.items() if key != "title" and not (key == "default" and value is None)}


def _schema_of(what: Any, schemas: Json, *, mode: Any = "serialization") -> Json:
    """A reference to the schema of a model, or of a name that is there already; what it needs goes into `schemas`."""
    if isinstance(what, str):
        return {"$ref": TEMPLATE.format(model=what)}
    adapter = cast(TypeAdapter[Any], what) if isinstance(what, TypeAdapter) else TypeAdapter[Any](what)
    made = adapter.json_schema(ref_template=TEMPLATE, mode=mode)
    schemas.update({name: _answer_schema(inner) for name, inner in made.pop("$defs", {}).items()})
    if isinstance(what, type) and issubclass(what, BaseModel):
        schemas[what.__name__] = _answer_schema(made)
        return {"$ref": TEMPLATE.format(model=what.__name__)}
    if "title" in made and "properties" in made:
        schemas[made["title"]] = _answer_schema(made)
        return {"$ref": TEMPLATE.format(model=made["title"])}
    return made


def _answer_schema(model: Json) -> Json:
    """Fields that are None are left out of answers, so only those without a default are always there."""
    required = [name for name, field in model.get("properties", {}).items() if "default" not in field]
    return {**model, "required": [name for name in model.get("required", ()) if name in required]} if required else model
