"""Finds out whether an agent has a login, by its environment and its files. Contents of files are never read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from universal.agent_spec import AgentSpec


def is_logged_in(spec: AgentSpec, environ: Mapping[str, str], *, tells: bool) -> bool:
    """Whether one of the agent's login signs exists. Without signs, the answer is `tells`: it lists its models. Blocking."""
    signs = spec.program.login_signs
    if signs is None:
        return tells
    files = (place(path, environ) for path in signs.files)
    return any(environ.get(name) for name in signs.variables) or any(file is not None and file.is_file() for file in files)


def place(path: str, environ: Mapping[str, str]) -> Path | None:
    """The place of `~/...`, `$VARIABLE/...` or an absolute path in this environment. None if the variable is not set."""
    if path.startswith("/"):
        return Path(path)
    head, _, rest = path.partition("/")
    base = environ.get("HOME", "") if head == "~" else environ.get(head.removeprefix("$"), "")
    return Path(base, rest) if base else None
