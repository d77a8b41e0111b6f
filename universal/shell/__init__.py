"""Finds the commands that a shell line runs and the paths that it names, by the grammar of tree-sitter-bash. Pure.

The grammar gives the structure; this module does not trust it. It accepts a line only if each node is of a known type and each
piece of text has the form that bash and dash read in the same way (`_WORD`, `_STRING` ...). Any other line is not understood, and
is never allowed automatically. docs/permissions.md says what that means for a permission pattern. The modules of this package are
imported with the first line.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter

__all__ = ["ShellLine", "is_read_only", "parse_shell_line"]


@dataclass(frozen=True, slots=True)
class ShellLine:
    """The commands and paths of a shell line.

    `commands`: the text of each command that the line may run, each once, in order; empty for `cd x`, which needs no permission.
    If the line is not understood: the line itself and a rough cut at everything that may separate, so that a deny still holds.
    `paths`: files and directories that path commands and redirections name, relative to where the line starts; `~` is not
    expanded, `..` is not resolved. A caller must look at both the normalised and the real path.
    `paths_known`: False if a path depends on what is known only when the line runs.
    """

    commands: tuple[str, ...]
    understood: bool
    paths: tuple[str, ...] = ()
    paths_known: bool = True
    reason: str = ""
    """Why the line is not understood."""


def parse_shell_line(line: str) -> ShellLine:
    """Read a line as bash and dash would."""
    from universal.shell.commands import Reader, rough_commands  # late: no start waits for the grammar
    from universal.shell.values import NotUnderstoodError, State

    reader = Reader()
    try:
        reader.read(line, State())
    except NotUnderstoodError as error:
        return ShellLine(rough_commands(line), False, tuple(dict.fromkeys(reader.paths)), False, str(error))
    commands = dict.fromkeys(text for _, text in sorted(reader.commands, key=itemgetter(0)))
    return ShellLine(tuple(commands), True, tuple(dict.fromkeys(reader.paths)), reader.paths_known)


_READ_ONLY = frozenset(
    {"cat", "head", "tail", "ls", "pwd", "wc", "nl", "grep", "egrep", "fgrep", "rg", "stat", "du", "which", "echo"}
)
"""Programs that change nothing and start nothing, but for the options of `rg` in `_STARTING`."""
_STARTING = ("--pre", "--hostname-bin")


def is_read_only(command: str) -> bool:
    """Return True if a line only reads: it is understood, and none of its programs changes or starts anything."""
    line = parse_shell_line(command)
    words = [text.split() for text in line.commands]
    return (
        line.understood
        and ">" not in command
        and all(program and program[0] in _READ_ONLY for program in words)
        and not any(word.startswith(_STARTING) for program in words for word in program)
    )
