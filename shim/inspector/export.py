"""A session as a folder of files in an archive, for bug reports and as a test's fixture. Pure.

    session.json      what it is: agent, versions, counts
    native.jsonl      {sequence, raw}: what the agent has sent, as it came
    universal.jsonl   the journal, without raw
    opencode.jsonl    {sequence, type, properties}: what OpenCode's clients were sent
    README.txt        what this is, and to look through it before it is given away

Directories become `/project` and `/home/user`, what looks like a secret `<redacted>`. What people and agents said stays: it
is what a bug is about. Nobody can promise that nothing private is left; the README says so.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from shim.inspector.trace import Row
from shim.redaction import SECRET_NAME
from shim.redaction import clean as redact
from universal.events import UniversalEvent

README = """A session of opencode-shim, for a bug report or a test.

native.jsonl     what the agent has sent
universal.jsonl  the events that it became
opencode.jsonl   what OpenCode's clients were sent for them

Paths of the project and of the home directory were replaced, and so was what looks like a key, a token or a password.
Everything that was said in the session is in here: look through it before you give it away.
"""
_SUSPECT = (
    *("sk-", "pk-", "rk-", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xox", "hf_", "sgp_", "akia", "aiza"),
    *("eyj", "bearer", "basic", "://", "password", "passwd", "passphrase", "secret", "token", "apikey", "api_key", "api-key"),
    *("accesskey", "access_key", "access-key", "privatekey", "private_key", "private-key", "authori", "cookie", "credential"),
    "input_value",
)
"""A line that has none of these, in small letters, has nothing for `shim.redaction`; a test holds them together."""
REDACTED = "<redacted>"
_THINGS = {"item": {"item_id"}} | dict.fromkeys(("item_id", "turn_id", "permission_id", "question_id", "part_index"), True)
MIN_PATH_LENGTH = 4
"""Shorter paths (`/`, `/a`) are in too many words to be replaced."""


def cleaner(directory: str, home: str, secrets: Iterable[str] = ()) -> Mapping[str, str]:
    """Texts to be replaced, longest first; `secrets` are known ones."""
    found = {**dict.fromkeys(secrets, REDACTED), home: "/home/user", directory: "/project"}
    return {path: found[path] for path in sorted(found, key=len, reverse=True) if len(path) >= MIN_PATH_LENGTH}


def clean(value: Any, paths: Mapping[str, str], name: str = "") -> Any:
    """The same JSON value without paths and secrets."""
    if isinstance(value, str):
        if name and SECRET_NAME.search(name):
            return REDACTED
        for path, instead in paths.items():
            value = value.replace(path, instead)
        return redact(value)
    if isinstance(value, Mapping):
        return {clean(key, paths): clean(inner, paths, str(key)) for key, inner in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, (list, tuple)):
        return [clean(inner, paths, name) for inner in cast("Sequence[Any]", value)]
    return value


def archive(rows: Iterable[Row], about: Mapping[str, Any], paths: Mapping[str, str]) -> bytes:
    """A zip archive. In: all rows of the session."""
    native: list[str] = []
    universal: list[str] = []
    opencode: list[str] = []
    line: Any = None
    made: set[tuple[str, ...]] = set()
    for row in rows:
        event = row.event
        universal.append(_line(event.model_dump(by_alias=True, exclude={"raw"}) | {"raw": None}, paths))
        if event.raw is not None:
            what = _subject(event)
            if event.raw != line or what in made:
                native.append(_line({"sequence": event.sequence, "raw": event.raw}, paths))
                line, made = event.raw, set()
            made.add(what)
        opencode += [_line({"sequence": event.sequence, **one}, paths) for one in row.opencode]
    files = {
        "README.txt": README,
        "session.json": json.dumps(clean(dict(about), paths), indent=1) + "\n",
        "native.jsonl": "".join(native),
        "universal.jsonl": "".join(universal),
        "opencode.jsonl": "".join(opencode),
    }
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name, text in files.items():
            zipped.writestr(zipfile.ZipInfo(name), text.encode(), zipfile.ZIP_DEFLATED)
    return out.getvalue()


def _subject(event: UniversalEvent) -> tuple[str, ...]:
    """What an event says of which thing. A line of an agent makes several events, each with the line as its raw payload, and says
    nothing twice. So an equal payload that does is a line of its own.
    """
    data = event.data.model_dump(include=_THINGS)
    item = data.get("item") or data
    return event.type, *(str(item.get(name)) for name in ("item_id", "turn_id", "permission_id", "question_id", "part_index"))


def _line(value: Any, paths: Mapping[str, str]) -> str:
    """One line of JSON. Each text is looked through only if the line holds anything that may be a path or a secret."""
    line = json.dumps(value)
    small = line.lower()
    if any(word in small for word in _SUSPECT) or any(json.dumps(path)[1:-1] in line for path in paths):
        line = json.dumps(clean(value, paths))
    return line + "\n"
