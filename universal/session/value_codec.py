"""Typed values of a session as JSON values and back, by their type hints. Pure.

A dataclass becomes the list of its fields, so nothing that an agent said can be taken for a type. Values of JSON objects
(`Fields`) are kept as they are. What is read back must have been written by code with the same `shape_of`.
"""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from operator import attrgetter
from types import NoneType, UnionType
from typing import Any, Generic, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel

from universal.session.entries import Entry
from universal.session.messages import Message
from universal.session.pages import PagedDict

T = TypeVar("T")
Convert = Callable[[Any], Any]

PLAIN = (str, int, float, bool, NoneType, object, Any)
"""Types whose values are JSON already."""
LEVEL = 1
"""Of compression: one third of the time of the usual one, a sixth more bytes."""


class Shape(NamedTuple):
    """How the values of a type are written and read. None: as they are."""

    write: Convert | None
    read: Convert | None


def _to_none(_: Any) -> None:
    return None


AS_IS = Shape(None, None)


def shape(hint: Any) -> Shape:
    """The shape of a type hint. One that cannot be stored has a shape that raises TypeError for each value."""
    origin, args = get_origin(hint), get_args(hint)
    if hint in PLAIN or origin is Literal:
        return AS_IS
    if isinstance(hint, type) and issubclass(hint, PagedDict):
        return _paged_shape(hint)  # pyright: ignore[reportUnknownArgumentType] - of anything
    if origin in (Union, UnionType):
        return _union(args)
    if origin in (Mapping, dict):
        return _mapping(args[0], shape(args[1]))
    if origin is tuple and args[-1] is not Ellipsis:
        return _row([shape(arg) for arg in args], tuple)
    if origin in (tuple, list, set, frozenset):
        return _collection(origin, shape(args[0]))
    if isinstance(hint, type) and is_dataclass(hint):
        return _dataclass(hint)
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        return _model(hint)
    return _unknown(hint)


def _paged_shape(kind: type[PagedDict[Any]]) -> Shape:
    """The shape of a session's messages and entries, which are stored beside it: an empty dict."""

    def empty(_: Any) -> PagedDict[Any]:
        return kind()

    return Shape(_to_none, empty)


def _model(kind: type[BaseModel]) -> Shape:
    def write(value: BaseModel) -> Any:
        return value.model_dump(mode="json")

    return Shape(write, kind.model_validate)


def _unknown(hint: Any) -> Shape:
    def refuse(_: Any) -> Any:
        raise TypeError(f"{hint} has no stored form")

    return Shape(refuse, refuse)


def _collection(kind: type[Any], item: Shape) -> Shape:
    write, read = item.write, item.read

    def write_all(values: Any) -> list[Any]:
        rows = list(values) if write is None else [write(value) for value in values]
        return sorted(rows) if kind in (set, frozenset) else rows

    def read_all(values: Any) -> Any:
        return kind(values if read is None else [read(value) for value in values])

    return Shape(write_all, read_all)


def _mapping(key: Any, value: Shape) -> Shape:
    if key is str and value == AS_IS:
        return AS_IS
    write, read = value.write or _identity, value.read or _identity

    def write_object(values: Mapping[str, Any]) -> dict[str, Any]:
        return {name: write(item) for name, item in values.items()}

    def read_object(values: Mapping[str, Any]) -> dict[str, Any]:
        return {name: read(item) for name, item in values.items()}

    def write_pairs(values: Mapping[Any, Any]) -> list[list[Any]]:
        return [[name, write(item)] for name, item in values.items()]

    def read_pairs(pairs: Sequence[list[Any]]) -> dict[Any, Any]:
        return {name: read(item) for name, item in pairs}

    return Shape(write_object, read_object) if key is str else Shape(write_pairs, read_pairs)


def _identity(value: Any) -> Any:
    return value


def _row(items: Sequence[Shape], make: Convert) -> Shape:
    writes = [(at, item.write) for at, item in enumerate(items) if item.write is not None]
    reads = [(at, item.read) for at, item in enumerate(items) if item.read is not None]

    def write(values: Sequence[Any]) -> list[Any]:
        row = list(values)
        for at, convert in writes:
            row[at] = convert(row[at])
        return row

    def read(values: Sequence[Any]) -> Any:
        if len(values) != len(items):
            raise ValueError(f"{len(values)} values, not {len(items)}")
        row = list(values)
        for at, convert in reads:
            row[at] = convert(row[at])
        return make(row)

    return Shape(write, read)


