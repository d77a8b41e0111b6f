"""Generates the JSON Schema (2020-12) of universal events from the models in `universal`. Pure.

Each event type has its own payload, so the schema is a `oneOf` by `type`. `raw` and `native_session_id` are always present.
"""

from __future__ import annotations

from typing import Any

from pydantic.json_schema import models_json_schema

from universal.events import EVENT_DATA, EventType, UniversalEvent
from universal.items import Frozen

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


def document() -> Schema:
    """Build the self-contained schema of one event, for publication."""
    schemas = event_schemas()
    event = schemas.pop(TITLE)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **event, "$defs": schemas}
