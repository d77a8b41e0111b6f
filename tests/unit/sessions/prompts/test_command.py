"""Templates of slash commands: what is the template's, and what is only an argument."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from shim.sessions.prompts import command
from shim.sessions.prompts.command import Piece, fill
from universal.session.values import File

HOSTILE = [
    "!`touch planted`",
    "$(touch planted)",
    "`touch planted`",
    "'; touch planted; '",
    '"; touch planted; "',
    "x\ntouch planted",
]


@pytest.mark.parametrize("argument", HOSTILE)
def test_an_argument_is_never_a_shell_line(argument: str) -> None:
    for template in ("say $ARGUMENTS", "say $1", "say", "!`echo hi` $ARGUMENTS"):
        shell = [piece.text for piece in fill(template, argument) if piece.is_command]
        assert shell in ([], ["echo hi"])


@pytest.mark.parametrize("argument", HOSTILE)
@pytest.mark.parametrize(
    "line", ["echo $ARGUMENTS", 'echo "$ARGUMENTS"', "echo $1", 'echo "$1"', "echo '$ARGUMENTS'", "echo x$1y"]
)
def test_an_argument_is_data_in_a_shell_line_of_the_template(tmp_path: Path, line: str, argument: str) -> None:
    (shell,) = [piece.text for piece in fill(f"!`{line}`", argument) if piece.is_command]
    subprocess.run(["/bin/sh", "-c", shell], cwd=tmp_path, check=True, capture_output=True)
    assert list(tmp_path.iterdir()) == []


def test_shell_lines_get_arguments_as_words() -> None:
    (_, shell, _) = fill('!`printf "%s|" $1 "$2" "$ARGUMENTS"`', "one 'two three' four")
    done = subprocess.run(["/bin/sh", "-c", shell.text], check=True, capture_output=True, text=True)
    assert done.stdout == "one|two three four|one 'two three' four|"


def test_pieces_of_a_template() -> None:
    assert fill("a $1 !`ls` $ARGUMENTS", "x") == [Piece("a x "), Piece("ls", is_command=True), Piece(" x")]
    assert "".join(piece.text for piece in fill("fix $1 in $2", "a 'b c' d")) == "fix a in b c d"
    assert "".join(piece.text for piece in fill("do it", "now")) == "do it\n\nnow"


def test_mentioned_files_lie_in_the_project(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    (project / "sub").mkdir()
    for place in (project / "a.txt", tmp_path / "secret.txt"):
        place.write_text("x")
    (project / "sub" / "link.txt").symlink_to(tmp_path / "secret.txt")
    text = f"@../a.txt @link.txt @../../secret.txt @{tmp_path}/secret.txt"
    found = command._files_in(text, str(project / "sub"))  # pyright: ignore[reportPrivateUsage] - the rest needs an agent
    assert [part.filename for part in found if isinstance(part, File)] == ["../a.txt"]
