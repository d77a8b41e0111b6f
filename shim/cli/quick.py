"""`opencode-shim serve --port 4096`: the flags of `serve` read without typer, whose import is a tenth of a start.

Only what is plainly right is read here. Anything else (help, a typing error, another command) is None, and then typer reads it
and says what is wrong: `shim.cli.commands` has the one description of the flags.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

FLAGS = (
    *("hostname", "port", "directory", "data_dir", "default_agent", "cors", "log_level", "log_format"),
    *("allowed_hosts", "base_path", "trust_proxy", "tls_cert", "tls_key", "roots", "trust_all", "unattended"),
    "move_aside_damaged",
)
"""The settings that have a flag, on `serve` and `web`; the others are for the environment and the file."""
SWITCHES = frozenset({"trust_proxy", "trust_all", "move_aside_damaged"})
"""Flags without a value."""
LISTS = frozenset({"cors", "allowed_hosts", "roots"} & set(FLAGS))
"""Flags that may be repeated."""


def serve_flags(arguments: Sequence[str]) -> dict[str, Any] | None:
    """What `serve` is called with, by the names of settings; None if typer is to read it.

    In: the arguments after the program's name.
    """
    if not arguments or arguments[0] != "serve":
        return None
    found: dict[str, Any] = {}
    rest = iter(arguments[1:])
    for argument in rest:
        flag, equals, value = argument.partition("=")
        name = flag.removeprefix("--").replace("-", "_")
        if name not in FLAGS or flag != f"--{name.replace('_', '-')}":
            return None
        if name in SWITCHES:
            if equals:
                return None
            found[name] = True
            continue
        given = value if equals else next(rest, None)
        if given is None or (given.startswith("-") and not equals):
            return None
        if name == "port":
            if not (given.isascii() and given.isdecimal()):
                return None
            found[name] = int(given)
        elif name in LISTS:
            found.setdefault(name, []).append(given)
        else:
            found[name] = given
    return found
