"""Goldens on disk, and what differs from them.

`compat_fixtures/goldens/AGENT/VERSION.jsonl.xz` holds what clients saw of each recording of a version: scenes are much alike, so
together they take a third of the room (`shim.dev.record.packs`).
`differences.toml` beside them lists differences that are wanted; one that no recording shows any more is an error.
"""

from __future__ import annotations

import difflib
import json
import subprocess
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any

from shim.dev.record.packs import compress, decompress, line_counts

GOLDENS = Path(__file__).parents[2] / "compat_fixtures" / "goldens"
DIFFERENCES = GOLDENS / "differences.toml"
ENDING = ".jsonl.xz"
SHOWN_CHARS = 200
_MISSING = object()


@dataclass(frozen=True, slots=True)
class Difference:
    """One field that is not as it was. `before`, `after`: JSON texts, empty for what is not there."""

    recording: str
    place: str
    path: str
    before: str
    after: str

    def __str__(self) -> str:
        lines = (f"    - {self.before[:SHOWN_CHARS]}", f"    + {self.after[:SHOWN_CHARS]}")
        return "\n".join([f"  {self.place}  {self.path}", *lines])


@dataclass(frozen=True, slots=True)
class AcceptedDifference:
    """A difference that is wanted: globs for the recording, the place and the path of the field, and the reason."""

    recording: str
    place: str
    path: str
    reason: str

    def covers(self, difference: Difference) -> bool:
        """Whether this difference is meant."""
        return (
            fnmatchcase(difference.recording, self.recording)
            and fnmatchcase(difference.place, self.place)
            and fnmatchcase(difference.path, self.path)
        )


def accepted_differences(listed: Path | None = None) -> list[AcceptedDifference]:
    """The listed differences; None: those from goldens. Raises ValueError for one without a reason."""
    rows = tomllib.loads((listed or DIFFERENCES).read_text("utf-8")).get("difference", [])
    for row in rows:
        if not row.get("reason", "").strip():
            raise ValueError(f"{DIFFERENCES.name}: a difference has no reason: {row}")
    return [
        AcceptedDifference(row.get("recording", "*"), row.get("place", "*"), row.get("path", "*"), row["reason"]) for row in rows
    ]


def folder_of(name: str) -> str:
    """The agent and the version of a recording."""
    return name.rpartition("/")[0]


def path_of(folder: str) -> Path:
    """Where the goldens of a version lie."""
    return GOLDENS / f"{folder}{ENDING}"


def folders_on_disk() -> list[str]:
    """Versions that have goldens."""
    return sorted(str(path.relative_to(GOLDENS))[: -len(ENDING)] for path in GOLDENS.rglob(f"*{ENDING}"))


def names_on_disk() -> list[str]:
    """Recordings that have a golden."""
    return sorted(f"{folder}/{scene}" for folder in folders_on_disk() for scene in line_counts(path_of(folder).read_bytes()))


def write(folder: str, scenes: Mapping[str, Sequence[str]]) -> None:
    """Store the goldens of all scenes of a version; equal ones are left alone."""
    path = path_of(folder)
    if path.exists() and dict(_scenes(path)) == {scene: list(lines) for scene, lines in scenes.items()}:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(compress({scene: "".join(f"{line}\n" for line in lines) for scene, lines in scenes.items()}))
    _scenes.cache_clear()


def read(name: str) -> list[str]:
    """The lines of a golden. Raises FileNotFoundError."""
    scenes = _scenes(path_of(folder_of(name)))
    if (scene := name.rpartition("/")[2]) not in scenes:
        raise FileNotFoundError(name)
    return scenes[scene]


def scenes_of(folder: str) -> dict[str, list[str]]:
    """All goldens of a version, by scene; none if it has no file."""
    return dict(_scenes(path_of(folder))) if path_of(folder).exists() else {}


def folders_changed_since(commit: str) -> list[str]:
    """Versions whose goldens are not those of a commit."""
    changed = _git("diff", "--name-only", "--relative", commit, "--", ".").decode().splitlines()
    new = _git("ls-files", "--others", "--exclude-standard", "--", ".").decode().splitlines()
    return sorted({name[: -len(ENDING)] for name in changed + new if name.endswith(ENDING)})


def scenes_at(commit: str, folder: str) -> dict[str, list[str]]:
    """All goldens of a version in a commit, by scene; none if it had no file."""
    name = f"{folder}{ENDING}"
    if not _git("ls-tree", "--name-only", commit, "--", name):
        return {}
    return _unpack(_git("show", f"{commit}:./{name}"))


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=GOLDENS, check=True, capture_output=True).stdout


@lru_cache(maxsize=1)
def _scenes(path: Path) -> Mapping[str, list[str]]:
    return _unpack(path.read_bytes())


def _unpack(data: bytes) -> dict[str, list[str]]:
    return {scene: text.split("\n")[:-1] for scene, text in decompress(data).items()}


def compare(name: str, before: Sequence[str], after: Sequence[str]) -> list[Difference]:
    """Every field that differs, in the order of the golden."""
    if list(before) == list(after):
        return []
    old, new = _by_place(before), _by_place(after)
    found: list[Difference] = []
    for place in dict.fromkeys((*old, *new)):
        for path, was, is_ in _compare_lists(old.get(place, []), new.get(place, [])):
            found.append(Difference(name, place, path, _text(was), _text(is_)))
    return found


def _by_place(lines: Sequence[str]) -> dict[str, list[Any]]:
    values: list[Any] = []
    places: dict[str, list[Any]] = defaultdict(list)
    for line in lines:
        place, value, *earlier = json.loads(line)
        values.append(values[earlier[0]] if earlier else value)
        places[place].append(values[-1])
    return places


Changed = tuple[str, Any, Any]


def _compare_lists(before: list[Any], after: list[Any]) -> Iterator[Changed]:
    """Events or answers of one place; those that are new or gone are told as such, and do not shift the others."""
    old, new = [_text(value) for value in before], [_text(value) for value in after]
    for kind, i, j, k, m in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            continue
        for n in range(max(j - i, m - k)):
            was = before[i + n] if i + n < j else _MISSING
            is_ = after[k + n] if k + n < m else _MISSING
            if _MISSING in (was, is_) or _kind(was) != _kind(is_):
                if was is not _MISSING:
                    yield f"[{i + n}] -{_kind(was)}", was, _MISSING
                if is_ is not _MISSING:
                    yield f"[{k + n}] +{_kind(is_)}", _MISSING, is_
            else:
                yield from _fields(f"[{i + n}] {_kind(was)}".rstrip(), was, is_)


def _kind(value: Any) -> str:
    return str(value.get("type", "")) if isinstance(value, dict) else ""


def _fields(path: str, before: Any, after: Any) -> Iterator[Changed]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted({*before, *after}):
            yield from _fields(f"{path}.{key}", before.get(key, _MISSING), after.get(key, _MISSING))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, (was, is_) in enumerate(zip(before, after, strict=True)):
            yield from _fields(f"{path}.{number}", was, is_)
    elif before is _MISSING or after is _MISSING or before != after or type(before) is not type(after):
        yield path, before, after


def _text(value: Any) -> str:
    return "" if value is _MISSING else json.dumps(value, sort_keys=True, ensure_ascii=False)
