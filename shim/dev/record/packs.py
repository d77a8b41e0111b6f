"""Recordings on disk: a file each, or all of a folder in one.

The recorder writes FOLDER/SCENE.jsonl. `pack_folder` moves these files into FOLDER/scenes.jsonl.xz, since scenes of a version are
much alike: together they take a thirtieth of the room. A recording has the path FOLDER/SCENE.jsonl in both forms.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

PACK = "scenes.jsonl.xz"
ENDING = ".jsonl"


def compress(texts: Mapping[str, str]) -> bytes:
    """Pack texts by name. Raises ValueError for a text whose last line has no end.

    The first line, in an xz stream of its own, is {NAME: number of lines}; then come the lines. So `xzcat` prints all, and the
    names are read without the rest.
    """
    for name, text in texts.items():
        if text and not text.endswith("\n"):
            raise ValueError(f"{name}: the last line does not end")
    counts = {name: text.count("\n") for name, text in sorted(texts.items())}
    words = "".join(texts[name] for name in counts)
    return b"".join(lzma.compress(stream.encode(), preset=9) for stream in (json.dumps(counts) + "\n", words))


def line_counts(data: bytes) -> dict[str, int]:
    """Return {NAME: number of lines} of packed texts; only the first stream is unpacked."""
    return json.loads(lzma.LZMADecompressor().decompress(data))


def decompress(data: bytes) -> dict[str, str]:
    """Return the texts that `compress` has packed."""
    lines = iter(lzma.decompress(data).decode().split("\n")[1:])
    return {name: "".join(f"{next(lines)}\n" for _ in range(count)) for name, count in line_counts(data).items()}


def recordings_in(folder: Path) -> list[Path]:
    """Return the paths of the recordings of a folder, packed or not, in their order."""
    pack = folder / PACK
    packed = {folder / f"{name}{ENDING}" for name in line_counts(pack.read_bytes())} if pack.exists() else set[Path]()
    return sorted(packed.union(folder.glob(f"*{ENDING}")))


def recordings_below(root: Path) -> list[Path]:
    """Return the paths of the recordings of a folder and of all folders below it, in their order."""
    folders = [root, *(path for path in root.rglob("*") if path.is_dir())]
    return sorted(path for folder in folders for path in recordings_in(folder))


def read_text(path: Path) -> str:
    """Return the text of a recording. A file goes before the packed one. Raises FileNotFoundError."""
    if path.exists():
        return path.read_bytes().decode()
    pack = path.with_name(PACK)
    try:
        return _unpack(pack, pack.stat().st_mtime_ns)[path.name.removesuffix(ENDING)]
    except (FileNotFoundError, KeyError):
        raise FileNotFoundError(path) from None


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a recording, with its head. Raises OSError, ValueError."""
    return [json.loads(line) for line in read_text(path).split("\n") if line]


def pack_folder(folder: Path) -> int:
    """Move the files of a folder into its pack, in place of those of the same name. Returns their number."""
    files = sorted(folder.glob(f"*{ENDING}"))
    if files:
        texts = {path.name.removesuffix(ENDING): read_text(path) for path in recordings_in(folder)}
        (folder / PACK).write_bytes(compress(texts))
    for path in files:
        path.unlink()
    return len(files)


def unpack_folder(folder: Path) -> int:
    """Write the recordings of a folder as files, and remove its pack. Returns their number."""
    for path in recordings_in(folder):
        path.write_bytes(read_text(path).encode())
    (folder / PACK).unlink(missing_ok=True)
    return len(recordings_in(folder))


@lru_cache(maxsize=8)
def _unpack(pack: Path, _changed_ns: int) -> Mapping[str, str]:
    return decompress(pack.read_bytes())
