"""Finds the commands that a shell line runs and the paths that it names. Pure.

A line is *understood* if it is proved: `universal.shell.proof` reads a small closed subset that bash, dash and zsh read in the
same way. Any other line is not understood, and is never allowed automatically. Its commands are found as far as possible by
`universal.shell.finder`, so that a deny still holds. docs/permissions.md says what is in the subset and what follows for a
pattern. The modules of this package are imported with the first line.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass

__all__ = ["ShellLine", "is_read_only", "parse_shell_line"]


@dataclass(frozen=True, slots=True)
class ShellLine:
    """The commands and paths of a shell line. Paths are relative to where the line starts, with `~` and `..` as they are written.

    `commands`: the text of each command that the line may run, each once, in order; empty for `cd x`, which needs no permission.
    `paths`: files and directories that path commands and redirections name. A directory ends with `/`.
    `paths_known`: False if a path depends on what is known only when the line runs.
    `writes`: files that redirections write. `writes_known`: False if there may be others.
    `repositories`: directories other than its own in which the line runs git, whose configuration there may run programs.
    `hidden`: texts of commands that programs of an understood line perhaps run: `uv run git push` is `git push` too.
    `maybe_read`, `maybe_written`: files among the arguments of programs of which no more is known.
    `walks`: what may be a folder of which a program shows or copies all files.
    A caller must look at both the normalised and the real path.
    """

    commands: tuple[str, ...]
    understood: bool
    paths: tuple[str, ...] = ()
    paths_known: bool = True
    writes: tuple[str, ...] = ()
    writes_known: bool = True
    repositories: tuple[str, ...] = ()
    reason: str = ""
    """Why the line is not understood."""
    hidden: tuple[str, ...] = ()
    maybe_read: tuple[str, ...] = ()
    maybe_written: tuple[str, ...] = ()
    walks: tuple[str, ...] = ()


def parse_shell_line(line: str) -> ShellLine:
    """Read a line as bash, dash and zsh would."""
    from universal.shell.finder import find  # late: no start waits for the grammar
    from universal.shell.proof import NotProvedError, Proof

    proof = Proof()
    try:
        proof.read(line)
    except NotProvedError as error:
        found = find(line)
        return ShellLine(
            found.commands,
            False,
            found.paths,
            False,
            found.writes,
            not found.has_redirection,
            reason=str(error),
            maybe_written=found.paths,
        )
    return ShellLine(
        tuple(dict.fromkeys(proof.commands)),
        True,
        tuple(dict.fromkeys(proof.paths)),
        proof.paths_known,
        tuple(dict.fromkeys(proof.writes)),
        proof.writes_known,
        repositories=tuple(dict.fromkeys(proof.repositories)),
        hidden=tuple(dict.fromkeys(proof.hidden)),
        maybe_read=tuple(dict.fromkeys(proof.maybe_read)),
        maybe_written=tuple(dict.fromkeys(proof.maybe_written)),
        walks=tuple(dict.fromkeys(proof.walks)),
    )


_READ_ONLY = frozenset(
    {"cat", "head", "tail", "ls", "pwd", "wc", "nl", "grep", "egrep", "fgrep", "rg", "stat", "du", "which", "echo"}
)
"""Programs that change nothing. None has an option that starts another program but `rg`, whose options the proof checks."""


def is_read_only(command: str) -> bool:
    """Return True if a line only reads: it is proved, writes no file, and each of its programs is known to read only."""
    line = parse_shell_line(command)
    programs = [text.partition(" ")[0] for text in line.commands]
    return line.understood and not line.writes and all(posixpath.basename(name) == name in _READ_ONLY for name in programs)
