"""Refuses lines of git with which it runs other programs. Pure.

git runs programs by options (`--upload-pack`, which may be shortened), by subcommands (`bisect run`), by addresses (`ext::`) and
by its configuration. Only the subcommands that are listed here are proved; an alias of the person's may run anything.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile

from universal.shell import tables
from universal.shell.words import NotProvedError, Word

SUBCOMMANDS = tables.word_set(
    """
    add am apply archive blame branch bundle cat-file check-ignore checkout cherry cherry-pick clean clone commit config
    count-objects describe diff diff-tree fetch for-each-ref fsck gc grep init log ls-files ls-remote ls-tree merge
    merge-base mv name-rev notes pull push range-diff rebase reflog remote reset restore rev-list rev-parse revert rm
    shortlog show show-ref stash status submodule switch symbolic-ref tag version worktree
    """
)
RUNNING = (
    "upload-pack", "receive-pack", "exec", "exec-path", "extcmd", "open-files-in-pager", "config-env", "config", "template",
    "tool", "gpg-sign", "ext-diff", "textconv", "strategy", "interactive", "edit", "edit-description", "patch", "paginate",
    "remote", "separate-git-dir", "git-dir", "work-tree", "trailer", "output", "signed",
)  # fmt: skip
"""Long options with which git runs a program, or writes or reads a repository elsewhere. A shortened form of one counts."""
LETTERS: dict[str, str] = {
    "clone": "uc",
    "rebase": "xsSi",
    "grep": "O",
    "merge": "sSe",
    "pull": "sS",
    "cherry-pick": "sSe",
    "revert": "sSe",
    "commit": "Sept",
    "tag": "sue",
    "add": "ipe",
    "checkout": "p",
    "reset": "p",
    "restore": "p",
    "stash": "p",
    "notes": "e",
    "archive": "o",
    "am": "iS",
}
"""Subcommand -> letters of options with which it runs an editor, a strategy, a signer or a program."""
_MESSAGE = re.compile(r"-[a-zA-Z]*[mFC]|--(message|file|no-edit|fixup|reuse-message)")
FORMS = {
    "bisect": None,
    "submodule": frozenset({"status", "summary"}),
    "config": frozenset({"--get", "--get-all", "--list", "-l", "get", "list"}),
    "remote": frozenset({"-v", "show", "get-url"}),
    "worktree": frozenset({"list", "add", "remove", "prune"}),
    "bundle": frozenset({"verify", "list-heads", "create"}),
    "notes": frozenset({"show", "list"}),
}
"""Subcommand -> the only first words with which it is proved; None for none."""
ADDRESSED = frozenset({"archive", "clone", "fetch", "ls-remote", "pull", "push"})
"""Subcommands that take an address of a repository."""
_BEFORE = frozenset(
    {"--no-pager", "-P", "--no-optional-locks", "--literal-pathspecs", "--bare", "--version", "--no-replace-objects"}
)


def refuse_running_git(arguments: Sequence[Word]) -> None:
    """Raise NotProvedError if git may run another program with these arguments."""
    words = list(arguments)
    while words and words[0].value.startswith("-"):
        option = words.pop(0)
        if option.value == "-C" and words and not words[0].is_glob:
            words.pop(0)
        elif option.value not in _BEFORE:
            raise NotProvedError("an option with which git may run others")
    if not words:
        return
    subcommand, *rest = words
    name = subcommand.value
    if name not in SUBCOMMANDS:
        raise NotProvedError(f"what git {name} runs is not known")
    if name in FORMS and rest:
        allowed = FORMS[name]
        if allowed is None or rest[0].value not in allowed:
            raise NotProvedError(f"git {name} {rest[0].value} may run others")
    if name == "commit" and not any(_MESSAGE.match(word.value) for word in rest):
        raise NotProvedError("git commit without a message starts an editor")
    for word in takewhile(lambda word: word.value != "--", rest):
        _refuse(name, word)
        if "::" in word.value and name in ADDRESSED:
            raise NotProvedError("an address with which git runs others")


def _refuse(subcommand: str, word: Word) -> None:
    if word.is_glob and word.may_be_option:
        raise NotProvedError("the name of a file may be an option")
    if word.value.startswith("--"):
        option = word.value[2:].partition("=")[0]
        if any(running.startswith(option) for running in RUNNING) and not _is_format(subcommand, option):
            raise NotProvedError("an option with which git may run others")
    elif word.value.startswith("-") and not re.fullmatch(r"-[0-9]+", word.value):
        letters = word.value[1:]
        if set(letters) & set(LETTERS.get(subcommand, "")) and not _has_value(subcommand, letters):
            raise NotProvedError("an option with which git may run others")


def _is_format(subcommand: str, option: str) -> bool:
    """Whether an option only shows a patch: `git log --patch`, not `git add --patch`."""
    return option in ("patch", "p") and subcommand in ("log", "show", "diff", "diff-tree")


def _has_value(subcommand: str, letters: str) -> bool:
    """Whether the letters after the first are a value: `-mfix` is a message."""
    return letters[0] in "mFCn" and subcommand in ("commit", "tag", "merge")
