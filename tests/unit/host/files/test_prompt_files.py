"""Files that a prompt names: what the model gets of them is decided by their bytes, not by the client's word."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from random import Random

import pytest

from shim.host.files.prompt_files import read_part

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 40
PDF = b"%PDF-1.7\n" + b"\0" * 10


def archive() -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as zipped:
        zipped.writestr("a.txt", "hello" * 100)
    return packed.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "mime", "kind"),
    [
        ("logo.png", PNG, "text/plain", "image/png"),
        ("logo", PNG, "application/octet-stream", "image/png"),
        ("paper.pdf", PDF, "text/plain", "application/pdf"),
        ("drawing.svg", b"<svg/>", "image/svg+xml", "image/svg+xml"),
    ],
)
async def test_an_image_is_an_image_whatever_the_client_calls_it(
    tmp_path: Path, name: str, content: bytes, mime: str, kind: str
) -> None:
    (tmp_path / name).write_bytes(content)
    file = await read_part((tmp_path / name).as_uri(), mime, name)
    assert file.attachment is not None
    assert (file.attachment.mime, bool(file.attachment.base64), file.texts) == (kind, True, ())
    assert file.url.startswith(f"data:{kind};base64,")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("data.zip", archive()),
        ("base.sqlite", b"SQLite format 3\0" + b"\x10\0" * 50),
        ("late.txt", b"text " * 4_000 + b"\0\0"),
        ("noise.txt", Random(2).randbytes(4_000).replace(b"\0", b"")),
        ("marked.bin", b"\xff\xfe" + Random(1).randbytes(40_000)),
    ],
)
@pytest.mark.parametrize("mime", ["text/plain", "application/octet-stream"])
async def test_other_binary_content_is_a_sentence(tmp_path: Path, name: str, content: bytes, mime: str) -> None:
    (tmp_path / name).write_bytes(content)
    file = await read_part((tmp_path / name).as_uri(), mime, name)
    assert file.error == f"Cannot read binary file: {tmp_path / name}"
    assert file.attachment is not None
    assert not file.attachment.base64
    assert len(file.attachment.text or "") < 500


@pytest.mark.parametrize(
    "content",
    [
        "grün\n".encode(),
        "grün\n".encode("utf-16"),
        b"gr\xfcn is a colour of leaves\n",
        "\u043f\u0440\u0438\u0432\u0435\u0442\n".encode("cp1251"),
        b"",
    ],
)
async def test_text_is_text(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.txt").write_bytes(content)
    file = await read_part((tmp_path / "a.txt").as_uri(), "text/plain", "a.txt")
    assert file.error is None
    assert file.attachment is not None
    assert "<type>file</type>" in (file.attachment.text or "")
