"""The person's own tools and plugins of OpenCode, with the real programs: they act, whichever agent answers."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from shim.sessions.permissions.trust_gate import TRUST

from .support.bench import CLAUDE, bench, nightly, open_watch, turn
from .support.children import processes_with, wait_for
from .support.places import MODULES
from .support.wire import texts

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]
TOOL = """
export default {
  description: "Tells the weather of a city",
  args: {},
  async execute(args, context) { return `sunny in ${(args.city ?? args.text)} (${context.directory})` },
}
"""
GUARD = """
import { appendFileSync } from "node:fs"
const runtime = process.versions.bun ? "bun" : "node"
export const Guard = async ({ directory }) => ({
  "tool.execute.before": async (input, output) => {
    appendFileSync(`${process.env.HOME}/guard.log`, `${runtime} ${input.tool} ${JSON.stringify(output.args)}\\n`)
    if (input.tool === "bash" && String(output.args.command).includes("forbidden")) throw new Error("THE-GUARD-SAYS-NO")
  },
  "shell.env": async (input, output) => {
    output.env.OF_PLUGIN = `${input.sessionID ? "SESSION" : "TERMINAL"}-SHELL`
  },
  "chat.params": async () => {},
})
"""
WATCHER = """
import { appendFileSync } from "node:fs"
export const Watcher = async ({ directory }) => {
  const note = (...words) => appendFileSync(`${process.env.HOME}/watch.log`, words.join(" ") + "\\n")
  return {
    config: async (config) => note("config", config.username),
    "chat.message": async (input, output) => note("chat", output.message.role, output.parts.map((part) => part.text).join()),
    "tool.execute.after": async (input, output) => note("after", input.tool, JSON.stringify(input.args), output.output),
    event: async ({ event }) => {
      if (event.type === "session.idle") note("idle", event.properties.sessionID)
      if (event.type === "session.idle") throw new Error("THE-WATCHER-FAILS")
    },
  }
}
"""
WEATHER = {
    CLAUDE: '[scene:tool:mcp__opencode-plugins__weather:{"city":"Rome"}] go',
    "codex": "[scene:mcp:weather] go",
}
"""Agent -> the prompt with which the model calls the tool `weather`."""
HOST = "host.mjs"


def plant(folder: Path) -> None:
    for name, source in (("tool/weather.ts", TOOL), ("plugin/guard.ts", GUARD)):
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source)


def by_night(*rows: tuple[str, str]) -> list[Any]:
    return [pytest.param(*row, marks=pytest.mark.nightly) for row in rows]


@pytest.mark.parametrize(("agent", "runtime"), [(CLAUDE, "bun"), *by_night((CLAUDE, "node"), ("codex", "bun"))])
def test_own_tools_are_called_by_their_names_and_a_guard_refuses(agent: str, runtime: str) -> None:
    """On the Bun inside of the installed OpenCode; on Node where there is none."""
    path = {"PATH": f"{MODULES / '.bin'}{os.pathsep}{os.environ['PATH']}"} if runtime == "bun" else {}
    with bench(agent, config={"permission": {"bash": "allow"}}, **path) as server:
        server.models()
        plant(server.place.home / ".config" / "opencode")
        watch = open_watch(server)
        (part,) = turn(server, watch, WEATHER[agent])
        assert part["tool"] == "weather", part
        assert str(server.place.project) in part["state"]["output"], part
        (refused,) = turn(server, watch, "[scene:bash:touch forbidden] go")
        assert refused["state"]["status"] == "error", refused
        assert "THE-GUARD-SAYS-NO" in refused["state"]["error"], refused
        assert not (server.place.project / "forbidden").exists()
        assert f"{runtime} bash" in (server.place.home / "guard.log").read_text()
        assert "opencode-plugins" not in server.api.get("/mcp")


@pytest.mark.parametrize("agent", [CLAUDE, *nightly("codex")])
def test_a_plugin_sees_prompts_calls_and_the_end_of_each_turn_once(agent: str) -> None:
    with bench(agent, config={"permission": {"bash": "allow"}, "username": "ann"}) as server:
        server.models()
        file = server.place.home / ".config" / "opencode" / "plugin" / "watch.js"
        file.parent.mkdir(parents=True)
        file.write_text(WATCHER)
        watch = open_watch(server)
        turn(server, watch, "[scene:text] say one")  # the host starts beside the first turn
        log = server.place.home / "watch.log"
        wait_for(log.exists, 20, "the host does not start")
        log.write_text("")
        at = watch.stream.mark()
        turn(server, watch, "[scene:bash:echo seen] go")
        wait_for(lambda: "idle" in log.read_text(), 20, lambda: log.read_text())
        lines = [line for line in log.read_text().splitlines() if line]
        assert [line.split()[0] for line in lines] == ["chat", "after", "idle"], lines
        assert "chat user [scene:bash:echo seen] go" in lines[0]
        assert lines[1].startswith("after bash")
        assert lines[1].endswith("seen")
        assert lines[2] == f"idle {watch.session}"
        toast = watch.stream.wait(lambda event: event["type"] == "tui.toast.show", since=at, timeout_s=20)
        assert "THE-WATCHER-FAILS" in toast["properties"]["message"]


@pytest.mark.parametrize(("agent", "mode"), [(CLAUDE, "bypass"), ("codex", "bypass"), *by_night(("pi", "build"))])
def test_a_guard_refuses_calls_that_need_no_question(agent: str, mode: str) -> None:
    with bench(agent, config={"permission": {"bash": "allow"}}, IS_SANDBOX="1") as server:
        server.models()
        plant(server.place.home / ".config" / "opencode")
        (refused,) = turn(server, open_watch(server), "[scene:bash:touch forbidden] go", agent=mode)
        assert "THE-GUARD-SAYS-NO" in refused["state"]["error"], refused
        assert not (server.place.project / "forbidden").exists()
        assert (server.place.home / "guard.log").read_text().count("bash") == 1


@pytest.mark.parametrize("agent", [CLAUDE, *nightly("codex")])
def test_rules_hold_for_own_tools_by_their_names(agent: str) -> None:
    with bench(agent, config={"permission": {"weather": "deny"}}) as server:
        server.models()
        plant(server.place.home / ".config" / "opencode")
        (part,) = turn(server, open_watch(server), WEATHER[agent])
        assert part["state"]["status"] == "error", part


@pytest.mark.parametrize("agent", [CLAUDE, *nightly("codex")])
def test_tools_and_plugins_of_a_project_run_only_when_it_is_trusted(agent: str) -> None:
    with bench(agent, config={}) as server:
        server.models()
        plant(server.place.project / ".opencode")
        watch = open_watch(server)
        at = watch.prompt("[scene:text] say hello")
        asked = watch.wait("question.asked", at)
        assert ".opencode/tool/weather.ts" in asked["questions"][0]["question"]
        assert ".opencode/plugin/guard.ts" in asked["questions"][0]["question"]
        assert not [line for line in processes_with(str(server.place.root)).values() if HOST in line]
        server.api.post(f"/question/{asked['id']}/reply", {"answers": [[TRUST]]})
        assert "say hello" in "\n".join(texts(watch.wait_for_end(at)))
        (part,) = turn(server, watch, WEATHER[agent])
        assert "sunny" in part["state"]["output"], part


@pytest.mark.parametrize(("agent", "mode"), [(CLAUDE, "bypass"), *by_night(("codex", "bypass"))])
def test_a_person_is_asked_before_a_call_when_a_guard_could_not_be_loaded(agent: str, mode: str) -> None:
    config = {"permission": "allow", "plugin": ["no-such-guard"]}
    with bench(
        agent, config=config, IS_SANDBOX="1", npm_config_registry="http://127.0.0.1:9", npm_config_fetch_retries="0"
    ) as server:
        server.models()
        watch = open_watch(server)
        at = watch.prompt("[scene:bash:touch first] go", agent=mode)
        asked = watch.wait("permission.asked", at)
        assert (asked["permission"], asked["patterns"]) == ("plugin", ["no-such-guard"])
        assert not (server.place.project / "first").exists()
        server.api.post(f"/permission/{asked['id']}/reply", {"reply": "always"})
        watch.wait_for_end(at)
        assert (server.place.project / "first").exists()
        at = watch.prompt("[scene:bash:touch second] go", agent=mode)
        watch.wait_for_end(at)
        assert (server.place.project / "second").exists()


def test_variables_of_a_plugin_are_those_of_each_shell_and_idle_hooks_are_named() -> None:
    with bench(CLAUDE, config={"permission": {"bash": "allow"}}) as server:
        server.models()
        plant(server.place.home / ".config" / "opencode")
        watch = open_watch(server)
        at = watch.stream.mark()
        (part,) = turn(server, watch, "[scene:bash:echo it is $OF_PLUGIN] go")
        assert "it is SESSION-SHELL" in part["state"]["output"], part
        watch.stream.wait(lambda event: "Without effect here: `chat.params` of plugins." in str(event), since=at)
        rows = {row["name"]: row["options"] for row in server.api.get("/agent")}
        assert rows["build"]["setup"]["withoutEffect"][CLAUDE] == ["`chat.params` of plugins"]
        at = watch.stream.mark()
        server.api.post(f"/session/{watch.session}/shell", {"agent": "build", "command": "echo it is $OF_PLUGIN > own"})
        watch.wait_for_end(at)
        assert (server.place.project / "own").read_text() == "it is SESSION-SHELL\n"
        server.api.post("/pty", {"command": "/bin/sh", "args": ["-c", "echo it is $OF_PLUGIN > terminal"]})
        file = server.place.project / "terminal"
        wait_for(lambda: file.exists() and file.read_text() == "it is TERMINAL-SHELL\n", 20, "the terminal has none")


GUARD_OF_NPM, TRACKER, TOOLS, HARNESS = (
    "cc-safety-net@2.4.5", "opencode-wakatime@1.3.9", "opencode-pty@0.1.3", "oh-my-opencode@4.19.4",
)  # fmt: skip
INSTALL_S = 150
ONLINE = dict.fromkeys(("NO_PROXY", "no_proxy"), "localhost,127.0.0.1,registry.npmjs.org")
"""The registry of npm is reached, and nothing else."""


@pytest.mark.nightly
@pytest.mark.parametrize("packages", [(GUARD_OF_NPM, TRACKER, TOOLS), (HARNESS,)])
def test_plugins_of_npm_act(packages: tuple[str, ...]) -> None:
    """docs/plugins.md says what of each works. A guard sees Claude's reads too."""
    config = {"plugin": list(packages), "permission": "allow"}
    path = {"PATH": f"{MODULES / '.bin'}{os.pathsep}{os.environ['PATH']}"}
    with bench(CLAUDE, config=config, **path, **ONLINE) as server:
        server.models()
        (server.place.project / ".env").write_text("SECRET=1\n")
        turn(server, open_watch(server), "[scene:text] say first")
        wait_for(lambda: "plugins.started" in server.shim.child.log(), INSTALL_S, lambda: server.shim.child.log()[-2000:])
        watch = open_watch(server)

        def call(scene: str) -> tuple[str, str, str]:
            (part,) = turn(server, watch, f"[scene:{scene}] go")
            return part["tool"], part["state"]["status"], part["state"].get("output") or part["state"].get("error")

        assert call("bash:echo fine") == ("bash", "completed", "fine")
        if HARNESS in packages:
            tool, status, words = call("tool:mcp__opencode-plugins__session_list:{}")
            assert (tool, status, watch.session in words) == ("session_list", "completed", True), words
            return
        for scene, tool in (("bash:git reset --hard", "bash"), ('tool:Read:{"file_path":".env"}', "read")):
            name, status, words = call(scene)
            assert (name, status, "BLOCKED by CC Safety Net" in words) == (tool, "error", True), words
        tool, status, words = call('tool:mcp__opencode-plugins__pty_spawn:{"command":"echo","args":["x"],"description":"d"}')
        assert (tool, status, "<pty_spawned>" in words) == ("pty_spawn", "completed", True), words
        assert (server.place.home / ".wakatime" / "opencode.log").exists()


@pytest.mark.nightly
def test_a_guard_that_does_not_answer_refuses() -> None:
    hanging = GUARD.replace('throw new Error("THE-GUARD-SAYS-NO")', "while (true) {}")
    with bench(CLAUDE, config={"permission": {"bash": "allow"}}) as server:
        server.models()
        folder = server.place.home / ".config" / "opencode"
        plant(folder)
        (folder / "plugin" / "guard.ts").write_text(hanging)
        watch = open_watch(server)
        started = time.monotonic()
        (refused,) = turn(server, watch, "[scene:bash:touch forbidden] go")
        assert time.monotonic() - started < 50
        assert "took more than" in refused["state"]["error"], refused
        assert not (server.place.project / "forbidden").exists()
        (part,) = turn(server, watch, "[scene:bash:echo good] go")  # the host is started again
        assert "good" in part["state"].get("output", ""), part["state"]
