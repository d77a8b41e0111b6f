"""Lines of agents, spoiled: as bytes and as JSON. A seed gives always the same.

Bytes: cut, doubled, flipped, invalid UTF-8, NUL. JSON: values of another type in the place of any other, keys that are gone or
new, strings with lone surrogates, integers of any size, deep nesting, texts from elsewhere in the same line.
"""

from __future__ import annotations

import copy
import json
from random import Random
from typing import Any

JUNK: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1.5, 2**63, -(2**63), 10**40, 1e308, "", " ", "\0", "\ud83d", "\udce9", "x" * 5000, "é\u2028\n"),
    *(
        [],
        {},
        [[]],
        [None],
        {"": None},
        {"type": "text"},
        {"type": []},
        [{}] * 3,
        "toString",
        "__proto__",
        "NaN",
        "-1",
        "../../x",
    ),
)
DEPTH = 60
BYTES = (
    b"",
    b"\0",
    b"\xff\xfe",
    b"\xed\xa0\xbd",
    b"{",
    b"}",
    b'"',
    b"\\",
    b"[" * 300,
    b"null",
    b"NaN",
    b"1e999",
    b"\r",
    b"\xe2\x80\xa8",
)


def line(random: Random, original: bytes) -> bytes:
    """One line, spoiled in one to three ways. Never with a newline in it: the framer sees to that."""
    for _ in range(random.randint(1, 3)):
        original = _json(random, original) if random.random() < 0.8 else spoiled_bytes(random, original)
    return original.replace(b"\n", b" ")


def spoiled_bytes(random: Random, data: bytes) -> bytes:
    at, to = sorted((random.randint(0, len(data)), random.randint(0, len(data))))
    return random.choice(
        (
            data[:at],
            data[at:],
            data[:at] + data[to:],
            data[:to] + data[at:],
            data[:at] + random.choice(BYTES) + data[at:],
            data[:at] + bytes([random.randint(0, 255)]) + data[at + 1 :],
            data + data,
        )
    )


def _json(random: Random, data: bytes) -> bytes:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return spoiled_bytes(random, data)
    value = _spoil(random, copy.deepcopy(value))
    return json.dumps(value).encode()


def _places(value: Any) -> list[tuple[Any, Any]]:
    """(container, key) of all values inside."""
    found: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting:
        outer = waiting.pop()
        inner = list(outer.items()) if isinstance(outer, dict) else list(enumerate(outer)) if isinstance(outer, list) else []
        found += [(outer, key) for key, _ in inner]
        waiting += [item for _, item in inner]
    return found


def _spoil(random: Random, value: Any) -> Any:
    places = _places(value)
    if not places or random.random() < 0.05:
        return random.choice(JUNK)
    outer, key = random.choice(places)
    match random.randint(0, 5):
        case 0 if isinstance(outer, dict):
            del outer[key]
        case 1 if isinstance(outer, dict):
            outer[random.choice(("type", "id", "method", "error", "x", "\ud800"))] = random.choice(JUNK)
        case 2:
            other, name = random.choice(places)
            outer[key] = copy.deepcopy(other[name])
        case 3:
            inner = outer[key]
            for _ in range(random.randint(1, DEPTH)):
                inner = [inner] if random.random() < 0.5 else {"type": inner}
            outer[key] = inner
        case 4 if isinstance(outer, list):
            outer *= random.randint(0, 3)
        case _:
            outer[key] = copy.deepcopy(random.choice(JUNK))
    return value
