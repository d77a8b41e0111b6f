"""The kernel holds real agents to rules that no protocol can hold: one command that no rule understands tries everything."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from shim.dev.record.homes import MCP_SERVER
from shim.processes.sandbox import find_tool
from shim.sessions.permissions.trust_gate import WITHOUT
from universal.registry import agents

from .support.agents import AGENTS
from .support.bench import Bench, Watch, bench, nightly
from .support.places import ADOPTED, PATIENCE
from .support.servers import configuration_file, configure
from .support.tui import command, tui
from .support.wire import Json, Stream, tools

TOOL = find_tool(os.environ.get("PATH", os.defpath))
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(300 * PATIENCE),
    pytest.mark.skipif(bool(TOOL.why), reason=f"no sandbox can be made here: {TOOL.why}"),
]
TURN_S = 120 * PATIENCE
ASKS: dict[str, tuple[str, Json]] = {
    "permission.asked": ("permission", {"reply": "once"}),
    "question.asked": ("question", {"answers": [[WITHOUT]]}),
}
KEYS = ("edit", "read", "external_directory", "webfetch")
RULES = {"*": "allow", "bash": "allow", "edit": "deny", "read": {"*": "allow", "secrets/*": "deny"}}
FREE = {"*": "allow", "bash": "allow"}
RULES_ALL: Json = {**RULES, "external_directory": "deny", "webfetch": "deny"}
SECRET, FAR_SECRET, PAGE = "magenta-inside", "indigo-outside", "ochre-page"
FIRST = "what the first prompt says"
MODES = {"codex-acp": "full-access"}
"""An agent's loosest mode, where that is not `bypass`, or `build` if it has none."""
TELL_NOTHING = ("gemini", "fast-agent")
"""Agents that tell nothing of what a command has written, fast-agent in a sandbox: no card can say what was refused."""
CASES = ["claude", "codex", *nightly("pi", "claude-agent-acp", "opencode-acp", "opencode")]
CASES += [ADOPTED[0]] if ADOPTED[0] and ADOPTED[0] not in CASES else []  # `make adopt AGENT=...`


class Page(BaseHTTPRequestHandler):
    """A page of this machine; also of any host, for who takes it for a proxy."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(PAGE.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads it."""


@pytest.fixture
def page() -> Iterator[str]:
    """The address of a server on this machine, which is no model."""
    server = HTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/page"
    server.shutdown()
    server.server_close()


def need_own_network(agent: str) -> None:
    """Skip an agent that talks with a server of its own, where no network can be made for both."""
    if not TOOL.has_mounts and agents()[AGENTS[agent].provider].rules.sandbox.own_server and agent != "opencode":
        pytest.skip(f"{agent} has no network of its own by {TOOL.kind}: {TOOL.better}")


def probe(bed: Bench, page: str) -> str:
    """A command that does one thing of each key and says `KEY=WHAT IT GOT` of it. The rules see only `sh probe.sh`."""
    outside = bed.place.root / "outside"
    for folder in (outside, bed.place.project / "secrets", bed.place.project / "sub"):
        folder.mkdir(exist_ok=True)
    (outside / "far.txt").write_text(FAR_SECRET)
    (bed.place.project / "secrets" / "key").write_text(SECRET)
    lines = (
        'echo "edit=$(echo x 2>&1 > made.txt && echo made)"',
        'echo "read=$(cat secrets/key 2>&1)"',
        f'echo "external_directory=$(cat {outside}/far.txt 2>&1)"',
        f'echo "webfetch=$(wget -t1 -qO- {page} 2>&1 || curl -s {page} 2>&1)"',
    )
    (bed.place.project / "probe.sh").write_text("\n".join(lines) + "\n")
    return "sh probe.sh"


def keys_in(said: str) -> set[str]:
    """The keys that were not held."""
    words = {"edit": "edit=made", "read": SECRET, "external_directory": FAR_SECRET, "webfetch": PAGE}
    return {key for key, word in words.items() if word in said}


