"""Which paths lie in which folders, as they are written."""

from __future__ import annotations

import pytest

from universal.lib.paths import is_in, relative


@pytest.mark.parametrize(
    ("path", "folders", "expected"),
    [
        ("/a", ("/a",), True),
        ("/a/b", ("/x", "/a"), True),
        ("/ab", ("/a",), False),
        ("/a", ("/a/b",), False),
        ("/a", ("/",), True),
        ("/a", (), False),
    ],
)
def test_a_folder_has_itself_and_what_lies_below_it(path: str, folders: tuple[str, ...], *, expected: bool) -> None:
    assert is_in(path, folders) is expected


def test_a_path_outside_is_not_relative() -> None:
    assert (relative("/a/b", "/a"), relative("/ab", "/a")) == ("b", "/ab")
