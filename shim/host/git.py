"""The one module that runs git. A repository may come from anyone: nothing that its settings name is run, and nothing is fetched.

    SETTINGS           win over every file: no hooks, no monitor, no helper, no pager, no signing program
    ENVIRONMENT        no protocol may be used, so no remote, lazy fetch or submodule's address starts a transport
    FLAGS              of commands that would run a diff tool
    harmless_settings  what cannot be set blindly, because the repository chooses the name: filters, merge drivers, hooks by name

`git` works in the person's repository, `git_in` in a git directory of ours. Settings of the person stay in force (filters of LFS,
`core.excludesFile`), those of the repository only where they name no program. A test plants each vector that we know
(`tests/http/test_git_vectors.py`), and `tests/unit/test_layout.py` finds every other place that runs git.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from shim.host.command import TIMEOUT_S, CommandResult, ProgramMissing, run

PROGRAM = "git"
SETTINGS: Mapping[str, str] = {
    # What runs a program.
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "core.sshCommand": "false",
    "core.askPass": "false",
    "core.editor": "false",
    "sequence.editor": "false",
    "core.pager": "cat",
    "core.alternateRefsCommand": "true",
    "credential.helper": "",
    "gpg.program": "false",
    "gpg.openpgp.program": "false",
    "gpg.x509.program": "false",
    "gpg.ssh.program": "false",
    "gpg.ssh.defaultKeyCommand": "false",
    "log.showSignature": "false",
    "commit.gpgSign": "false",
    "submodule.recurse": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "protocol.allow": "never",
    # A folder of the project that looks like a bare repository is none.
    "safe.bareRepository": "explicit",
    # What changes the form of what we parse.
    "core.quotePath": "false",
    "diff.noprefix": "false",
    "diff.mnemonicPrefix": "false",
    "diff.algorithm": "myers",
    "color.ui": "false",
    # The copy of the index must not leave a shared one in the repository.
    "core.splitIndex": "false",
}
COMMAND = (PROGRAM, "--no-pager", *(word for name, value in SETTINGS.items() for word in ("-c", f"{name}={value}")))
ENVIRONMENT: Mapping[str, str | None] = {
    "GIT_ALLOW_PROTOCOL": "none",  # a list of protocols; none has this name. Wins over `protocol.NAME.allow`
    "GIT_PROTOCOL_FROM_USER": "0",
    "GIT_NO_LAZY_FETCH": "1",  # since git 2.44; before, a lazy fetch begins, and no protocol is allowed
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_EDITOR": "false",
    "GIT_SEQUENCE_EDITOR": "false",
    "LC_ALL": "C",
    # Set when we were started from a git hook; they would point at another repository.
    **dict.fromkeys(("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR", "GIT_NAMESPACE")),
    **dict.fromkeys(("GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_CONFIG", "GIT_EXTERNAL_DIFF")),
}
ISOLATED: Mapping[str, str | None] = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_LITERAL_PATHSPECS": "1",
    **dict.fromkeys(("GIT_CONFIG_PARAMETERS", "GIT_CONFIG_COUNT", "GIT_DEFAULT_HASH", "GIT_ATTR_SOURCE")),
}
"""For git directories of ours: the person's settings do not apply either."""
FLAGS: Mapping[str, tuple[str, ...]] = {
    "diff": ("--no-ext-diff", "--no-textconv"),
    "diff-tree": ("--no-ext-diff", "--no-textconv"),
}
"""Command -> options that are always put behind it."""
QUERIES = frozenset(
    {
        *("cat-file", "check-ignore", "config", "for-each-ref", "init", "ls-files", "merge-base", "rev-list", "rev-parse"),
        *("show-ref", "symbolic-ref"),
    }
)
"""Commands that neither look into files of the working tree nor change anything: they run no filter and no hook."""

