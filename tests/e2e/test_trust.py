"""Trust for a directory, with the real agents: nothing that a project plants runs before a person has said yes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shim.sessions.permissions.trust_gate import TRUST, WITHOUT

from .support.bench import CLAUDE, Bench, Watch, bench, nightly
from .support.children import wait_for
from .support.places import Place
from .support.wire import Stream, texts

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]
INSTRUCTIONS = "THE-INSTRUCTIONS-OF-THE-PROJECT"
DENY_QUESTIONS = [{"permission": "question", "pattern": "*", "action": "deny"}]
RUNS_S = 20


def mark(place: Place, name: str) -> str:
    """A shell command that leaves a file, outside of the project."""
    return f"mkdir -p {place.root}/marks; touch {place.root}/marks/{name}"


def marks(place: Place) -> set[str]:
    folder = place.root / "marks"
    return {path.name for path in folder.iterdir()} if folder.exists() else set()


def put(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))


def plant_claude(place: Place) -> set[str]:
    hooks = {
        event: [{"matcher": "", "hooks": [{"type": "command", "command": mark(place, event)}]}]
        for event in ("SessionStart", "UserPromptSubmit", "Stop")
    }
    helper = mark(place, "apiKeyHelper") + "; echo sk-planted"
    put(place.project / ".claude/settings.json", {"hooks": hooks, "apiKeyHelper": helper, "enableAllProjectMcpServers": True})
    server = {"command": "sh", "args": ["-c", mark(place, "mcp") + "; sleep 5"]}
    put(place.project / ".mcp.json", {"mcpServers": {"planted": server}})
    put(place.project / "CLAUDE.md", INSTRUCTIONS)
    return {"SessionStart", "UserPromptSubmit", "Stop", "apiKeyHelper", "mcp"}


def plant_codex(place: Place) -> set[str]:
    arguments = json.dumps(["-c", mark(place, "mcp") + "; sleep 5"])
    put(place.project / ".codex/config.toml", f'[mcp_servers.planted]\ncommand = "sh"\nargs = {arguments}\n')
    put(place.project / "AGENTS.md", INSTRUCTIONS)
    return {"mcp"}


def plant_pi(place: Place) -> set[str]:
    folder = json.dumps(str(place.root / "marks"))
    code = f'import fs from "fs"; fs.mkdirSync({folder}, {{recursive: true}}); fs.writeFileSync({folder} + "/extension", "");'
    put(place.project / ".pi/extensions/planted.ts", code + "\nexport default function (pi) {}\n")
    put(place.project / "AGENTS.md", INSTRUCTIONS)
    return {"extension"}


def plant_opencode(place: Place) -> set[str]:
    server = {"type": "local", "command": ["sh", "-c", mark(place, "mcp") + "; sleep 5"]}
    put(place.project / "opencode.json", {"mcp": {"planted": server}})
    put(place.project / "AGENTS.md", INSTRUCTIONS)
    return {"mcp"}


PLANT: dict[str, Callable[[Place], set[str]]] = {
    CLAUDE: plant_claude,
    "codex": plant_codex,
    "pi": plant_pi,
    "opencode": plant_opencode,
}
LOSES_INSTRUCTIONS = {"codex"}
"""Agents that leave out AGENTS.md of an untrusted project too (docs/trust.md)."""


@pytest.fixture(params=[CLAUDE, *nightly("codex", "pi", "opencode")])
def server(request: pytest.FixtureRequest) -> Iterator[Bench]:
    with bench(request.param, config={}, SHIM_SANDBOX="off") as made:  # what the kernel holds would hide what we leave in
        yield made


def read_instructions(server: Bench, before: int) -> bool:
    return INSTRUCTIONS in json.dumps(server.model.requests()[before:])


def test_nothing_runs_before_trust_and_all_of_it_after(server: Bench) -> None:
    server.models()
    planted = PLANT[server.agent](server.place)
    api = server.api
    stream = Stream(api)
    server.later(stream.close)

    quiet = Watch(api, stream, api.session(permission=DENY_QUESTIONS))  # as `opencode run` makes them
    before = len(server.model.requests())
    at = quiet.prompt("[scene:text] say hello")
    assert "say hello" in "\n".join(texts(quiet.wait_for_end(at)))
    assert "question.asked" not in [event["type"] for event in quiet.events(at)]
    assert marks(server.place) == set()
    assert read_instructions(server, before) == (server.agent not in LOSES_INSTRUCTIONS)

    watch = Watch(api, stream, api.session())
    at = watch.prompt("[scene:text] say yes")
    asked = watch.wait("question.asked", at)
    assert marks(server.place) == set()
    api.post(f"/question/{asked['id']}/reply", {"answers": [[TRUST]]})
    before = len(server.model.requests())
    assert "say yes" in "\n".join(texts(watch.wait_for_end(at)))
    wait_for(lambda: marks(server.place) >= planted, RUNS_S, lambda: f"ran only {marks(server.place)}")
    assert read_instructions(server, before)


def test_declined_project_settings_never_run() -> None:
    with bench(CLAUDE, config={}, SHIM_SANDBOX="off") as server:
        plant_claude(server.place)
        stream = Stream(server.api)
        server.later(stream.close)
        watch = Watch(server.api, stream, server.api.session())
        for text in ("say hello", "say more"):
            at = watch.prompt(f"[scene:text] {text}")
            if text == "say hello":
                asked = watch.wait("question.asked", at)
                server.api.post(f"/question/{asked['id']}/reply", {"answers": [[WITHOUT]]})
            assert text in "\n".join(texts(watch.wait_for_end(at)))
        assert marks(server.place) == set()
