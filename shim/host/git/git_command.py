"""The only module that runs git. It runs no program that a repository's settings name, and it fetches nothing.

    SETTINGS           override every file: no hooks, no monitor, no helper, no pager, no signing program
    ENVIRONMENT        allows no protocol, so that no remote, lazy fetch or submodule address starts a transport
    FLAGS              options for commands that would run a diff tool
    harmless_settings  settings whose names the repository chooses: filters, merge drivers, hooks by name

A repository may come from anyone. `git` works in the user's repository, `git_in` in a git directory of this server. The user's
own settings stay in force (LFS filters, `core.excludesFile`), those of the repository only where they name no program.
`tests/http/test_git_vectors.py` tries each attack that we know, and `tests/unit/test_layout.py` finds other code that runs git.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from shim.processes.command import TIMEOUT_S, CommandResult, ProgramMissing, run

PROGRAM = "git"
SETTINGS: Mapping[str, str] = {
    # Settings that run a program.
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
    # git must not treat a project folder that looks like a bare repository as one.
    "safe.bareRepository": "explicit",
    # Settings that change the output that we parse.
    "core.quotePath": "false",
    "diff.noprefix": "false",
    "diff.mnemonicPrefix": "false",
    "diff.algorithm": "myers",
    "color.ui": "false",
    # Work on a copy of the index must not leave a shared index in the repository.
    "core.splitIndex": "false",
}
COMMAND = (PROGRAM, "--no-pager", *(word for name, value in SETTINGS.items() for word in ("-c", f"{name}={value}")))
ENVIRONMENT: Mapping[str, str | None] = {
    "GIT_ALLOW_PROTOCOL": "none",  # a list of protocol names, and no protocol is named "none". Overrides `protocol.NAME.allow`
    "GIT_PROTOCOL_FROM_USER": "0",
    "GIT_NO_LAZY_FETCH": "1",  # since git 2.44; an older git starts a lazy fetch and fails, as no protocol is allowed
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_EDITOR": "false",
    "GIT_SEQUENCE_EDITOR": "false",
    "LC_ALL": "C",
    # Set if a git hook started this server; they would point at another repository.
    **dict.fromkeys(("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR", "GIT_NAMESPACE")),
    **dict.fromkeys(("GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_CONFIG", "GIT_EXTERNAL_DIFF")),
}
ISOLATION: Mapping[str, str | None] = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_LITERAL_PATHSPECS": "1",
    **dict.fromkeys(("GIT_CONFIG_PARAMETERS", "GIT_CONFIG_COUNT", "GIT_DEFAULT_HASH", "GIT_ATTR_SOURCE")),
}
"""The environment for git directories of this server, where the user's settings do not apply either."""
FLAGS: Mapping[str, tuple[str, ...]] = {
    "diff": ("--no-ext-diff", "--no-textconv"),
    "diff-tree": ("--no-ext-diff", "--no-textconv"),
}
"""Command -> options that it always gets."""
QUERIES = frozenset(
    {
        *("cat-file", "check-ignore", "config", "for-each-ref", "init", "ls-files", "merge-base", "rev-list", "rev-parse"),
        *("show-ref", "symbolic-ref"),
    }
)
"""Commands that neither read files of the working tree nor change anything, so that they run no filter and no hook."""

NAMED_PROGRAMS: Mapping[str, str] = {
    "clean": "",
    "smudge": "",
    "process": "",
    "required": "false",
    "driver": "false",
    "command": "true",
}
"""Last word of a setting that matches NAMED -> its harmless value."""
NAMED = r"^(filter\..*\.(clean|smudge|process|required)|merge\..*\.driver|hook\..*\.command)$"
"""Settings whose middle part is a name that the repository chooses. git has `hook.NAME.command` since 2.54."""
NO_SUCH_SETTING = 1
"""The exit code of `git config` if no setting matches."""
REPOSITORY_SCOPES = (b"local", b"worktree")
"""git's scopes for settings in the repository, or in a file that it includes."""


def is_installed() -> bool:
    """Whether git is on PATH."""
    return shutil.which(PROGRAM) is not None


async def git(
    directory: str,
    *arguments: str,
    stdin: bytes = b"",
    index: str | None = None,
    settings: Mapping[str, str | None] | None = None,
    timeout_s: float = TIMEOUT_S,
) -> CommandResult:
    """Run git in the user's repository. A missing directory or git counts as a git that failed.

    In: `index`, a file to use as the repository's index; `settings`, the `harmless_settings` of the directory if the caller has
    them.
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
    """Build an environment that disables programs that the repository names (`filter.NAME.clean` in its own settings).

    The user's own programs stay enabled: without its filter, every LFS file would count as changed. None if git could not read
    all settings in time; then no command may run that would use them.
    """
    answer = await git(directory, "config", "--show-scope", "-z", "--name-only", "--get-regexp", NAMED)
    if answer.code not in (0, NO_SUCH_SETTING):
        return None
    fields = answer.stdout.split(b"\0")
    names = [os.fsdecode(name) for scope, name in zip(fields[::2], fields[1::2], strict=False) if scope in REPOSITORY_SCOPES]
    # Not `-c NAME=VALUE`, because a name may contain `=`. The user's own GIT_CONFIG_KEY_n stay, and ours follow them.
    count = os.environ.get("GIT_CONFIG_COUNT", "")
    first = int(count) if count.isdigit() else 0
    overrides: dict[str, str | None] = {"GIT_CONFIG_COUNT": str(first + len(names))} if names else {}
    for number, name in enumerate(names, first):
        value = NAMED_PROGRAMS[name.rpartition(".")[2].lower()]
        overrides |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
    return overrides


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
    """Run git in a git directory of this server, whose settings the server wrote.

    In: `directory`, where git runs; `settings`, added to SETTINGS. Raises: OSError, ProgramMissing.
    """
    more = tuple(word for name, value in (settings or {}).items() for word in ("-c", f"{name}={value}"))
    environment = {**ENVIRONMENT, **ISOLATION, "GIT_DIR": str(git_dir), "GIT_WORK_TREE": work_tree, "GIT_INDEX_FILE": index}
    return await run(_argv(arguments, more), directory, environment=environment, timeout_s=timeout_s, stdin=stdin)


@asynccontextmanager
async def scratch_folder(prefix: str, parent: Path | None = None) -> AsyncGenerator[str]:
    """A temporary folder for copies of an index. It is removed at the end of the block. Raises OSError."""
    folder = await asyncio.to_thread(tempfile.mkdtemp, prefix=prefix, dir=parent)
    try:
        yield folder
    finally:
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


def message_of(result: CommandResult) -> str:
    """What a git that failed has said."""
    words = (result.stderr or result.stdout).decode("utf-8", "replace").strip()[-2000:]
    return words or ("git did not end in time" if result.code is None else f"git ended with {result.code}")


def _argv(arguments: tuple[str, ...], settings: tuple[str, ...] = ()) -> list[str]:
    command, *rest = arguments
    return [*COMMAND, *settings, command, *FLAGS.get(command, ()), *rest]
