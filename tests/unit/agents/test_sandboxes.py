"""Which sandbox an agent gets, and which places it needs inside."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from shim.agents import sandboxes
from shim.agents.catalog import OfferedMode
from shim.agents.sandboxes import launch_inside, programs
from shim.agents.setup import agents_of
from shim.dev.record.homes import lead_by_card
from shim.lib.errors import AgentStartFailed, InvalidRequest
from shim.lib.settings import Settings
from shim.lib.settings_tables import CustomAgent
from shim.processes.egress import McpDoor
from shim.processes.sandbox import Tool
from universal.agent_spec import AgentSpec
from universal.agents.acp.profiles import CARDS, RECORD
from universal.launch import LaunchSpec
from universal.permissions import PERMISSION_KEYS, Rule
from universal.sandbox import Level, bounds_of
from universal.session.values import SessionRecord
from universal.setup import ConfigAgent, McpServer


def spec(settings: Settings, name: str = "codex") -> AgentSpec:
    return agents_of(settings)[name]


def find(monkeypatch: pytest.MonkeyPatch, tool: Tool) -> None:
    def find_tool(path: str) -> Tool:
        return tool

    monkeypatch.setattr(sandboxes, "find_tool", find_tool)


@pytest.fixture
def _tool(monkeypatch: pytest.MonkeyPatch) -> None:
    find(monkeypatch, Tool("/usr/bin/bwrap"))


def test_the_stricter_of_the_servers_and_the_agents_level_counts() -> None:
    assert spec(Settings()).rules.sandbox.level == "auto"
    strict = {"codex": CustomAgent(sandbox="strict", sandbox_paths=("~/.cargo",))}
    settings = Settings(sandbox="project", agents=strict)
    assert (spec(settings).rules.sandbox.level, spec(settings, "claude").rules.sandbox.level) == ("strict", "project")
    assert spec(settings).rules.sandbox.paths == ("~/.cargo",)
    assert spec(settings).program.binaries == ("codex",), "the agent itself stays"
    loose = {"codex": CustomAgent(sandbox="off", sandbox_paths=("~/.cargo",))}
    assert spec(Settings(sandbox="strict", agents=loose)).rules.sandbox.level == "strict"


def deny(key: str) -> tuple[Rule, ...]:
    return (Rule(key, "*", "deny"),)


@pytest.mark.parametrize("name", agents_of(Settings()))
def test_unasked_an_agent_is_enclosed_where_its_protocol_cannot_hold_a_rule(name: str) -> None:
    agent = spec(Settings(), name)
    for key in PERMISSION_KEYS:
        found = sandboxes.bounds(agent, deny(key))
        assert (found is not None) is (key in agent.rules.sandbox.shown and bool(agent.rules.enforcement.gap(key))), key
        assert sandboxes.bounds(spec(Settings(sandbox="off"), name), deny(key)) is None, "the person said `off`"
    assert sandboxes.bounds(agent, ()) is None
    asks = tuple(Rule(key, "*", "ask") for key in PERMISSION_KEYS)
    assert sandboxes.bounds(agent, asks) is None, "no mount asks"


@pytest.mark.parametrize("name", agents_of(Settings()))
def test_unasked_an_agent_is_enclosed_in_an_untrusted_project(name: str) -> None:
    agent = spec(Settings(), name)
    found = sandboxes.bounds(agent, (), is_trusted=False)
    assert (found is not None) is bool(agent.rules.sandbox.shown), "only where it was seen to work"
    assert sandboxes.bounds(spec(Settings(sandbox="off"), name), (), is_trusted=False) is None


@pytest.mark.parametrize("name", ["claude", "opencode-acp"])
def test_unasked_no_rule_that_only_asks_takes_the_network(name: str) -> None:
    asks, denies = Rule("*", "*", "ask"), Rule("webfetch", "http://evil.example/*", "deny")
    part = Rule("edit", "db/*", "deny")
    for rules in ((asks,), (asks, part)):
        found = sandboxes.bounds(spec(Settings(), name), rules, is_trusted=False)
        assert found is not None and found.web is None
    for settings, rules in ((Settings(), (asks, denies)), (Settings(sandbox="project"), (asks,))):
        found = sandboxes.bounds(spec(settings, name), rules, is_trusted=False)
        assert found is not None and found.web is not None, "a rule denies, or a person wanted the sandbox"


def test_a_session_or_an_agent_of_the_configuration_only_tightens() -> None:
    record = SessionRecord("ses_1", metadata={"sandbox": "strict"})
    careful, other = ConfigAgent("careful", sandbox="project"), ConfigAgent("other")
    assert sandboxes.level_of(record, None) == sandboxes.level_of(record, careful) == "strict"
    assert sandboxes.level_of(SessionRecord("ses_1"), careful) == "project"
    assert sandboxes.level_of(SessionRecord("ses_1", metadata={"sandbox": "off"}), other) == "auto", "of an older server"
    found = sandboxes.bounds(spec(Settings(sandbox="off"), "claude"), (), "strict")
    assert found is not None and found.level == "strict"
    with pytest.raises(InvalidRequest, match=r"metadata.sandbox cannot be used: give project or strict, not 'off'"):
        sandboxes.check_level({"sandbox": "off"})
    sandboxes.check_level({"sandbox": "project"})
    sandboxes.check_level(None)


def test_a_mode_says_who_runs_in_a_sandbox() -> None:
    codex, claude = spec(Settings(agents={"codex": CustomAgent(sandbox="strict")}), "codex"), spec(Settings(), "claude")
    assert OfferedMode("build", "Asks.", (codex, claude)).words == "In a sandbox (strict): Codex. Asks."
    careful = ConfigAgent("careful", sandbox="project")
    assert OfferedMode("careful", "", (claude,), own=careful).words == "In a sandbox (project)."
    both = OfferedMode("careful", "", (codex, claude), own=careful)
    assert both.words == "In a sandbox (project): Claude Code. In a sandbox (strict): Codex."
    assert OfferedMode("build", "Asks.", (claude,)).words == "Asks."


def test_a_part_that_is_denied_needs_the_kernel_where_a_protocol_holds_only_the_whole() -> None:
    agent = spec(Settings(), "claude-agent-acp")
    assert agent.rules.enforcement.partial and not agent.rules.enforcement.missing
    assert sandboxes.bounds(agent, (Rule("read", "*", "deny"),)) is None
    assert sandboxes.bounds(agent, (Rule("read", "*", "allow"), Rule("read", "secrets/*", "deny"))) is not None


def test_the_mock_has_no_process_to_enclose() -> None:
    mock = spec(Settings(sandbox="strict"), "mock")
    assert sandboxes.bounds(mock, ()) is None
    assert sandboxes.bounds(spec(Settings(sandbox="strict")), ()) is not None


def test_without_a_tool_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find(monkeypatch, Tool(why="There is no program bwrap. Install bubblewrap."))
    bounds = bounds_of("strict", ())
    assert bounds is not None
    with pytest.raises(AgentStartFailed, match=r"Codex was not started: its sandbox is strict\. There is no .* Install"):
        launch_inside(spec(Settings()), bounds, LaunchSpec(("/usr/bin/codex",), str(tmp_path)), {"HOME": str(tmp_path)})


def test_an_agents_own_folder_is_made_and_writable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find(monkeypatch, Tool("/usr/bin/bwrap"))
    home, project = tmp_path / "home", tmp_path / "project"
    project.mkdir()
    bounds = bounds_of("strict", ())
    assert bounds is not None
    launch = LaunchSpec(("/usr/bin/codex", "app-server"), str(project), {"KEY": "x"})
    made = launch_inside(spec(Settings()), bounds, launch, {"HOME": str(home), "PATH": "/usr/bin"}, [str(tmp_path)])
    own = str(home / ".codex")
    assert f"--bind-try {own} {own}" in " ".join(made.argv)
    assert (home / ".codex").stat().st_mode & 0o777 == 0o700
    assert made.argv[-2:] == ("/usr/bin/codex", "app-server") and made.env == {"KEY": "x"}
    moved = launch_inside(spec(Settings()), bounds, launch, {"HOME": str(home), "CODEX_HOME": str(tmp_path / "moved")})
    assert own not in moved.argv and str(tmp_path / "moved") in moved.argv


def test_programs_are_seen_with_what_they_load_and_no_home(tmp_path: Path) -> None:
    home = tmp_path / "home"
    program = home / ".node" / "lib" / "node_modules" / "agent" / "cli.js"
    for folder in (program.parent, home / ".node" / "bin", home / ".local" / "bin", home / ".local" / "lib"):
        folder.mkdir(parents=True)
    program.touch()
    (home / ".node" / "bin" / "agent").symlink_to(program)
    path = f"{home}/.node/bin:{home}/.local/bin:/usr/bin:relative:{home}:{tmp_path}"
    assert set(programs(str(home / ".node" / "bin" / "agent"), {"HOME": str(home), "PATH": path})) == {
        f"{home}/.node/bin",
        f"{home}/.node/lib",
        f"{home}/.node/lib/node_modules",
        f"{home}/.local/bin",
    }


def test_a_python_agent_is_seen_with_its_interpreter_elsewhere(tmp_path: Path) -> None:
    """As `uv tool install` and `make adopt` install one: the interpreter of its environment is a link."""
    tool, base = tmp_path / "tools" / "agent", tmp_path / "python" / "3.12"
    for folder in (tool / "bin", tool / "lib", base / "bin", base / "lib"):
        folder.mkdir(parents=True)
    for file in (tool / "pyvenv.cfg", tool / "bin" / "agent", base / "bin" / "python3.12"):
        file.touch()
    (tool / "bin" / "python").symlink_to(base / "bin" / "python3.12")
    seen = set(programs(str(tool / "bin" / "agent"), {"HOME": str(tmp_path / "home"), "PATH": ""}))
    assert seen >= {f"{tool}", f"{tool}/bin", f"{tool}/lib", f"{base}/bin", f"{base}/lib"}


def test_a_process_without_a_network_reaches_its_model_alone(tmp_path: Path) -> None:
    (tmp_path / ".codex").mkdir()
    config = (
        '[model_providers.mine]\nbase_url = "http://127.0.0.1:8080/v1"\n[model_providers.b]\nbase_url = "https://b.example/v1"\n'
    )
    (tmp_path / ".codex" / "config.toml").write_text(config)
    bounds = bounds_of("strict", ())
    assert bounds is not None
    codex = spec(Settings(sandbox="strict"))
    found = sandboxes.reach(codex, bounds, {"HOME": str(tmp_path)})
    assert found is not None
    assert found.ports == (8080,)
    assert {"api.openai.com", "b.example"} <= found.hosts
    gateway = sandboxes.reach(codex, bounds, {"HOME": str(tmp_path), "OPENAI_BASE_URL": "https://gate.example/v1"})
    assert gateway is not None
    assert gateway.hosts == {"gate.example", "b.example"}, "the person's own address stands in the place of the usual ones"


@pytest.mark.parametrize("name", [name for name, card in CARDS.items() if RECORD in card and "sandbox" in card])
def test_the_model_that_a_card_leads_to_is_reached(tmp_path: Path, name: str) -> None:
    """The words of its own settings for an address differ: `base_url`, `baseURL`, `api_base`."""
    (tmp_path / "project").mkdir()
    led = lead_by_card(name, tmp_path, tmp_path / "project", "http://127.0.0.1:8080")
    bounds = bounds_of("strict", ())
    assert bounds is not None
    reached = sandboxes.reach(spec(Settings(sandbox="strict"), name), bounds, {**led, "HOME": str(tmp_path)})
    assert reached is not None
    assert reached.ports == (8080,)


@pytest.mark.parametrize(
    ("url", "has_mounts", "port"),
    [
        ("http://127.0.0.1:4096/base/mcp", True, 4096),
        ("http://127.0.0.1:4096/base/mcp", False, None),
        ("http://192.0.2.1:4096/base/mcp", True, None),
        ("https://127.0.0.1:4096/base/mcp", True, None),
        ("http://[::1]:4096/base/mcp", True, None),
    ],
)
def test_our_tools_are_reached_from_a_network_of_its_own_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, has_mounts: bool, port: int | None
) -> None:
    monkeypatch.setattr(sandboxes, "tool", lambda _: SimpleNamespace(has_mounts=has_mounts))
    bounds = bounds_of("strict", ())
    assert bounds is not None
    server = McpServer("opencode-shim", url=url, headers={"Authorization": "Bearer t"})
    found = sandboxes.reach(spec(Settings(sandbox="strict"), "claude"), bounds, {"HOME": str(tmp_path)}, server)
    assert found is not None
    assert found.door == (None if port is None else McpDoor(port, "/base/mcp", "Bearer t"))


def test_a_process_with_the_machines_network_needs_no_proxy(tmp_path: Path) -> None:
    bounds = bounds_of("project", ())
    assert bounds is not None
    assert sandboxes.reach(spec(Settings()), bounds, {"HOME": str(tmp_path)}) is None


def test_an_agent_that_is_reached_by_the_network_keeps_it_or_does_not_start(tmp_path: Path) -> None:
    deny = (Rule("webfetch", "*", "deny"),)
    kept = sandboxes.bounds(spec(Settings(sandbox="project"), "opencode"), deny)
    assert kept is not None and kept.web is None, "its own engine holds the rule"
    opencode = spec(Settings(sandbox="strict"), "opencode")
    strict = sandboxes.bounds(opencode, deny)
    assert strict is not None
    with pytest.raises(AgentStartFailed, match="reaches it over the network"):
        sandboxes.reach(opencode, strict, {"HOME": str(tmp_path)})


def test_webfetch_is_held_by_the_kernel_only_without_a_network() -> None:
    codex = spec(Settings(sandbox="project"))
    assert "webfetch" not in sandboxes.held_keys(codex, bounds_of("project", ()))
    assert "webfetch" in sandboxes.held_keys(codex, bounds_of("project", (Rule("webfetch", "*", "deny"),)))
    assert sandboxes.held_keys(codex, None) == ()


@pytest.mark.parametrize(
    ("settings", "of_session", "is_trusted", "is_held", "has_network"),
    [
        ("auto", "auto", True, False, True),
        ("auto", "auto", False, True, True),
        ("off", "auto", False, False, True),
        ("project", "auto", True, True, True),
        ("strict", "auto", True, True, False),
        ("auto", "strict", True, True, False),
        ("off", "project", True, True, True),
    ],
)
@pytest.mark.usefixtures("_tool")
def test_shell_lines_are_held_where_a_level_says_so_or_the_project_is_untrusted(
    settings: Level, of_session: Level, is_trusted: bool, is_held: bool, has_network: bool, tmp_path: Path
) -> None:
    environ = {"HOME": str(tmp_path / "home"), "PATH": "/usr/bin:/bin"}
    project = tmp_path / "project"
    project.mkdir()
    held = sandboxes.shell_sandbox(settings, environ, lambda _: is_trusted, of_session)(("/bin/sh", "-c", "ls"), str(project))
    assert list(held[-3:]) == ["/bin/sh", "-c", "ls"]
    assert ("--unshare-pid" in held) is is_held
    assert ("--unshare-net" not in held) is has_network
    assert (f"--symlink /dev/null {tmp_path}/home/.zshrc" in " ".join(held)) is is_held, "else zsh asks how it is to be set up"


def test_without_a_tool_only_a_strict_sandbox_refuses_shell_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find(monkeypatch, Tool(why="There is no program bwrap."))
    line, home = ("/bin/sh", "-c", "ls"), {"HOME": str(tmp_path / "home")}
    assert sandboxes.shell_sandbox("project", home, lambda _: True, "auto")(line, str(tmp_path)) == line
    with pytest.raises(OSError, match="There is no program bwrap"):
        sandboxes.shell_sandbox("strict", home, lambda _: True, "auto")(line, str(tmp_path))