def _union(args: Sequence[Any]) -> Shape:
    """A type or None; or several dataclasses, which are told apart by their names."""
    kinds = [arg for arg in args if arg is not NoneType]
    if len(kinds) > 1 and all(map(is_dataclass, kinds)):
        inner = _tagged_shape({kind.__name__: _dataclass(kind) for kind in kinds})
    elif len(kinds) > 1:
        inner = AS_IS if all(shape(kind) == AS_IS for kind in kinds) else _unknown(args)
    else:
        inner = shape(kinds[0])
    write, read = inner
    if write is None or read is None or len(kinds) == len(args):
        return inner
    return Shape(_unless_none(write), _unless_none(read))


def _unless_none(convert: Convert) -> Convert:
    def convert_value(value: Any) -> Any:
        return None if value is None else convert(value)

    return convert_value


def _tagged_shape(kinds: Mapping[str, Shape]) -> Shape:
    writes = {name: kind.write or _identity for name, kind in kinds.items()}
    reads = {name: kind.read or _identity for name, kind in kinds.items()}

    def write(value: Any) -> list[Any]:
        name = type(value).__name__
        return [name, writes[name](value)]

    def read(value: list[Any]) -> Any:
        return reads[value[0]](value[1])

    return Shape(write, read)


def _dataclass(kind: type[Any]) -> Shape:
    """Looked at when it is first used: a type may hold values of its own type."""

    def write(value: Any) -> list[Any]:
        return _fields(kind)[0](value)

    def read(row: list[Any]) -> Any:
        return _fields(kind)[1](row)

    return Shape(write, read)


@cache
def _fields(kind: type[Any]) -> tuple[Convert, Convert]:
    hints = get_type_hints(kind)
    names = [field.name for field in fields(kind)]
    values = attrgetter(*names, "__class__")  # two names at least, so that it gives a tuple

    def make(row: list[Any]) -> Any:
        return kind(*row)

    write, read = _row([shape(hints[name]) for name in names], make)
    assert write is not None and read is not None

    def write_fields(value: Any) -> list[Any]:
        return write(values(value)[:-1])

    return write_fields, read


_MODULES = re.compile(r"(\w+\.)+")
"""The modules before a class's name in the text of a type."""


def shape_of(*kinds: Any) -> str:
    """A hash of the fields of these dataclasses and of all that they hold. Values written under another hash cannot be read.

    The modules of the classes are not in the hash, so that a class can be moved.
    """
    waiting, shapes = list(kinds), dict[str, str]()
    while waiting:
        hint = waiting.pop()
        waiting += get_args(hint)
        if isinstance(hint, type) and is_dataclass(hint) and hint.__name__ not in shapes:
            hints = get_type_hints(hint)
            shapes[hint.__name__] = ", ".join(
                f"{field.name}: {_MODULES.sub('', str(hints[field.name]))}" for field in fields(hint)
            )
            waiting += hints.values()
    return hashlib.sha256(json.dumps(shapes, sort_keys=True).encode()).hexdigest()[:16]


def encode(value: Any, hint: Any) -> str:
    """A value of a type as JSON text. Raises TypeError or ValueError for what has no stored form."""
    write = shape(hint).write or _identity
    return json.dumps(write(value), separators=(",", ":"))


def read(text: str | bytes, hint: Any) -> Any:
    """Read `encode`'s text back. Raises ValueError, TypeError, KeyError, IndexError or AttributeError for anything else."""
    return (shape(hint).read or _identity)(json.loads(text))


class ValuePacker(Generic[T]):
    """Values of a type as compressed JSON."""

    def __init__(self, hint: Any) -> None:
        self._write, self._read = (convert or _identity for convert in shape(hint))

    def encode(self, value: T) -> str:
        """One value as text. Raises TypeError or ValueError for a value that has no stored form."""
        return json.dumps(self._row(value), separators=(",", ":"))

    def _row(self, value: T) -> Any:
        return self._write(value)

    def pack(self, texts: Sequence[str]) -> bytes:
        """Pack encoded values as one compressed body."""
        return zlib.compress(f"[{','.join(texts)}]".encode(), LEVEL)

    def unpack(self, body: bytes) -> list[T]:
        """The values of a body. Raises as `read`, and zlib.error."""
        return [self._read(row) for row in json.loads(zlib.decompress(body))]


class MessagePacker(ValuePacker[Message]):
    """A packer of messages without `known_by`, which their page has."""

    _KNOWN_AT = [field.name for field in fields(Message)].index("known_by")

    def _row(self, value: Message) -> Any:
        row = self._write(value)
        row[self._KNOWN_AT] = []
        return row


MESSAGES = MessagePacker(Message)
ENTRIES: ValuePacker[Entry] = ValuePacker(Entry)