def play(bed: Bench, watch: Watch, stream: Stream, scene: str) -> str:
    """One turn in the agent's loosest mode; every request is accepted, and trust declined. Gives all that tools have said."""
    at, before = stream.mark(), len(bed.model.requests())
    modes = {mode.id for mode in agents()[AGENTS[bed.agent].provider].abilities.modes}
    mode = MODES.get(bed.agent, "bypass" if "bypass" in modes else "build")
    bed.api.prompt(watch.session, f"[scene:{scene}] {FIRST}", agent=mode)
    while True:
        event = stream.wait(lambda e: e["type"] in ("session.idle", *ASKS), since=at, timeout_s=TURN_S)
        at = next(n for n, (_, seen) in enumerate(stream.events) if seen is event) + 1
        if event["type"] == "session.idle":
            return json.dumps([request["body"] for request in bed.model.requests()[before:]])
        kind, answer = ASKS[event["type"]]
        bed.api.post(f"/{kind}/{event['properties']['id']}/reply", answer)


@pytest.mark.parametrize("agent", CASES)
def test_denied_things_do_not_happen_whatever_a_command_does(agent: str, page: str) -> None:
    need_own_network(agent)
    level = "project" if agents()[AGENTS[agent].provider].program.transport == "http" else "strict"
    # fast-agent ends without the MCP server of the person's own settings, so `auto` does not enclose it (`shown`).
    paths = {agent: {"sandbox_paths": [str(MCP_SERVER.parent), sys.prefix, sys.base_prefix]}} if agent == "fast-agent" else {}
    with bench(agent, config={"permission": RULES_ALL}, SHIM_SANDBOX=level, SHIM_AGENTS=json.dumps(paths), IS_SANDBOX="1") as bed:
        command = probe(bed, page)
        free = subprocess.run(command, shell=True, cwd=bed.place.project, capture_output=True, text=True, timeout=30).stdout
        assert keys_in(free) == set(KEYS), "without a sandbox the command does all of it"
        (bed.place.project / "made.txt").unlink()
        stream = Stream(bed.api)
        watch = Watch.on(bed.api, stream)
        cd = f"cd {bed.place.project} && " if agent == "fast-agent" else ""  # its own shell begins above its own folder
        said = play(bed, watch, stream, f"bash:{cd}{command}")
        assert "edit=" in said, f"the command ran: {said[-3000:]} {bed.api.messages(watch.session)}"
        shown = set(KEYS) if agent == "fast-agent" else set(agents()[AGENTS[agent].provider].rules.sandbox.shown)
        assert keys_in(said) == set(KEYS) - shown, "the row of the registry says what the kernel holds"
        assert not (bed.place.project / "made.txt").exists()
        cards = "".join(map(str, (part["state"].get("output", part["state"]) for part in tools(bed.api.messages(watch.session)))))
        for sentence in () if agent in TELL_NOTHING else ("your rule `edit` denies `*`", "your rule `read` denies `secrets/*`"):
            assert sentence in cards, cards
            assert sentence not in said, "the agent is not told more than the kernel says"
        at_work = set(bed.agents())  # Gemini CLI starts itself once more
        config = json.loads(configuration_file(bed.place).read_text())
        configure(bed.place, {**config, "permission": {**RULES_ALL, "edit": "allow"}})
        said = play(bed, watch, stream, f"bash:{cd}touch sub/later.txt")  # by Landlock, nothing can be made beside what is denied
        assert (bed.place.project / "sub" / "later.txt").exists(), "another rule, another process"
        after = set(bed.agents())
        assert at_work and after and not at_work & after
        assert said.count(FIRST) >= 2, "the new process goes on with the conversation"
        stream.close()


