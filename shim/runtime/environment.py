"""What a child process inherits: the person's environment, less what would harm it, plus what its starter wants.

Agents, commands, terminals, hooks, git and installers all get theirs from `child_environment`. Proxies, keys, base URLs and
toolchains must reach them, so this is a deny-list and not an allow-list. `shim.runtime.child` starts no program without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import NewType

ChildEnvironment = NewType("ChildEnvironment", dict[str, str])
"""A whole environment without the server's secrets. Only `child_environment` makes one."""

MARK = "OPENCODE_SHIM_PROCESS"
"""Set for each agent to a token of its own (after those of outer ones), and inherited by all that it starts: `family` finds
them by it, in whatever session they hide. A daemon that is to outlive its agent is started with this unset."""

DENIED: Mapping[str, str] = {
    "OPENCODE_SERVER_PASSWORD": "ours: whoever has it can drive all sessions",
    "OPENCODE_PASSWORD": "the same, as 2.x names it",
    "OPENCODE_SERVER_USERNAME": "goes with the password",
    "OPENCODE": "says to run inside of OpenCode",
    "OPENCODE_PID": "the OpenCode we were started from",
    "AI_AGENT": "the agent we were started from; seen with Claude Code 2.1.330",
    "CLAUDECODE": "Claude Code refuses or changes what it does when nested",
    "CLAUDE_CODE_ENTRYPOINT": "how the outer Claude Code was started",
    "CLAUDE_CODE_EXECPATH": "the outer binary",
    "CLAUDE_CODE_CHILD_SESSION": "makes ours a child of the outer session",
    "CLAUDE_CODE_CHILD_NOTES_DIR": "where a child of the outer session reports",
    "CLAUDE_CODE_SESSION_ID": "the outer session",
    "CLAUDE_CODE_SESSION_ATTENDED": "whether a person watches the outer session",
    "CLAUDE_CODE_MESSAGING_SOCKET": "leads to the outer session",
    "CLAUDE_CODE_MESSAGING_TOKEN": "leads to the outer session",
    "CLAUDE_CODE_SSE_PORT": "the editor of the outer session",
    "CLAUDE_EFFORT": "the outer session's",
    "CLAUDE_PID": "the outer process",
    "CODEX_SANDBOX": "says to run inside of Codex's sandbox",
    "CODEX_SANDBOX_NETWORK_DISABLED": "says that there is no network",
}
"""Name -> why. The `CLAUDE*` ones and AI_AGENT are what `env` printed in a Bash tool of Claude Code 2.1.197 and 2.1.330, less
what people set themselves."""

DENIED_PREFIX = "SHIM_"
"""Settings of this server, its password among them."""


OWN_PASSWORDS = ("OPENCODE_SERVER_PASSWORD", "OPENCODE_PASSWORD", "SHIM_PASSWORD")


def blank_passwords() -> None:
    """Overwrite this server's password where all programs of the person can read it: `/proc/PID/environ` is the memory in which
    this process was given its environment, and a terminal or agent knows the PID of its parent. `os.environ` is a copy; it stays.
    """
    import ctypes  # here: an import of four milliseconds, which only a server needs

    with suppress(OSError, AttributeError):  # another C library
        getenv = ctypes.CDLL(None).getenv
        getenv.restype = ctypes.c_void_p
        for name in OWN_PASSWORDS:
            if place := getenv(name.encode()):
                ctypes.memset(place, 0, len(ctypes.string_at(place)))


def child_environment(inherited: Mapping[str, str], changes: Mapping[str, str | None], token: str = "") -> ChildEnvironment:
    """The whole environment of a child process.

    In: `inherited` (usually `os.environ`), `changes` of who starts it (None removes; may set a denied name again), `token`
    for `MARK` (none is set if empty).
    """
    kept = {name: value for name, value in inherited.items() if name not in DENIED and not name.startswith(DENIED_PREFIX)}
    for name, value in changes.items():
        if value is None:
            kept.pop(name, None)
        else:
            kept[name] = value
    if token:
        kept[MARK] = f"{kept[MARK]},{token}" if kept.get(MARK) else token
    return ChildEnvironment(kept)
