"""What a dialect says at the edge, as rows: routes that R has elsewhere, and what is renamed in requests and answers. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from shim.faces.opencode2.events import Wire
from shim.operations import AskedField
from universal.jsonvalue import obj


class Alias(NamedTuple):
    """A route that R has elsewhere. `operation` is R's; placeholders are named as in R's path, or as R's query.

    `name`: by it the rows of requests and answers are found, if it is not the operation's.
    """

    method: str
    path: str
    operation: str
    name: str = ""

    @property
    def row(self) -> str:
        """The key of its rows."""
        return self.name or self.operation


class NoContent(NamedTuple):
    """An answer without a body: 204."""


Ask: TypeAlias = Callable[[AskedField], AskedField]
Answer: TypeAlias = Callable[[Any], Any]


def rename_body(**names: str) -> Ask:
    """A request whose body has other names: `renaming(reply="decision")` makes R's `decision` from its `reply`."""

    def rename(asked: AskedField) -> AskedField:
        body = obj(asked.body)  # what is no object is refused by the operation itself
        return asked._replace(body={names.get(key, key): value for key, value in body.items()}) if body else asked

    return rename


def leaving_out(*kinds: str) -> Ask:
    """A list of messages without those of these types, which the client's build has not: a page of it is full all the same."""
    return lambda asked: asked._replace(query={**asked.query, "without": ",".join(sorted(kinds))})


def of_data(change: Callable[[Wire], Wire]) -> Answer:
    """An answer whose `data` is one thing."""

    def answer(said: Any) -> Any:
        return {**said, "data": change(said["data"])}

    return answer


def of_each(change: Callable[[Wire], Wire | None]) -> Answer:
    """An answer whose `data` is a list; what becomes None is left out."""

    def answer(said: Any) -> Any:
        return {**said, "data": [made for one in said["data"] if (made := change(one)) is not None]}

    return answer
