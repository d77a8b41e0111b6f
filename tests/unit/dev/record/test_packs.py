"""Packed recordings are, byte for byte, those that were recorded, and are read as if they were files."""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shim.dev.record.packs import (
    PACK,
    compress,
    decompress,
    line_counts,
    pack_folder,
    read_rows,
    read_text,
    recordings_below,
    recordings_in,
    unpack_folder,
)

TEXTS = {"text": '{"form": 2}\n{"msg": "Grüße\u2028\\n"}\n', "resume.1": '{"a":1}\r\n\n', "empty": ""}
NAMES = st.text(st.characters(exclude_categories=["Cs"]))
LINES = st.lists(st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"])))


@settings(max_examples=5)  # each example fills two dictionaries of xz, 50 ms
@given(st.dictionaries(NAMES, LINES.map(lambda lines: "".join(f"{line}\n" for line in lines))))
def test_unpacked_texts_are_those_that_were_packed(texts: dict[str, str]) -> None:
    packed = compress(texts)
    assert decompress(packed) == texts
    assert line_counts(packed) == {name: text.count("\n") for name, text in texts.items()}
    assert lzma.decompress(packed).decode().partition("\n")[2] == "".join(texts[name] for name in sorted(texts))


def test_a_line_without_an_end_is_refused() -> None:
    with pytest.raises(ValueError, match="text: the last line does not end"):
        compress({"text": "a\nb"})


def folder_of(tmp_path: Path) -> Path:
    """A folder of recordings in files."""
    folder = tmp_path / "claude" / "2.1"
    folder.mkdir(parents=True)
    for name, text in TEXTS.items():
        (folder / f"{name}.jsonl").write_bytes(text.encode())
    (folder / "adoption.txt").write_text("adopt")
    return folder


def test_recordings_are_read_alike_in_files_and_packed(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    paths = recordings_in(folder)
    assert [path.name for path in paths] == ["empty.jsonl", "resume.1.jsonl", "text.jsonl"]
    for act in (lambda: 0, lambda: pack_folder(folder)):
        act()
        assert recordings_in(folder) == recordings_below(tmp_path) == paths
        assert {path.name.removesuffix(".jsonl"): read_text(path) for path in paths} == TEXTS
        assert read_rows(folder / "text.jsonl") == [{"form": 2}, {"msg": "Grüße\u2028\n"}]
    assert sorted(path.name for path in folder.iterdir()) == ["adoption.txt", PACK]


def test_a_folder_is_unpacked_byte_for_byte(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    assert (pack_folder(folder), pack_folder(folder), unpack_folder(folder)) == (3, 0, 3)
    assert {path.name.removesuffix(".jsonl"): path.read_bytes().decode() for path in folder.glob("*.jsonl")} == TEXTS
    assert not (folder / PACK).exists()


def test_a_new_recording_goes_before_the_packed_one_and_takes_its_place(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    pack_folder(folder)
    (folder / "text.jsonl").write_text("new\n")
    assert read_text(folder / "text.jsonl") == "new\n"
    assert pack_folder(folder) == 1
    assert {path.name.removesuffix(".jsonl"): read_text(path) for path in recordings_in(folder)} == {**TEXTS, "text": "new\n"}


@pytest.mark.parametrize("name", ["untold.jsonl", "nowhere/text.jsonl"])
def test_a_recording_that_is_not_there(tmp_path: Path, name: str) -> None:
    folder = folder_of(tmp_path)
    pack_folder(folder)
    with pytest.raises(FileNotFoundError, match=name):
        read_text(folder / name)
