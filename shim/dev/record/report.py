"""Reports native kinds and fields that are new or gone between the recordings of two versions. Pure.

A kind is what a codec dispatches on: `assistant`, `system/init`, `item/started commandExecution`, `session/update
tool_call` ...; a field is a path of keys in a message of that kind. Where keys are data (of tools, names, ids) the path stops.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, TypeAlias

from universal.lib.jsonvalue import arr, obj, text

Kinds: TypeAlias = dict[str, set[str]]
"""Kind -> paths of its fields."""
DEPTH = 6
_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_]{0,40}$")
_DATA = frozenset(
    {"input", "arguments", "rawInput", "rawOutput", "env", "properties.info.model", "modelUsage", "tool_use_result", "_meta"}
)
"""Keys whose values are data of a tool or a model and no part of the protocol."""


def kind_of(msg: dict[str, Any], requests: Mapping[Any, str]) -> str:
    """The kind of a message of any agent. `asked`: id of our request -> its kind, for answers."""
    if "event" in msg and "properties" in obj(msg["event"]):  # an event of OpenCode's stream
        event = obj(msg["event"])
        part = text(obj(obj(event["properties"]).get("part")).get("type"))
        return " ".join(filter(None, (text(event.get("type")), part)))
    method = text(msg.get("method"))
    if method:
        params = obj(msg.get("params"))
        inner = obj(params.get("update")).get("sessionUpdate") or obj(params.get("item")).get("type")
        return " ".join(filter(None, (method, text(inner))))
    kind = text(msg.get("type"))
    if kind == "response":
        return f"response {text(msg.get('command'))}"
    if kind in ("control_response", ""):
        id_ = obj(msg.get("response")).get("request_id") or msg.get("id")
        return f"answer to {requests.get(id_, 'a request')}"
    inner = msg.get("subtype") or obj(msg.get("request")).get("subtype") or obj(msg.get("event")).get("type")
    inner = inner or obj(msg.get("assistantMessageEvent")).get("type") or obj(msg.get("message")).get("role")
    return "/".join(filter(None, (kind, text(inner))))


def request_of(msg: dict[str, Any]) -> tuple[Any, str] | None:
    """Return the id and kind of a request that we wrote, or None for another message."""
    if msg.get("type") == "control_request":
        return msg.get("request_id"), text(obj(msg.get("request")).get("subtype"))
    if "path" in msg and "id" in msg:
        path = re.sub(r"(ses|msg|per|que)_\w+", r"{\1}", text(msg.get("path")))
        return msg["id"], f"{text(msg.get('method'))} {path.split('?')[0]}"
    if "id" in msg and text(msg.get("method")):
        return msg["id"], text(msg.get("method"))
    return None


def fields_of(value: Any, path: str = "", depth: int = DEPTH) -> Iterator[str]:
    """Yield the paths of all keys. `[]` stands for the elements of a list."""
    if isinstance(value, list):
        for element in arr(value):
            yield from fields_of(element, f"{path}[]", depth)
        return
    for key, inner in obj(value).items():
        if not _NAME.match(key) or depth == 0:
            continue
        here = f"{path}.{key}" if path else key
        yield here
        if key not in _DATA:
            yield from fields_of(inner, here, depth - 1)


def kinds_of(recordings: Iterable[Iterable[dict[str, Any]]]) -> Kinds:
    """Return the kinds and fields that an agent sent in these recordings (rows without the head)."""
    kinds: Kinds = {}
    for rows in recordings:
        requests: dict[Any, str] = {}
        for row in rows:
            msg = obj(row.get("msg"))
            if row.get("dir") == "in" and (request := request_of(msg)) is not None:
                requests[request[0]] = request[1]
            elif row.get("dir") == "out" and msg:
                kinds.setdefault(kind_of(msg, requests), set()).update(fields_of(msg))
            elif row.get("dir") == "sse":  # older recordings of OpenCode
                wrapped = {"event": obj(row.get("data"))}
                kinds.setdefault(kind_of(wrapped, requests), set()).update(fields_of(wrapped))
    return kinds


@dataclass(frozen=True, slots=True)
class Difference:
    """Kinds and fields that are new or gone between two versions. Fields of a new or gone kind are not listed."""

    new_kinds: tuple[str, ...]
    gone_kinds: tuple[str, ...]
    new_fields: Mapping[str, tuple[str, ...]]
    gone_fields: Mapping[str, tuple[str, ...]]

    @property
    def empty(self) -> bool:
        """True if nothing is new or gone."""
        return not (self.new_kinds or self.gone_kinds or self.new_fields or self.gone_fields)


def compare(before: Kinds, now: Kinds) -> Difference:
    """Compare `now` with `before`."""
    common = sorted(before.keys() & now.keys())
    return Difference(
        _kinds_without_answers(now.keys() - before.keys()),
        _kinds_without_answers(before.keys() - now.keys()),
        {kind: new for kind in common if (new := _tops(now[kind] - before[kind]))},
        {kind: missing for kind in common if (missing := _tops(before[kind] - now[kind]))},
    )


def _kinds_without_answers(kinds: AbstractSet[str]) -> tuple[str, ...]:
    """Leave out answers to our requests, which depend on what we asked."""
    return tuple(sorted(kind for kind in kinds if not kind.startswith(("answer to ", "response "))))


def _tops(paths: set[str]) -> tuple[str, ...]:
    """Sort paths and leave out those below another of them."""
    return tuple(sorted(p for p in paths if not any(p != o and p.startswith((f"{o}.", f"{o}[]")) for o in paths)))


def lines(difference: Difference) -> list[str]:
    """Return the difference as lines of Markdown."""
    if difference.empty:
        return ["- no kind and no field is new or gone"]
    out = [f"- new kind `{kind}`" for kind in difference.new_kinds]
    out += [f"- kind gone `{kind}`" for kind in difference.gone_kinds]
    for word, table in (("new", difference.new_fields), ("gone", difference.gone_fields)):
        out += [f"- {word} in `{kind}`: {', '.join(f'`{path}`' for path in paths)}" for kind, paths in table.items()]
    return out
