"""Finds out whether an agent has a login, by its environment and its files. Contents of files are never read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from universal.codec import AgentSpec


def available(spec: AgentSpec, environ: Mapping[str, str], *, tells: bool) -> bool:
    """Whether one of the agent's login signs exists. Without signs, the answer is `tells`: it lists its models. Blocking."""
    signs = spec.login_signs
    if signs is None:
        return tells
    return any(environ.get(name) for name in signs.variables) or any(_exists(path, environ) for path in signs.files)


def _exists(path: str, environ: Mapping[str, str]) -> bool:
    head, _, rest = path.partition("/")
    base = environ.get("HOME", "") if head == "~" else environ.get(head.removeprefix("$"), "")
    return bool(base) and Path(base, rest).is_file()
