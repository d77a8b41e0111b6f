"""The table of Pi's tools, and of `question`, which `gate.ts` adds.

Source of the paths: `dist/core/tools/path-utils.js` of 0.87.1.
"""

from __future__ import annotations

import re
import unicodedata
from urllib.parse import unquote

from universal.tools.row import Row

_PATH = {"path": "filePath"}
_BLANKS = re.compile(r"[\u00A0\u2000-\u200A\u202F\u205F\u3000]")
_HALF_OF_THE_DAY = re.compile(r" (AM|PM)\.", re.I)


def spellings(path: str) -> tuple[str, ...]:
    """The paths that Pi may open for a path of a call.

    It replaces Unicode blanks, and takes away an `@` before it. If there is no such file, it reads the names that macOS gives to
    screenshots, and those with composed letters or with straight quotes.
    """
    plain = _BLANKS.sub(" ", path).removeprefix("@")
    if plain.startswith("file://"):
        plain = unquote(plain.removeprefix("file://").removeprefix("localhost"))
    decomposed = unicodedata.normalize("NFD", plain)
    others = (
        _HALF_OF_THE_DAY.sub("\u202f\\1.", plain),
        decomposed,
        plain.replace("'", "\u2019"),
        decomposed.replace("'", "\u2019"),
    )
    return tuple(dict.fromkeys((plain, path, *others)))


TOOLS: dict[str, Row] = {
    "read": Row("read", _PATH, spellings=spellings),
    "edit": Row("edit", {**_PATH, "oldText": "oldString", "newText": "newString"}, spellings=spellings),
    "write": Row("write", _PATH, spellings=spellings),
    "bash": Row("bash"),
    "grep": Row("grep", {"glob": "include"}, spellings=spellings),
    "find": Row("glob", spellings=spellings),
    "ls": Row("list", spellings=spellings),
    "question": Row("question"),
}
