"""The kinds of rows in a dialect's tables of routes, requests and answers. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from shim.faces.opencode2.wire_event import ReadOnlyWire, Wire
from shim.http.operations import RequestInput
from universal.lib.jsonvalue import obj


class Alias(NamedTuple):
    """A route of a dialect that `v2_0` has at another place. `operation` is the operation of `v2_0` that serves it.

    Placeholders have the names of the path or of the query of that operation.
    """

    method: str
    path: str
    operation: str


Ask: TypeAlias = Callable[[RequestInput], RequestInput]
Answer: TypeAlias = Callable[[Any], Any]


def rename_fields(data: Mapping[str, object], fields: Mapping[str, str | None]) -> Wire:
    """Rename the fields of `data`. A field whose new name is None is left out."""
    return {name: value for key, value in data.items() if (name := fields.get(key, key)) is not None}


def rename_body(**names: str) -> Ask:
    """Rename fields of a request's body: `rename_body(reply="decision")` turns `reply` into `decision`."""

    def rename(request: RequestInput) -> RequestInput:
        body = obj(request.body)  # the operation itself refuses a body that is no object
        return request._replace(body={names.get(key, key): value for key, value in body.items()}) if body else request

    return rename


def without_types(*kinds: str) -> Ask:
    """Ask for messages without these types, which the dialect does not have. So a page of the list is still full."""
    return lambda request: request._replace(query={**request.query, "without": ",".join(sorted(kinds))})


def no_content(_body: Any) -> None:
    """204 in the place of an answer."""


def of_data(change: Callable[[ReadOnlyWire], ReadOnlyWire]) -> Answer:
    """Convert an answer whose `data` is one object."""

    def answer(body: Any) -> Any:
        return {**body, "data": change(body["data"])}

    return answer


def of_each(change: Callable[[ReadOnlyWire], ReadOnlyWire | None]) -> Answer:
    """Convert an answer whose `data` is a list. An item that becomes None is left out."""

    def answer(body: Any) -> Any:
        return {**body, "data": [changed for item in body["data"] if (changed := change(item)) is not None]}

    return answer
