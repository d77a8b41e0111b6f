"""Tar archives that were made to fill the memory: refused before they do."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import resource
import tarfile
import time
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from shim.host.files import file_actions
from shim.host.files.file_actions import Place
from shim.lib.errors import FileTooLarge, InvalidRequest

MEMORY_LIMIT_BYTES = 64 * 2**20
BOUND_S = 20.0


def header(name: str, size: int, kind: bytes = tarfile.REGTYPE) -> bytes:
    info = tarfile.TarInfo(name)
    info.type = kind
    raw = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    raw[124:136] = (b"\x80" + size.to_bytes(11, "big")) if size >= 0 else (b"\xff" + (size + (1 << 88)).to_bytes(11, "big"))
    raw[148:156] = b" " * 8
    raw[148:156] = b"%06o\0 " % sum(raw[:512])
    return bytes(raw[:512])


def zeros(size: int) -> bytes:
    """So many zeros as gzip, without having them all in memory."""
    out = io.BytesIO()
    with gzip.GzipFile(fileobj=out, mode="wb") as file:
        for _ in range(size // 2**20):
            file.write(bytes(2**20))
    return out.getvalue()


def of(*entries: tuple[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, data in entries:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def xz_of_a_large_dictionary(data: bytes) -> bytes:
    """An archive that says that a gigabyte of memory is needed to read it. To make one by its own rules takes seconds."""
    raw = bytearray(lzma.compress(data, filters=[{"id": lzma.FILTER_LZMA2, "dict_size": 2**12}]))
    end = 12 + raw[12] * 4  # of the block's header, which begins after 12 bytes and ends with its checksum
    filter_flags = raw.index(b"\x21\x01\x00", 12, end)
    raw[filter_flags + 2] = 36
    raw[end : end + 4] = zlib.crc32(raw[12:end]).to_bytes(4, "little")
    return bytes(raw)


GIGABYTES = 128 * 2**20

HOSTILE: dict[str, Callable[[], bytes]] = {
    "a name of gigabytes": lambda: gzip.compress(header("x", GIGABYTES, tarfile.GNUTYPE_LONGNAME)) + zeros(GIGABYTES),
    "attributes of gigabytes": lambda: gzip.compress(header("x", GIGABYTES, tarfile.XHDTYPE)) + zeros(GIGABYTES),
    "a file of terabytes": lambda: header("x", 2**42),
    "a file of a negative size": lambda: header("x", -1024) * 4,
    "attributes of a negative size": lambda: header("x", -1024, tarfile.XHDTYPE) * 4,
    "a chain of attributes": lambda: b"".join(header("x", 0, tarfile.XHDTYPE) for _ in range(5000)),
    "xz that wants gigabytes": lambda: xz_of_a_large_dictionary(of(("x", b"1"))),
    "many files": lambda: b"".join(header(str(n), 0) for n in range(file_actions.UNPACK_LIMIT_FILES + 1)),
    "a long name": lambda: of(("a/" * 3000, b"")),
    "no gzip": lambda: b"\x1f\x8b" + b"x" * 100,
    "half of a gzip": lambda: gzip.compress(of(("x", bytes(range(256)) * 100)))[:60],
    "half of an xz": lambda: lzma.compress(of(("x", bytes(range(256)) * 100)))[:60],
}


@pytest.mark.parametrize("name", HOSTILE)
def test_an_archive_is_refused_before_it_takes_memory(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_actions, "UNPACK_LIMIT_FILES", 1000)
    archive = HOSTILE[name]()
    virtual = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.process_time()
    tracemalloc.start()
    try:
        with pytest.raises((FileTooLarge, InvalidRequest)):
            file_actions.unpack(Place(str(tmp_path)), ".", archive)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < MEMORY_LIMIT_BYTES
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - virtual) * 1024 < 4 * MEMORY_LIMIT_BYTES
    assert time.process_time() - began < BOUND_S
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("packed", [bytes, gzip.compress, bz2.compress, lzma.compress])
def test_archives_are_unpacked(tmp_path: Path, packed: Callable[[bytes], bytes]) -> None:
    archive = packed(of(("a.txt", b"a"), ("sub/" + "n" * 200 + ".txt", b"b" * 100_000)))
    told, more = file_actions.unpack(Place(str(tmp_path)), ".", archive)
    assert ([Path(path).stat().st_size for path in told], more) == ([1, 100_000], False)
