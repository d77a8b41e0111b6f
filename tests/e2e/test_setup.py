"""One set-up of OpenCode behind each agent, with the real programs: what a person has configured acts, whoever answers."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from shim.dev.record.homes import MCP_SERVER
from shim.dev.record.mcp_server import result
from shim.sessions.permissions.trust_gate import TRUST

from .support.bench import CLAUDE, Bench, Watch, bench, nightly, open_watch, other_wires, turn
from .support.children import wait_for
from .support.places import Place
from .support.wire import Json, texts, tools

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]
SECRET = "the-secret-of-the-remote-server"
LOCAL = {"type": "local", "command": [sys.executable, str(MCP_SERVER)]}
ASKING = Path(__file__).parent / "support" / "asking_mcp.py"
REPORT_S = 20


@contextmanager
def remote_server() -> Iterator[tuple[str, list[str]]]:
    """A remote MCP server with one tool, `echo`: its URL, and the `Authorization` of each request."""
    seen: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None: ...

        def do_GET(self) -> None:
            self._answer(405, b"")

        def do_POST(self) -> None:
            seen.append(self.headers.get("Authorization", ""))
            message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if "id" not in message:
                self._answer(202, b"")
                return
            outcome = result(message["method"], message.get("params") or {})
            error = {"error": {"code": -32601, "message": "Method not found"}}
            body = {"result": outcome} if outcome is not None else error
            self._answer(200, json.dumps({"jsonrpc": "2.0", "id": message["id"], **body}).encode())

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/mcp", seen
    finally:
        server.shutdown()
        server.server_close()


NO_SECRETS = {"claude-agent-acp"}
"""Agents that would give secrets of MCP servers to another program as an argument, so that they do not get these servers."""
CALLS = {
    CLAUDE: 'tool:mcp__{server}__echo:{{"text":"hello"}}',
    "claude-agent-acp": 'tool:mcp__{server}__echo:{{"text":"hello"}}',
    "pi": 'tool:mcp__{server}__echo:{{"text":"hello"}}',
    "codex": "mcp:echo",
    "opencode": "mcp:echo",
}
"""Agent -> the scene in which the model calls the tool `echo` of a server."""


def call(server: Bench, watch: Watch, name: str) -> Json:
    """Have the model call the tool `echo` of an MCP server, and let it. Out: the tool part."""
    return turn(server, watch, f"[scene:{CALLS[server.agent].format(server=name)}] go")[-1]


def command_lines() -> str:
    """The arguments of all processes of this machine."""
    lines: list[str] = []
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                lines.append(file.read().decode("utf-8", "replace"))
        except OSError:
            continue
    return "\n".join(lines)


@pytest.mark.parametrize("agent", [CLAUDE, *nightly("codex", "claude-agent-acp", "pi")])
def test_mcp_servers_of_the_configuration_act_and_have_a_state(agent: str) -> None:
    with remote_server() as (url, seen):
        servers = {
            "near": LOCAL if agent in NO_SECRETS else {**LOCAL, "environment": {"TOKEN": SECRET}},
            "far": {"type": "remote", "url": url, "headers": {"Authorization": f"Bearer {SECRET}"}},
            "off": {**LOCAL, "enabled": False},
        }
        with bench(agent, config={"mcp": servers}) as server:
            server.models()
            watch = open_watch(server)
            assert server.api.get("/mcp")["off"] == {"status": "disabled"}
            part = call(server, watch, "near")
            assert "echo: hello" in part["state"]["output"], part
            assert (f"Bearer {SECRET}" in seen) == (agent not in NO_SECRETS)
            assert SECRET not in command_lines()
            assert SECRET not in server.shim.child.log()
            if agent not in NO_SECRETS:  # the protocol does not tell the state of MCP servers
                connected = {"status": "connected"}
                wait_for(lambda: server.api.get("/mcp").get("far") == connected, REPORT_S, lambda: server.api.get("/mcp"))
                assert server.api.get("/mcp") == {"near": connected, "far": connected, "off": {"status": "disabled"}}
                watch.stream.wait(lambda event: event["type"] == "server.instance.disposed")  # an open TUI reads them again
            server.api.post("/mcp/near/disconnect")
            server.api.post("/mcp/far/disconnect")
            assert server.api.get("/mcp")["near"] == {"status": "disabled"}
            at = watch.prompt("[scene:text] say more")
            assert "say more" in "\n".join(texts(watch.wait_for_end(at)))
            server.api.post("/mcp", {"name": "new", "config": LOCAL})
            assert "echo: hello" in call(server, open_watch(server), "new")["state"]["output"]


@pytest.mark.parametrize("agent", [CLAUDE, *nightly("codex", "pi")])
def test_a_session_of_v1_has_mcp_servers_of_its_own_also_while_it_runs(agent: str) -> None:
    with remote_server() as (url, seen), bench(agent, config={}) as server:
        server.models()
        stream = open_watch(server).stream
        peers = {"type": "local", "command": sys.executable, "args": [str(MCP_SERVER)], "env": {"TOKEN": SECRET}}
        body = {"agent": agent, "directory": str(server.place.project), "mcp": {"quokka": peers}}
        session = server.api.post("/v1/sessions/own", body)["openCodeSessionId"]
        watch = Watch(server.api, stream, session, stream.mark())
        assert "echo: hello" in call(server, watch, "quokka")["state"]["output"]
        assert SECRET not in command_lines()
        other = open_watch(server)
        other.wait_for_end(other.prompt("[scene:text] say other"))
        asked = next(row for row in server.model.requests() if row["body"].get("tools") and "say other" in json.dumps(row))
        assert "quokka" not in json.dumps(asked["body"]["tools"]), "another session has it"
        server.api.post("/v1/x-sessions/own/mcp", {"mcp": {"new": {"type": "remote", "url": url, "env": None}}})
        if agent == "codex":  # the scripted model looks for a tool once in a conversation
            watch.wait_for_end(watch.prompt("[scene:text] say more"))
        else:
            assert "echo: hello" in call(server, watch, "new")["state"]["output"]
        wait_for(lambda: seen, REPORT_S, "the new server is not asked")


def plant(place: Place) -> None:
    servers = {"planted": {"type": "local", "command": ["sh", "-c", f"touch {place.root}/ran; sleep 5"]}}
    (place.project / "opencode.json").write_text(json.dumps({"mcp": servers}))


@pytest.mark.parametrize("agent", [CLAUDE, *nightly("codex", "pi")])
def test_mcp_servers_of_a_project_run_only_when_it_is_trusted(agent: str) -> None:
    with bench(agent, config={}) as server:
        server.models()
        plant(server.place)
        mark = server.place.root / "ran"
        watch = open_watch(server)
        assert server.api.get("/mcp") == {"planted": {"status": "disabled"}}
        status, _ = server.api.call("POST", "/mcp/planted/connect", {})
        assert status == 400
        at = watch.prompt("[scene:text] say hello")
        asked = watch.wait("question.asked", at)
        assert "mcp.planted: sh -c" in asked["questions"][0]["question"]
        assert not mark.exists()
        server.api.post(f"/question/{asked['id']}/reply", {"answers": [[TRUST]]})
        watch.wait_for_end(at)
        wait_for(mark.exists, REPORT_S, "a trusted server does not run")


@pytest.mark.parametrize("agent", [CLAUDE, *nightly("codex", "claude-agent-acp", "pi")])
def test_instructions_reach_the_model_once_and_follow_their_files(agent: str) -> None:
    with bench(agent, config={"instructions": ["rules/*.md"]}) as server:
        server.models()
        file = server.place.project / "rules" / "a.md"
        file.parent.mkdir()
        (server.place.home / ".config" / "opencode" / "AGENTS.md").write_text("MARK-OF-THE-PERSON")
        file.write_text("MARK-BEFORE")
        watch = open_watch(server)

        def request_of(prompt: str) -> str:
            before = len(server.model.requests())
            at = watch.prompt(f"[scene:text] {prompt}")
            assert prompt in "\n".join(texts(watch.wait_for_end(at)))
            answered = [r for r in server.model.requests()[before:] if r["body"].get("tools")]  # Claude asks for a title too
            return json.dumps(next(r for r in answered if prompt in json.dumps(r)))

        request = request_of("say one")
        assert (request.count("MARK-OF-THE-PERSON"), request.count("MARK-BEFORE")) == (1, 1)
        assert request_of("say two").count("MARK-BEFORE") == 1
        file.write_text("MARK-AFTER")
        assert "MARK-AFTER" in request_of("say three")


@pytest.mark.parametrize("agent", [CLAUDE, *nightly("codex", "pi", "claude-agent-acp")])
def test_skills_reach_the_model_once_unless_a_rule_denies_them(agent: str) -> None:
    """From each folder in which OpenCode looks for skills, whether the agent looks there too or not."""
    places = {"own": ".opencode/skills", "claude": ".claude/skills", "agents": ".agents/skills"}
    held = {f"held-{name}" for name in places}
    with bench(agent, config={"permission": {"skill": {"held-*": "deny"}}}) as server:
        server.models()
        for name, folder in places.items():
            for skill in (name, f"held-{name}"):
                file = server.place.project / folder / skill / "SKILL.md"
                file.parent.mkdir(parents=True)
                file.write_text(f"---\nname: {skill}\ndescription: MARK-OF-{skill}\n---\nTHE-TEXT-OF-{skill}\n")
        assert {row["name"] for row in server.api.get("/skill")} == {*places, *held}
        watch = open_watch(server)
        watch.wait_for_end(watch.prompt("[scene:text] say hello"))
        asked = json.dumps(next(r for r in server.model.requests() if r["body"].get("tools") and "say hello" in json.dumps(r)))
        assert {name: asked.count(f"MARK-OF-{name}") for name in places} == dict.fromkeys(places, 1)
        offered = {name for name in held if f"MARK-OF-{name}" in asked}
        if agent in ("codex", "pi"):
            assert offered == set()
        else:  # it lists those that it finds itself, and its tool for them is refused
            assert offered <= {"held-claude"}
            parts = turn(server, watch, '[scene:tool:Skill:{"skill":"held-claude"}] go')
            assert [part["state"]["status"] for part in parts] in (["error"], []), parts
            assert "THE-TEXT-OF-held-claude" not in json.dumps(server.model.requests())


@pytest.mark.nightly
def test_opencode_has_the_models_and_agents_of_a_trusted_project() -> None:
    with bench("opencode") as server:
        near = {"npm": "@ai-sdk/openai-compatible", "options": {"baseURL": f"{server.model.url}/v1", "apiKey": "x"}}
        near["models"] = {"one": {"name": "One"}}
        values = {"provider": {"near": near}, "agent": {"poet": {"prompt": "You rhyme."}}}
        (server.place.project / "opencode.json").write_text(json.dumps(values))
        server.models()  # until it has told them, it is the judge of their ids
        watch = open_watch(server)
        wish = {"model": {"providerID": "opencode", "modelID": "near/one"}, "agent": "poet"}
        body = {"parts": [{"type": "text", "text": "too early"}], **wish}
        assert server.api.call("POST", f"/session/{watch.session}/prompt_async", body)[0] == 400, "nobody trusts it"
        at = watch.prompt("[scene:text] before")
        asked = watch.wait("question.asked", at)
        server.api.post(f"/question/{asked['id']}/reply", {"answers": [[TRUST]]})
        watch.wait_for_end(at)
        messages = watch.wait_for_end(watch.prompt("[scene:text] rhyme", **wish))
        assert texts(messages)[-1] == "You said: rhyme"
        assert "You rhyme." in json.dumps(server.model.requests()[-1])
        assert "poet" in [agent["name"] for agent in server.api.get("/agent")]
        watch.stream.close()


@pytest.mark.parametrize(
    ("agent", "link"), [(CLAUDE, "permission"), pytest.param("claude-agent-acp", "question", marks=pytest.mark.nightly)]
)
def test_a_question_of_an_mcp_server_reaches_the_person(agent: str, link: str) -> None:
    """A form is a question. A link is one too, or a permission, and shows all of itself."""
    config = {"mcp": {"asking": {"type": "local", "command": [sys.executable, str(ASKING)]}}, "permission": "allow"}
    with bench(agent, config=config) as server:
        server.models()
        watch = open_watch(server)
        for tool, kind, answer in (("form", "question", "Yes"), ("link", link, "Done")):
            at = watch.prompt(f"[scene:tool:mcp__asking__{tool}:{{}}] go")
            if agent != CLAUDE:  # it asks for the call too
                server.api.post(f"/permission/{watch.wait('permission.asked', at)['id']}/reply", {"reply": "once"})
            asked = watch.wait(f"{kind}.asked", at)
            assert ("Send this?" if tool == "form" else "https://mail.test/login") in json.dumps(asked)
            reply = {"answers": [[answer]]} if kind == "question" else {"reply": "once"}
            server.api.post(f"/{kind}/{asked['id']}/reply", reply)
            part = tools(watch.wait_for_answer(at))[-1]
            assert '"action": "accept"' in part["state"]["output"], part
            assert ('"confirm": true' in part["state"]["output"]) == (tool == "form")


@other_wires
def test_a_form_of_an_mcp_server_is_answered_by_the_other_wires(wire: str) -> None:
    config = {"mcp": {"asking": {"type": "local", "command": [sys.executable, str(ASKING)]}}, "permission": "allow"}
    with bench(CLAUDE, config=config) as server:
        server.models()
        watch = open_watch(server)
        at = watch.prompt_on(wire, "[scene:tool:mcp__asking__form:{}] go")
        watch.answer_on(wire, "Yes", at)
        assert '"confirm": true' in tools(watch.wait_for_answer(at))[-1]["state"]["output"]
