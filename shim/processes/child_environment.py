"""Builds the environment of child processes: the person's, without harmful variables, plus the caller's changes.

Agents, commands, terminals, hooks, git and installers all use `child_environment`. Proxies, keys, base URLs and toolchains
must reach them, so it removes names from a deny-list. `shim.processes.child_process` starts no program without it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import NewType

ChildEnvironment = NewType("ChildEnvironment", dict[str, str])
"""A whole environment without the server's secrets. Only `child_environment` creates one."""

MARK = "OPENCODE_SHIM_PROCESS"
"""Variable with an agent's unique token, after the tokens of outer agents.

All processes that an agent starts inherit it, so `process_family` finds them in any process session. A daemon that should
outlive its agent is started with it unset.
"""

DENIED: Mapping[str, str] = {
    "OPENCODE_SERVER_PASSWORD": "this server's own: whoever has it controls all sessions",
    "OPENCODE_PASSWORD": "the same password for OpenCode 2.x",
    "OPENCODE_SERVER_USERNAME": "belongs to the password",
    "OPENCODE": "tells a program that it runs inside of OpenCode",
    "OPENCODE_PID": "the OpenCode that started this server",
    "AI_AGENT": "the agent that started this server; seen with Claude Code 2.1.330",
    "CLAUDECODE": "a nested Claude Code refuses work or behaves differently",
    "CLAUDE_CODE_ENTRYPOINT": "how the outer Claude Code was started",
    "CLAUDE_CODE_EXECPATH": "the outer binary",
    "CLAUDE_CODE_CHILD_SESSION": "makes our session a child of the outer session",
    "CLAUDE_CODE_CHILD_NOTES_DIR": "where a child of the outer session reports",
    "CLAUDE_CODE_SESSION_ID": "the outer session",
    "CLAUDE_CODE_SESSION_ATTENDED": "whether a person watches the outer session",
    "CLAUDE_CODE_MESSAGING_SOCKET": "leads to the outer session",
    "CLAUDE_CODE_MESSAGING_TOKEN": "leads to the outer session",
    "CLAUDE_CODE_SSE_PORT": "the editor of the outer session",
    "CLAUDE_EFFORT": "the effort of the outer session",
    "CLAUDE_PID": "the outer process",
    "CODEX_SANDBOX": "tells a program that it runs inside of Codex's sandbox",
    "CODEX_SANDBOX_NETWORK_DISABLED": "tells a program that it has no network",
}
"""Variable -> why children do not inherit it.

`CLAUDE*` and AI_AGENT are the variables that `env` printed in a Bash tool of Claude Code 2.1.197 and 2.1.330, without those
that people set themselves.
"""

DENIED_PREFIX = "SHIM_"
"""Prefix of this server's settings, which include its password."""


def agent_shell(inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the shell for an agent's commands, if the person's own is one whose lines no rule can read (fish, nu ...)."""
    from universal.shell.tables import READ_SHELLS  # late: no start waits for it

    name = inherited.get("SHELL", "").rpartition("/")[2]
    return {} if name in READ_SHELLS or not name else {"SHELL": "/bin/bash" if os.access("/bin/bash", os.X_OK) else "/bin/sh"}


OWN_PASSWORDS = ("OPENCODE_SERVER_PASSWORD", "OPENCODE_PASSWORD", "SHIM_PASSWORD", "SHIM_CLUSTER_PASSWORD")


def blank_passwords() -> None:
    """Overwrite this server's passwords in `/proc/PID/environ`, where every program of the person could read it.

    That file shows the memory of the process's first environment, and a terminal or agent knows the PID of its parent.
    `os.environ` is a copy and keeps the password.
    """
    import ctypes  # imported here: it takes 4 ms, and only a server needs it

    with suppress(OSError, AttributeError):  # another C library
        getenv = ctypes.CDLL(None).getenv
        getenv.restype = ctypes.c_void_p
        for name in OWN_PASSWORDS:
            if place := getenv(name.encode()):
                ctypes.memset(place, 0, len(ctypes.string_at(place)))


def child_environment(inherited: Mapping[str, str], changes: Mapping[str, str | None], token: str = "") -> ChildEnvironment:
    """Return the whole environment of a child process.

    `inherited` is usually `os.environ`. `changes` are the caller's: None removes a name, and a denied name may be set again.
    `token` is added to `MARK` unless it is empty.
    """
    environment = {name: value for name, value in inherited.items() if name not in DENIED and not name.startswith(DENIED_PREFIX)}
    for name, value in changes.items():
        if value is None:
            environment.pop(name, None)
        else:
            environment[name] = value
    if token:
        environment[MARK] = f"{environment[MARK]},{token}" if environment.get(MARK) else token
    return ChildEnvironment(environment)
