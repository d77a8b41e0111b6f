"""Tells from the output of a tool what a sandbox has refused it, and which rule forbade that. Pure.

A kernel tells the program only that something failed. A sentence here says what is so in the sandbox for a path that an
error names (read-only, hidden, not there), and only if the bounds say so: an error that has another reason gets no sentence.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

from universal.lib.paths import is_in
from universal.permissions import Rule, matches
from universal.sandbox import ANY_NAME, PROTECTED, Bounds

OUTPUT_CHARS = 64 * 1024
"""Characters at the end of an output that are searched for errors."""
REFUSALS = 5
"""Sentences of one output, at most."""
_ERRORS = re.compile(
    r"(Read-only file system)|(Permission denied)|No such file or directory|Directory nonexistent", re.IGNORECASE
)
_QUOTED = re.compile(r"['\"‘`]([^'\"’`\n]{1,4096})['\"’`]")
_MOVES = re.compile(r"\b(cd|pushd|chdir|cwd|workdir)\b")
"""What may have changed the folder that relative paths are relative to."""

Kind: TypeAlias = Literal["edit", "read", "external_directory", "protected", "host"]
Error: TypeAlias = Literal["read-only", "no permission", "not there"]


class Refusal(NamedTuple):
    """What was refused: the key of the rule or why else, and a sentence for a person."""

    kind: Kind
    sentence: str


OWN_FOLDERS = ("/tmp", "/run", "/var", "/proc", "/dev")  # noqa: S108 - in the sandbox
"""Folders that are the process's own: nothing is known of what is missing there."""


class View(NamedTuple):
    """What a process sees, as absolute paths. `directories`: the session's, as written and with links followed.

    root        the project
    writable    folders outside of the project, and files
    readable    the same, read-only
    temporary   the process's own folder for temporary files
    has_mounts  whether what is denied is another place inside; else the kernel says "Permission denied" of what is there
    """

    directories: tuple[str, ...]
    root: str
    writable: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    temporary: str = OWN_FOLDERS[0]
    has_mounts: bool = True


def refusals_in(output: str, call: str, bounds: Bounds, view: View) -> list[Refusal]:
    """Return what the errors of an output say of the sandbox. In: `call`, the input of the tool as text."""
    found: dict[str, Refusal] = {}
    may_have_moved = _MOVES.search(call) is not None
    for line in output[-OUTPUT_CHARS:].splitlines():
        if (error := _ERRORS.search(line)) is None:
            continue
        for path in _paths(line, error.start()):
            if may_have_moved and not path.startswith("/"):
                continue
            kind: Error = "read-only" if error[1] else "no permission" if error[2] else "not there"
            refusal = _refusal(posixpath.normpath(posixpath.join(view.directories[0], path)), kind, bounds, view)
            if refusal is not None:
                found.setdefault(path, refusal)
        if len(found) >= REFUSALS:
            break
    return list(dict.fromkeys(found.values()))[:REFUSALS]


def _paths(line: str, at: int) -> list[str]:
    """What may be a path: in quotes, or the last word before the error."""
    words = line[:at].rstrip(": ").rpartition(": ")[2].split()
    return _QUOTED.findall(line) or words[-1:]


def _refusal(path: str, error: Error, bounds: Bounds, view: View) -> Refusal | None:
    if not is_in(path, (view.root, *view.directories)):
        return _outside(path, error, bounds, view)
    directory = next((folder for folder in view.directories if is_in(path, (folder,))), view.directories[-1])
    name = posixpath.relpath(path, directory)
    may_be_write = error == "read-only" or (error == "no permission" and not view.has_mounts)
    if error == "no permission" and (pattern := _deny_pattern(bounds.read, name)):
        return Refusal("read", f"`{name}` is hidden in the sandbox: your rule `read` denies `{pattern}`.")
    if may_be_write and (pattern := _deny_pattern(bounds.edit, name)):
        return Refusal("edit", f"`{name}` is read-only in the sandbox: your rule `edit` denies `{pattern}`.")
    places = (place for place in PROTECTED for base in (view.root, directory) if is_in(path, (f"{base}/{place}",)))
    if error == "read-only" and (protected := next(places, "")):
        return Refusal("protected", f"`{protected}` is read-only in the sandbox, since programs would run what stands there.")
    folder = posixpath.dirname(name)  # a file that is hidden by itself is there: a folder is empty and read-only
    is_emptied = error != "no permission" and view.has_mounts
    if is_emptied and (pattern := _deny_pattern(bounds.read, posixpath.join(folder, ANY_NAME))):
        return Refusal("read", f"The sandbox shows nothing of `{folder or '.'}`: your rule `read` denies `{pattern}`.")
    if may_be_write and not view.has_mounts and (rule := _deny_beside(bounds, folder)):
        words = f"your rule `{rule.permission}` denies `{rule.pattern}`, and no place in a folder can be held by itself here"
        return Refusal("edit", f"Nothing new can be made in `{folder or '.'}` in the sandbox: {words}.")
    return None


def _deny_beside(bounds: Bounds, folder: str) -> Rule | None:
    """A rule that denies something that may lie in a folder: for its sake the folder itself takes nothing new."""
    start = f"{folder}/" if folder else ""
    denies = (rule for rule in (*bounds.edit, *bounds.read) if rule.action == "deny")
    return next((rule for rule in denies if rule.pattern.startswith((start, "*"))), None)


def _deny_pattern(rules: Sequence[Rule], name: str) -> str:
    """The pattern of the rule that denies a path; "" if none does."""
    rule = next((rule for rule in reversed(rules) if matches(rule.pattern, name)), None)
    return rule.pattern if rule is not None and rule.action == "deny" else ""


def _outside(path: str, error: Error, bounds: Bounds, view: View) -> Refusal | None:
    own = (*view.writable, view.temporary, *(OWN_FOLDERS if view.has_mounts else ()))
    is_fixed = error == ("read-only" if view.has_mounts else "no permission")
    if is_fixed and is_in(path, view.readable) and not is_in(path, view.writable):
        return Refusal("external_directory", f"`{path}` is read-only in the sandbox.")
    is_absent = error != "read-only" if view.has_mounts else is_fixed
    if not is_absent or is_in(path, (*own, *view.readable)) or not path.startswith("/"):
        return None
    return Refusal(
        "external_directory",
        f"`{path}` is outside of the sandbox: it shows the project, the agent's own folders, and folders that a rule for "
        "`external_directory` allows.",
    )
