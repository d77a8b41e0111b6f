"""Whatever path a client names, nothing outside of the project's directory is listed, read or looked for."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shim.host.files import contents as files
from shim.host.files.roots import require_blocking, within
from shim.lib.errors import InvalidRequest, OutsideRoots

SECRET = "the secret that lies outside"
INSIDE = "the file that lies inside"
NAMES = (
    "a",
    "b.txt",
    "deep",
    "Deep",
    "DEEP",
    "in",
    "out",
    "out-file",
    "loop",
    "chain",
    "project",
    "home",
    "secret",
    "",
    " ",
    ".",
    "..",
)
TRICKS = (
    *(
        "...",
        "....",
        ".. ",
        " ..",
        "..;",
        "%2e%2e",
        "%2e%2e%2f",
        "..%2f",
        "..%5c",
        "..\\",
        "\\..\\",
        "..\\..\\home\\secret",
        "\\\\?\\C:",
    ),
    *(
        "C:",
        "c:\\",
        "\\\\server\\share",
        "CON",
        "NUL",
        "file:",
        "~",
        "$HOME",
        "a\0",
        "\u2024\u2024",
        "．．",
        "..\u200b",
        "\udce9",
        "\x7f",
    ),
)
SEPARATORS = ("/", "//", "/./", "\\")


@pytest.fixture(scope="module")
def project() -> Iterator[Path]:
    """A project with links to inside and outside, a secret beside it, and a neighbour whose name begins with its name."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "project")
        (root / "deep" / "a").mkdir(parents=True)
        for place in ("b.txt", "deep/b.txt", "deep/a/b.txt"):
            (root / place).write_text(INSIDE)
        for outside in ("home", "project-too", "PROJECT"):
            Path(folder, outside).mkdir()
            Path(folder, outside, "secret").write_text(SECRET)
            Path(folder, outside, "b.txt").write_text(SECRET)
        (root / "in").symlink_to("deep")
        (root / "out").symlink_to("../home")
        (root / "deep" / "out").symlink_to(Path(folder, "home"))
        (root / "out-file").symlink_to("../home/secret")
        (root / "chain").symlink_to("in/out")
        (root / "loop").symlink_to("loop")
        yield root


paths = st.one_of(
    st.tuples(
        st.sampled_from(("", "/", "./", "../", "PROJECT/", "PROJECT-too/", "HOME/", "project/")),
        st.lists(st.tuples(st.sampled_from(NAMES + TRICKS), st.sampled_from(SEPARATORS)), max_size=8),
    ).map(lambda made: made[0] + "".join(name + separator for name, separator in made[1])),
    st.text(max_size=40),
)


def real_path(path: str, project: Path) -> str:
    """PROJECT and HOME at the beginning are the real places."""
    return path.replace("PROJECT", str(project), 1).replace("HOME", str(project.parent / "home"), 1)


@given(path=paths)
@example("../home/secret")
@example("in/../../home/secret")
@example("chain/secret")
@example("deep/../out/secret")
@example("PROJECT/../home/secret")
@example("PROJECT-too/secret")
@example("x" * 5000)
@example("a/" * 3000)
def test_a_place_is_inside_or_refused(project: Path, path: str) -> None:
    try:
        place = files.confine(str(project), real_path(path, project))
    except (InvalidRequest, UnicodeEncodeError):
        return
    base = os.path.realpath(project)
    assert os.path.commonpath([base, os.path.realpath(place)]) == base


@given(path=paths)
@example("../home/b.txt")
@example("out/b.txt")
@example("out-file")
@example("loop")
@example("PROJECT/chain/b.txt")
def test_files_outside_the_roots_are_not_read_or_listed(project: Path, path: str) -> None:
    for ask in (files.content, files.list_folder):
        try:
            found = asyncio.run(ask(str(project), real_path(path, project)))
        except InvalidRequest as error:
            told = str(error)
        else:
            told = repr(found)
            assert "'secret'" not in told
        assert SECRET not in told


@given(path=paths)
def test_an_allow_list_is_the_same_rule(project: Path, path: str) -> None:
    """`within` says yes only where the resolved path begins with a root; `require_blocking` refuses all else."""
    root = os.path.realpath(project)
    asked = os.path.join(root, real_path(path, project)).replace("\0", "")
    try:
        inside = within(asked, [root])
    except (ValueError, OSError):
        return
    assert inside is (os.path.commonpath([root, os.path.realpath(asked)]) == root)
    assert within(asked, [])
    if not inside:
        with pytest.raises(OutsideRoots, match="outside of the directories"):
            require_blocking(asked, [root])
