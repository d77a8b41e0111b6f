"""Checks JSON values against a JSON schema, and the schema itself, by jsonschema-rs. Pure: nothing is fetched."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from universal.lib.jsonvalue import arr

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jsonschema_rs import Draft202012Validator, ValidationError

TAGS = frozenset({"type", "role", "status"})
"""Fields that tell which alternative of a schema a value means."""
MESSAGE_LIMIT = 300
"""Maximum characters of a message."""


def schema_fault(schema: Any) -> tuple[str, tuple[str | int, ...]] | None:
    """What is wrong with a schema, and where; None if nothing is."""
    from jsonschema_rs import ValidationError  # late: few prompts have a schema, and it takes long

    if not isinstance(schema, dict):
        return "a schema has to be an object", ()
    try:
        validator(schema)
    except ValidationError as error:
        return _words(_nearest(error)), tuple(error.instance_path)
    except ValueError as error:  # text that has no UTF-8
        return str(error), ()
    return None


def validator(schema: Any) -> Draft202012Validator:
    """The check of a schema without a fault. Raises jsonschema_rs.ValidationError for any other."""
    from jsonschema_rs import Draft202012Validator

    return Draft202012Validator(schema, offline=True)


def mismatch(value: Any, check: Draft202012Validator, place: str = "") -> str:
    """Why a value does not match, with its place ("/age: ..."), or "". In: `place`, where the value stands."""
    try:
        error = next(iter(check.iter_errors(value)), None)
    except ValueError as fault:  # text that has no UTF-8, or too many levels
        return f"{place or '/'}: {fault}"
    if error is None:
        return ""
    error = _nearest(error)
    path = place + "".join(f"/{step}" for step in error.instance_path)
    return f"{path or '/'}: {_words(error)}"


def _words(error: ValidationError) -> str:
    """What is wrong, with all values that are allowed. Of a long message the end, since it begins with the whole value."""
    # jsonschema-rs names two of them, and counts the others
    allowed = ", ".join(map(json.dumps, arr(getattr(error.kind, "options", None))))
    message = f"{json.dumps(error.instance)} is not one of {allowed}" if allowed else error.message
    return message if len(message) <= MESSAGE_LIMIT else f"... {message[-MESSAGE_LIMIT:]}"


def _nearest(error: ValidationError) -> ValidationError:
    """The fault in the alternative that the value means by its tags, else in the first one; the error itself if it has none."""
    alternatives: Sequence[Sequence[ValidationError]] = getattr(error.kind, "context", ())
    meant = [faults for faults in alternatives if not any(TAGS.intersection(fault.instance_path[-1:]) for fault in faults)]
    first = next((faults[0] for faults in (*meant, *alternatives) if faults), None)
    return error if first is None else _nearest(first)
