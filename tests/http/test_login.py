"""The login of an agent's own program, begun by a client: with programs that say what Claude Code and Codex say."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from shim.agents import logins
from tests.support.live import Live, live

pytestmark = pytest.mark.asyncio
WAIT_S = 20.0
CLAUDE = r"""#!/bin/sh
case "$*" in
  --version) echo "2.1.332 (Claude Code)" ;;
  "auth login")
    printf "Opening browser to sign in…\r\nIf the browser didn't open, visit:\r\n"
    printf '\033]8;;https://claude.ai/oauth/authorize?z\007\033[94mhttps://claude.ai/oauth/authorize?z=1\033[39m\033]8;;\007\r\n'
    printf 'Paste code here if prompted > '
    read code
    [ "$code" = good ] || { echo "Invalid code. Log in again."; exit 1; } ;;
  *) exit 1 ;;
esac
"""
CODEX = r"""#!/bin/sh
case "$*" in
  --version) echo "codex-cli 0.171.0" ;;
  "login --device-auth")
    printf '1. Open this link\r\n   \033[94mhttps://auth.openai.com/codex/device\033[0m\r\n'
    printf '2. Enter this one-time code\r\n   ABCD-12345\r\n'
    echo $$ > "$HOME/codex.pid"
    until [ -e "$HOME/logged-in" ]; do sleep 0.05; done ;;
  *) exit 1 ;;
esac
"""

SHOWS_LINK = r"""#!/bin/sh
case "$*" in
  "{words}") printf 'Visit:\n\nhttps://{host}/login?token=1\n\nWhen prompted, paste your code here: '; read code ;;
  *) exit 1 ;;
esac
"""
OTHERS = {
    "amp": ("login", "ampcode.com", "code"),
    "claude-agent-acp": ("--cli auth login --claudeai", "claude.com", "code"),
    "codex-acp": ("cli login --device-auth", "auth.openai.com", "auto"),
    "kimi": ("login", "auth.kimi.com", "auto"),
}
"""Program -> the words with which it logs in, where its link leads, and whether the page shows a code."""


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Live]:
    folder, home = tmp_path / "bin", tmp_path / "home"
    home.mkdir()
    folder.mkdir()
    others = {name: SHOWS_LINK.replace("{words}", row[0]).replace("{host}", row[1]) for name, row in OTHERS.items()}
    for name, script in (("claude", CLAUDE), ("codex", CODEX), *others.items()):
        (folder / name).write_text(script)
        (folder / name).chmod(0o755)
    environ = {"PATH": f"{folder}:/usr/bin:/bin", "HOME": str(home)}
    async with live(tmp_path, environ=environ) as made:
        yield made


async def begin(server: Live, agent: str) -> Any:
    return (await server.api.post(f"/provider/{agent}/oauth/authorize", {"method": 0}, status=200)).body


async def test_a_link_is_shown_and_its_code_typed(server: Live) -> None:
    ways = (await server.api.get("/provider/auth", status=200)).body["claude"]
    assert ways[0] == {"type": "oauth", "label": "Log in with Claude Code"}
    told = await begin(server, "claude")
    assert told == {"url": "https://claude.ai/oauth/authorize?z=1", "method": "code", "instructions": logins.CODE}
    callback = "/provider/claude/oauth/callback"
    wrong = await server.api.post(callback, {"method": 0, "code": "bad"}, status=400)
    assert "Invalid code. Log in again." in str(wrong.body)
    await begin(server, "claude")
    assert (await server.api.post(callback, {"method": 0, "code": "good"}, status=200)).body is True


@pytest.mark.parametrize("agent", OTHERS)
async def test_each_program_is_run_with_its_own_words(server: Live, agent: str) -> None:
    _, host, method = OTHERS[agent]
    told = await begin(server, agent)
    assert (told["url"], told["method"]) == (f"https://{host}/login?token=1", method)


async def test_a_device_code_is_shown_and_its_login_awaited(server: Live, tmp_path: Path) -> None:
    told = await begin(server, "codex")
    assert (told["url"], told["method"]) == ("https://auth.openai.com/codex/device", "auto")
    assert "ABCD-12345" in told["instructions"]
    waiting = asyncio.create_task(server.api.post("/provider/codex/oauth/callback", {"method": 0}, status=200))
    (tmp_path / "home" / "logged-in").touch()
    async with asyncio.timeout(WAIT_S):
        assert (await waiting).body is True


async def test_opencode2_follows_and_cancels_a_login(server: Live, tmp_path: Path) -> None:
    info = (await server.api.get("/api/integration/codex", status=200)).body["data"]
    assert info["methods"][0] == {"type": "oauth", "id": "login", "label": "Log in with Codex"}
    connect = "/api/integration/codex/connect/oauth"
    await server.api.post(connect, {"methodID": "other"}, status=400)
    attempt = (await server.api.post(connect, {"methodID": "login"}, status=200)).body["data"]
    assert (attempt["mode"], attempt["url"]) == ("auto", "https://auth.openai.com/codex/device")
    path = f"{connect}/{attempt['attemptID']}"
    assert (await server.api.get(path, status=200)).body["data"]["status"] == "pending"
    await server.api.delete(path, status=204)
    await server.api.get(path, status=404)
    pid = int((tmp_path / "home" / "codex.pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_a_login_ends_with_its_time(server: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logins, "LOGIN_S", 0.2)
    await begin(server, "codex")
    answer = await server.api.post("/provider/codex/oauth/callback", {"method": 0}, status=400)
    assert "The login was not completed" in str(answer.body)


async def test_an_agent_without_a_login_says_what_to_do(server: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = await server.api.post("/provider/pi/oauth/authorize", {"method": 0}, status=400)
    assert "Run `pi` in a terminal" in str(answer.body)
    await server.api.post("/provider/nobody/oauth/authorize", {"method": 0}, status=400)
    await server.api.post("/provider/claude/oauth/callback", {"method": 0}, status=400)
