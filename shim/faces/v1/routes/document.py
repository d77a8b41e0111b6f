"""Generates the OpenAPI 3.1 document of `/v1` from its handlers. Pure; the same for every server."""

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
        body_schema = _schema_of(bound.body, schemas, mode="validation")
        out["requestBody"] = {"required": not bound.body_optional, "content": {"application/json": {"schema": body_schema}}}
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
