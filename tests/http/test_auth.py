"""API keys: kept for their owner only, handed to agents, never shown."""

from __future__ import annotations

import json
import stat
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from shim.agents.keys import KeyStore
from shim.lib.errors import StoreError
from tests.support.live import Live
from universal.registry import agents

KEY = "sk-very-secret-123"
GIVEN = {"type": "api", "key": KEY}


async def test_a_key_is_kept_in_a_file_of_its_owner(server: Live, tmp_path: Path) -> None:
    assert (await server.api.request("PUT", "/auth/claude", json=GIVEN, status=200)).body is True
    file = tmp_path / "data" / "auth.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert json.loads(file.read_text()) == {"claude": GIVEN}
    assert KeyStore(file).environment(agents()["claude"]) == {"ANTHROPIC_API_KEY": KEY}
    assert KeyStore(file).environment(agents()["codex"]) == {}
    assert (await server.api.delete("/auth/claude", status=200)).body is True
    assert (await server.api.delete("/auth/claude", status=200)).body is True
    assert KeyStore(file).environment(agents()["claude"]) == {}


def test_a_key_that_is_set_while_the_file_is_read_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents are asked what they offer in one thread while a client sets a key in another."""
    store, begun, go_on = KeyStore(tmp_path / "auth.json"), Event(), Event()

    def read_late(path: Path) -> str:
        if not begun.is_set():
            begun.set()
            assert go_on.wait(10)
        raise FileNotFoundError(path)  # as it was before

    with ThreadPoolExecutor(2) as threads, monkeypatch.context() as slow:
        slow.setattr(Path, "read_text", read_late)
        reading = threads.submit(store.providers)
        assert begun.wait(10)
        setting = threads.submit(store.set, "claude", KEY)
        wait((setting,), timeout=0.1)
        go_on.set()
        wait((reading, setting), timeout=10)
    assert store.providers() == ["claude"]
    store.remove("claude")
    assert json.loads((tmp_path / "auth.json").read_text()) == {}


async def test_a_key_is_in_no_answer_and_no_log(server: Live, capsys: pytest.CaptureFixture[str]) -> None:
    await server.api.request("PUT", "/auth/anthropic", json=GIVEN, status=200)
    for path in ("/config", "/config/providers", "/provider", "/provider/auth", "/global/config"):
        assert KEY not in json.dumps((await server.api.get(path, status=200)).body)
    broken = await server.api.request("PUT", "/auth/nobody", json=GIVEN, status=400)
    assert KEY not in json.dumps(broken.body)
    wrong = await server.api.request("PUT", "/auth/claude", json={"type": "api", "key": [KEY]}, status=400)
    assert KEY not in json.dumps(wrong.body)
    captured = capsys.readouterr()
    assert KEY not in captured.out + captured.err


@pytest.mark.parametrize(
    ("provider", "body", "why"),
    [
        ("claude", {"type": "oauth", "refresh": "r", "access": "a", "expires": 1}, "claude auth login"),
        ("claude", {"type": "api", "key": "  "}, "Only API keys"),
        ("mock", GIVEN, 'a key of "mock"'),
    ],
)
async def test_a_key_that_cannot_be_stored_says_what_to_do(
    server: Live, tmp_path: Path, provider: str, body: Any, why: str
) -> None:
    answer = await server.api.request("PUT", f"/auth/{provider}", json=body, status=400)
    assert why in answer.body["data"]["message"]
    assert not (tmp_path / "data" / "auth.json").exists()


async def test_a_login_without_the_program_says_what_to_do(server: Live) -> None:
    answer = await server.api.post("/provider/claude/oauth/authorize", {"method": 0}, status=400)
    assert "Run `claude` in a terminal" in str(answer.body)


def test_keys_for_all_and_for_one(tmp_path: Path) -> None:
    keys = KeyStore(tmp_path / "auth.json")
    keys.set("anthropic", "all")
    keys.set("openai", "o")
    keys.set("claude", "own")
    assert keys.environment(agents()["claude"])["ANTHROPIC_API_KEY"] == "own"
    assert keys.environment(agents()["pi"])["ANTHROPIC_API_KEY"] == "all"
    assert keys.environment(agents()["codex"])["CODEX_API_KEY"] == "o"


def test_a_key_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    keys = KeyStore(tmp_path / "file" / "auth.json")
    with pytest.raises(StoreError, match="could not be kept"):
        keys.set("claude", KEY)
    assert keys.environment(agents()["claude"]) == {}
