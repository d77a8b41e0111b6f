"""Which paths lie in which folders, as they are written, and what their variables stand for."""

from __future__ import annotations

import pytest

from universal.lib.paths import expand, is_in, relative


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


def test_a_path_is_expanded_by_the_environment() -> None:
    environ = {"HOME": "/home/me", "CONFIG": "/c"}
    assert [str(expand(name, environ)) for name in ("~/a/b", "$CONFIG/a", "/etc/a", "$NONE/a")] == [
        "/home/me/a/b", "/c/a", "/etc/a", "None",
    ]  # fmt: skip