NAMED_PROGRAMS: Mapping[str, str] = {
    "clean": "",
    "smudge": "",
    "process": "",
    "required": "false",
    "driver": "false",
    "command": "true",
}
"""Last word of a setting of NAMED -> the value that does no harm."""
NAMED = r"^(filter\..*\.(clean|smudge|process|required)|merge\..*\.driver|hook\..*\.command)$"
"""Settings whose middle is a name that the repository chooses. `hook.NAME.command` is git's since 2.54."""
NO_SUCH_SETTING = 1
"""git's exit code then."""
REPOSITORY_SCOPES = (b"local", b"worktree")
"""What git calls settings that stand in the repository, or in a file that it includes."""


def is_installed() -> bool:
    """Whether there is a git on PATH."""
    return shutil.which(PROGRAM) is not None


async def git(
    directory: str,
    *arguments: str,
    stdin: bytes = b"",
    index: str | None = None,
    settings: Mapping[str, str | None] | None = None,
    timeout_s: float = TIMEOUT_S,
) -> CommandResult:
    """Run git in the person's repository. A directory that is none, or git that is not there, is a git that failed.

    In: `index`, a file to take for the repository's index; `settings`, the `harmless_settings` of the directory, if they were
    read already.
    """
    if settings is None:
        settings = {} if arguments[0] in QUERIES else await harmless_settings(directory)
    if settings is None:
        return CommandResult(None, b"", f"git cannot read the settings of the repository of {directory}".encode())
    place = {} if index is None else {"GIT_INDEX_FILE": index}
    try:
        return await run(
            _argv(arguments), directory, environment={**ENVIRONMENT, **settings, **place}, timeout_s=timeout_s, stdin=stdin
        )
    except (OSError, ProgramMissing) as error:
        return CommandResult(None, b"", str(error).encode())


async def harmless_settings(directory: str) -> dict[str, str | None] | None:
    """An environment for git in which programs that the repository itself names (`filter.NAME.clean` in its own settings) do not
    run when files are compared or written. Those of the person's settings stay: files of LFS would count as changed without.

    None if not all settings could be read, in time and in whole: then no command may run that would use them.
    """
    answer = await git(directory, "config", "--show-scope", "-z", "--name-only", "--get-regexp", NAMED)
    if answer.code not in (0, NO_SUCH_SETTING):
        return None
    fields = answer.stdout.split(b"\0")
    names = [os.fsdecode(name) for scope, name in zip(fields[::2], fields[1::2], strict=False) if scope in REPOSITORY_SCOPES]
    # Not by `-c NAME=VALUE`: a name may hold a `=` too. What the person has set in this way stays before ours.
    count = os.environ.get("GIT_CONFIG_COUNT", "")
    first = int(count) if count.isdigit() else 0
    found: dict[str, str | None] = {"GIT_CONFIG_COUNT": str(first + len(names))} if names else {}
    for number, name in enumerate(names, first):
        value = NAMED_PROGRAMS[name.rpartition(".")[2].lower()]
        found |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
    return found


async def git_in(
    git_dir: Path,
    directory: str,
    *arguments: str,
    settings: Mapping[str, str] | None = None,
    work_tree: str | None = None,
    index: str | None = None,
    stdin: bytes = b"",
    timeout_s: float = TIMEOUT_S,
) -> CommandResult:
    """Run git in a git directory of ours, whose settings we wrote.

    In: `directory`, where it runs; `settings`, more beside SETTINGS. Raises: OSError, ProgramMissing.
    """
    more = tuple(word for name, value in (settings or {}).items() for word in ("-c", f"{name}={value}"))
    environment = {**ENVIRONMENT, **ISOLATED, "GIT_DIR": str(git_dir), "GIT_WORK_TREE": work_tree, "GIT_INDEX_FILE": index}
    return await run(_argv(arguments, more), directory, environment=environment, timeout_s=timeout_s, stdin=stdin)


def _argv(arguments: tuple[str, ...], settings: tuple[str, ...] = ()) -> list[str]:
    command, *rest = arguments
    return [*COMMAND, *settings, command, *FLAGS.get(command, ()), *rest]