@pytest.mark.parametrize("agent", ["claude", *nightly("codex", "opencode-acp")])
def test_a_host_that_a_rule_asks_for_is_reached_if_a_person_says_so(agent: str, page: str) -> None:
    """The page is a proxy of the person's, which has all hosts."""
    need_own_network(agent)
    takes_patterns = agent != "opencode-acp"  # OpenCode itself does not start with patterns for `webfetch`
    web = {"*": "ask", "http://denied.invalid/*": "deny"} if takes_patterns else "ask"
    rules = {"*": "allow", "bash": "allow", "webfetch": web}
    proxy = page.removesuffix("/page")
    with bench(agent, config={"permission": rules}, SHIM_SANDBOX="strict", IS_SANDBOX="1", HTTPS_PROXY=proxy) as bed:
        stream = Stream(bed.api)
        watch = Watch.on(bed.api, stream)
        for host, reply, is_asked, got in (
            ("once.invalid", "once", True, PAGE),
            ("never.invalid", "reject", True, "a person was asked, and has refused it"),
            ("always.invalid", "always", True, PAGE),
            ("always.invalid", "reject", False, PAGE),
            *([("denied.invalid", "once", False, "no rule allows it")] if takes_patterns else []),
        ):
            at, asked = stream.mark(), ASKS["permission.asked"]
            ASKS["permission.asked"] = ("permission", {"reply": reply})
            try:
                said = play(bed, watch, stream, f"bash:curl -s http://{host}/page")
            finally:
                ASKS["permission.asked"] = asked
            asks = [e["properties"]["patterns"] for e in stream.of(watch.session, at) if e["type"] == "permission.asked"]
            hosts = [patterns for patterns in asks if ".invalid" in str(patterns)]  # Codex itself wants to reach github.com
            assert hosts == ([[f"http://{host}/"]] if is_asked else []), (host, asks, said[-2000:])
            assert got in said, said[-3000:]
        stream.close()


@pytest.mark.parametrize("agent", nightly("opencode-acp", "claude-agent-acp"))
def test_unasked_the_kernel_holds_what_the_agents_protocol_cannot(agent: str, page: str) -> None:
    with bench(agent, config={"permission": FREE}, IS_SANDBOX="1") as bed:
        command = probe(bed, page)
        stream = Stream(bed.api)
        said = play(bed, Watch.on(bed.api, stream), stream, f"bash:{command}")
        assert keys_in(said) >= {"edit", "read", "external_directory"}, "no rule needs a sandbox"
        (bed.place.project / "made.txt").unlink()
        configure(bed.place, {**json.loads(configuration_file(bed.place).read_text()), "permission": RULES_ALL})
        said = play(bed, Watch.on(bed.api, stream), stream, f"bash:{command}")
        assert "edit=" in said, f"the command ran: {said[-3000:]}"
        keeps_network = agent == "opencode-acp" and not TOOL.has_mounts  # it talks with a server of its own
        assert keys_in(said) == ({"webfetch"} if keeps_network else set())
        assert not (bed.place.project / "made.txt").exists()
        stream.close()


def test_in_an_untrusted_project_the_agent_sees_the_project_alone() -> None:
    with bench("claude", config={"permission": {"bash": "allow"}}, IS_SANDBOX="1") as bed:
        outside = bed.place.root / "outside"
        outside.mkdir()
        (outside / "far.txt").write_text(FAR_SECRET)
        stream = Stream(bed.api)
        scene = f"bash:cat {outside}/far.txt; echo looked >> seen.txt"
        assert FAR_SECRET in play(bed, Watch.on(bed.api, stream), stream, scene), "there is nothing to trust"
        (bed.place.project / ".mcp.json").write_text(json.dumps({"mcpServers": {"planted": {"command": "sh"}}}))
        assert FAR_SECRET not in play(bed, Watch.on(bed.api, stream), stream, scene), "a person has declined"
        assert (bed.place.project / "seen.txt").read_text() == "looked\n" * 2, "its work in the project goes on"
        said = [event["properties"].get("message", "") for _, event in stream.events if event["type"] == "tui.toast.show"]
        assert any("the agent sees the project alone" in words for words in said), said
        stream.close()


def test_the_list_of_the_tui_says_who_runs_in_a_sandbox() -> None:
    careful = {"careful": {"mode": "primary", "sandbox": "strict", "description": "Takes care."}}
    with bench("claude", config={"agent": careful}, SHIM_SANDBOX="project", IS_SANDBOX="1") as bed:
        terminal = tui(bed.place, bed.url)
        try:
            command(terminal, "agents")
            screen = terminal.wait("bypass In a sandbox")
            assert "build In a sandbox (project)." in screen and "careful In a sandbox (strict). Takes care." in screen
        finally:
            terminal.close()
