"""Slash commands are read from the bytes of clients, in each form that they have had."""

from __future__ import annotations

import pytest

from shim.agents._generated.client_commands import CLIENT_COMMANDS
from tools.client_commands import TARGET, names_in, render


@pytest.mark.parametrize(
    ("source", "names"),
    [
        (b'{title:"x",slash:{name:"compact",aliases:["summarize"]},run', ["compact", "summarize"]),
        (b'slash: {\n  name: "exit",\n  aliases: ["quit", "q"]\n}', ["exit", "q", "quit"]),
        (b'slashName:"sessions",slashAliases:["resume","continue"]', ["continue", "resume", "sessions"]),
        (b'id:"terminal.toggle",slash:"terminal"', ["terminal"]),
        (b'{ display: "/new", aliases: ["/clear"] }', ["clear", "new"]),
        (b'slashName:"slash"in E?E.slash?.name:void 0', []),
        (b'backslash:"\\\\";slash:"\xd8"', []),
        (b'backslash:"no"', []),
    ],
)
def test_names_are_found(source: bytes, names: list[str]) -> None:
    assert names_in(source) == names


def test_the_generated_module_is_what_the_tool_writes() -> None:
    assert TARGET.read_text("utf-8") == render(CLIENT_COMMANDS)
