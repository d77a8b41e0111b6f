"""Checks the bounds of request bodies, in one place for all faces. Pure.

A body within `BODY_LIMIT_BYTES` can still contain millions of parts, or a long title that every list of sessions repeats.
Imported documents contain whole conversations, so they may have more values; the import checks their texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from shim.lib.errors import InvalidRequest, PayloadTooLarge, place_text
from shim.lib.ids import ID_LIMIT

VALUES_LIMIT = 100_000
"""Maximum members of all arrays and objects of a body together."""
UNPARSED_LIMIT = 10 * VALUES_LIMIT
"""Maximum signs of values (`,`, `[`, `{`) before a body is parsed, which takes up to 0.25 s of the event loop."""
IMPORT_VALUES_LIMIT = 5_000_000
"""The same maximum for an imported document."""
IMPORTS = frozenset({"session.import", "experimental.session.import", "sync.replay"})
ARRAYS: Mapping[str, int] = {
    **dict.fromkeys(("parts", "files", "agents", "skills", "answers", "attachments"), 1000),
    **dict.fromkeys(("permission", "permissions", "rules"), 2000),
}
"""Maximum members of an array, by name."""
TEXTS: Mapping[str, int] = {
    **dict.fromkeys(("id", "messageID", "sessionID", "partID", "parentID", "requestID", "projectID", "workspaceID"), ID_LIMIT),
    **dict.fromkeys(("providerID", "modelID", "agent", "mode", "variant", "agentMode", "permissionMode"), 256),
    **dict.fromkeys(("title", "description"), 2000),
    **dict.fromkeys(("name", "filename", "mime"), 1000),
    **dict.fromkeys(("directory", "cwd"), 4096),
}
"""Maximum characters of a text, by name."""
NAMED_DEPTH = 4
"""Levels of a body whose names are checked. Deeper levels contain values of tools and other programs."""
OPEN = frozenset({"metadata", "input", "config", "options", "format"})
"""Members with arbitrary contents of the client, whose names are not checked."""


def check_unparsed(operation_id: str, raw: bytes) -> None:
    """Raise PayloadTooLarge for a body that would take seconds and gigabytes to parse. Texts may have these signs too."""
    most = IMPORT_VALUES_LIMIT if operation_id in IMPORTS else UNPARSED_LIMIT
    if len(raw) > most and raw.count(b",") + raw.count(b"[") + raw.count(b"{") > most:
        raise PayloadTooLarge(f"The body has more than {most} values.", most)


def check(operation_id: str, body: Any) -> None:
    """Raise InvalidRequest for a too long text, PayloadTooLarge for too many members. Both name the field and the bound."""
    imports = operation_id in IMPORTS
    most = IMPORT_VALUES_LIMIT if imports else VALUES_LIMIT
    count = 0
    stack: list[tuple[Any, tuple[str | int, ...], bool]] = [(body, (), not imports)]
    while stack:
        value, path, named = stack.pop()
        if isinstance(value, dict):
            members = cast("dict[str, Any]", value)
            count += len(members)
            if count <= most:
                for key, inner in members.items():
                    if named:
                        _check_named(key, inner, (*path, key))
                    if isinstance(inner, (dict, list)):
                        below = named and key not in OPEN and len(path) < NAMED_DEPTH
                        stack.append((cast("object", inner), (*path, key) if below else path, below))
        elif isinstance(value, list):
            items = cast("list[Any]", value)
            count += len(items)
            if count <= most:
                stack += [(inner, path, named) for inner in items if isinstance(inner, (dict, list))]
        if count > most:
            raise PayloadTooLarge(f"The body has more than {most} values.", most)


def _check_named(key: str, value: Any, path: tuple[str | int, ...]) -> None:
    if isinstance(value, str) and len(value) > (most := TEXTS.get(key, len(value))):
        raise InvalidRequest(f"Expected at most {most} characters, got {len(value)}", path=path)
    if isinstance(value, list) and len(cast("list[Any]", value)) > (most := ARRAYS.get(key, len(cast("list[Any]", value)))):
        raise PayloadTooLarge(f"Expected at most {most} items, got {len(cast('list[Any]', value))}{place_text(path)}", most)
