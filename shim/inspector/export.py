"""Exports a session as a zip archive, for bug reports and test fixtures. Pure.

    session.json      agent, versions, counts
    native.jsonl      {sequence, raw}: the agent's payloads, unchanged
    universal.jsonl   the journal, without raw
    opencode.jsonl    {sequence, type, properties}: the events of OpenCode's clients
    README.txt        the contents, and a warning to review them before sharing

Directories become `/project` and `/home/user`, and possible secrets `<redacted>`. The conversation stays, because the bug is in
it. Private data may remain, as the README says.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from shim.inspector.trace import Row
from shim.lib.redaction import SECRET_NAME
from shim.lib.redaction import clean as redact
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
"""Words in lower case, of which a line must contain one for `shim.lib.redaction` to change it. A test compares the two."""
REDACTED = "<redacted>"
_THINGS = {"item": {"item_id"}} | dict.fromkeys(("item_id", "turn_id", "permission_id", "question_id", "part_index"), True)
MIN_PATH_LENGTH = 4
"""Minimum characters of a path to replace. Shorter ones (`/`, `/a`) occur in too many words."""


def cleaner(directory: str, home: str, secrets: Iterable[str] = ()) -> Mapping[str, str]:
    """Map texts to their replacements, longest first. In: `secrets`, known secret values."""
    texts = {**dict.fromkeys(secrets, REDACTED), home: "/home/user", directory: "/project"}
    return {path: texts[path] for path in sorted(texts, key=len, reverse=True) if len(path) >= MIN_PATH_LENGTH}


def clean(value: Any, paths: Mapping[str, str], name: str = "") -> Any:
    """Replace paths and secrets in a JSON value."""
    if isinstance(value, str):
        if name and SECRET_NAME.search(name):
            return REDACTED
        for path, replacement in paths.items():
            value = value.replace(path, replacement)
        return redact(value)
    if isinstance(value, Mapping):
        return {clean(key, paths): clean(inner, paths, str(key)) for key, inner in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, (list, tuple)):
        return [clean(inner, paths, name) for inner in cast("Sequence[Any]", value)]
    return value


def archive(rows: Iterable[Row], about: Mapping[str, Any], paths: Mapping[str, str]) -> bytes:
    """Build the zip archive. In: all rows of the session."""
    native: list[str] = []
    universal: list[str] = []
    opencode: list[str] = []
    line: Any = None
    subjects: set[tuple[str, ...]] = set()
    for row in rows:
        event = row.event
        universal.append(_line(event.model_dump(by_alias=True, exclude={"raw"}) | {"raw": None}, paths))
        if event.raw is not None:
            subject = _subject(event)
            if event.raw != line or subject in subjects:
                native.append(_line({"sequence": event.sequence, "raw": event.raw}, paths))
                line, subjects = event.raw, set()
            subjects.add(subject)
        opencode += [_line({"sequence": event.sequence, **output}, paths) for output in row.opencode]
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
    """Return the type of an event and the ids that it concerns.

    One line of an agent becomes several events with the same raw payload and different subjects. So an equal payload with a
    repeated subject is another line.
    """
    data = event.data.model_dump(include=_THINGS)
    item = data.get("item") or data
    return event.type, *(str(item.get(name)) for name in ("item_id", "turn_id", "permission_id", "question_id", "part_index"))


def _line(value: Any, paths: Mapping[str, str]) -> str:
    """Encode a line of JSON. It cleans the value only if the line may contain a path or a secret."""
    line = json.dumps(value)
    small = line.lower()
    if any(word in small for word in _SUSPECT) or any(json.dumps(path)[1:-1] in line for path in paths):
        line = json.dumps(clean(value, paths))
    return line + "\n"
