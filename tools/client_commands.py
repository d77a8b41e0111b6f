"""Writes shim/agents/_generated/client_commands.py from the installed clients; `--check` says whether it is current (exit 1).

A client is one program with its JavaScript inside, so its bytes hold the names of its slash commands. `DECLARATIONS` has the
ways in which OpenCode's TUIs and web UI have declared a slash command since 1.0. `scripts/e2e-setup` installs the clients.
A client that is not installed keeps the names of the generated file.
"""

from __future__ import annotations

import json
import mmap
import platform
import re
import sys
from collections.abc import Iterable, Mapping

from tools.generated_files import ROOT, settle

TARGET = ROOT / "shim" / "agents" / "_generated" / "client_commands.py"
MODULES = ROOT / ".e2e" / "node_modules"
ARCH = {"aarch64": "arm64"}.get(platform.machine(), "x64")

CLIENTS: Mapping[str, str] = {
    "opencode 1.0.98": f"opencode-linux-{ARCH}-1.0.98/bin/opencode",
    "opencode 1.1.53": f"opencode-ai-old/node_modules/opencode-linux-{ARCH}/bin/opencode",
    "opencode 1.2.27": f"opencode-linux-{ARCH}-1.2.27/bin/opencode",
    "opencode 1.3.2": f"opencode-linux-{ARCH}-1.3.2/bin/opencode",
    "opencode 1.14.41": f"opencode-linux-{ARCH}-1.14.41/bin/opencode",
    "opencode 1.15.13": f"opencode-linux-{ARCH}-1.15.13/bin/opencode",
    "opencode 1.18.33": "opencode-ai/bin/opencode.exe",
    "lildax 1.18.18": f"@opencode-ai/cli-linux-{ARCH}/bin/lildax",
}
"""Client -> its program below `MODULES`. From 1.14 on, OpenCode's program has the files of the web UI inside as well."""

NAME = rb"/?[a-z][a-z0-9-]*"
DECLARATIONS = tuple(
    re.compile(pattern.replace(b"NAME", NAME))
    for pattern in (
        rb'slash:\s*\{\s*name:\s*"(NAME)"(?:,\s*aliases:\s*\[([^\]]{0,200})\])?',  # TUI from 1.1 on
        rb'slashName:\s*"(NAME)"',  # TUI from 1.15 on
        rb"slashAliases:\s*\[([^\]]{0,200})\]",
        rb'slash:\s*"(NAME)"',  # web UI
        rb'display:\s*"(/[a-z][a-z0-9-]*)"(?:,\s*aliases:\s*\[([^\]]{0,200})\])?',  # TUI 1.0
    )
)
"""Patterns of declarations. A group of a match holds one name, or several in quotes. Each begins with plain text, which `re`
finds fast."""
NOT_COMMANDS = frozenset({"slash"})
"""`slashName:"slash"in x?` is an expression."""


def names_in(program: bytes | mmap.mmap) -> list[str]:
    """Return the sorted names and aliases of all slash commands that a program declares."""
    commands: set[str] = set()
    for pattern in DECLARATIONS:
        for match in pattern.finditer(program):
            if re.match(rb"[\w$]", program[max(match.start() - 1, 0) : match.start()]):
                continue  # the end of a longer word
            for group in match.groups(b""):
                commands.update(name.decode().removeprefix("/") for name in re.findall(NAME, group))
    return sorted(commands - NOT_COMMANDS)


def render(commands: Mapping[str, Iterable[str]]) -> str:
    """Return the text of the generated module."""
    rows: list[str] = []
    for client, names in commands.items():
        rows += [f"    {json.dumps(client)}: (", *(f"        {json.dumps(name)}," for name in names), "    ),"]
    return f'''"""Slash commands that clients carry out themselves. Written by tools/client_commands.py: do not edit."""

from __future__ import annotations

from collections.abc import Mapping

CLIENT_COMMANDS: Mapping[str, tuple[str, ...]] = {{
{chr(10).join(rows)}
}}
"""Client -> the names and aliases that its program declares, without the slash."""
'''


def current_commands() -> dict[str, list[str]]:
    """Return the commands of the installed clients, and the stored ones of the others."""
    from shim.agents._generated.client_commands import CLIENT_COMMANDS

    commands: dict[str, list[str]] = {}
    for client, place in CLIENTS.items():
        path = MODULES / place
        if not path.exists():
            sys.stderr.write(f"{client} is not installed (scripts/e2e-setup does): its names stay as they were\n")
            commands[client] = list(CLIENT_COMMANDS.get(client, ()))
            continue
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as program:
            commands[client] = names_in(program)
    return commands


def main(arguments: list[str]) -> int:
    """Write, or with `--check` compare. Returns the exit code."""
    return settle({TARGET: render(current_commands())}, check="--check" in arguments, command="python -m tools.client_commands")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
