"""Settings: the order of the sources, what each says of itself, and what a wrong value is told."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest

import shim.lib.settings
from shim.agents.setup import agents_of
from shim.dev.record.driver import counting_ids
from shim.lib.settings import ALIASES, FILE_LIMIT_BYTES, OF_A_PROJECT, Settings, SettingsError, env_name
from universal.launch import LaunchOptions


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory as cwd, home and configuration, and no SHIM_* in the environment."""
    for name in Settings.model_fields:
        monkeypatch.delenv(env_name(name), raising=False)
    for name in (name for several in ALIASES.values() for name in several):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return work


def personal_file(here: Path, text: str) -> Path:
    path = here.parent / "config" / "opencode-shim" / "config.toml"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return path


def test_defaults(here: Path) -> None:
    settings = Settings.load()
    assert (settings.hostname, settings.port, settings.directory) == ("127.0.0.1", 4096, here)
    assert settings.data_dir == here.parent / "home/.local/share/opencode-shim"
    assert set(settings.sources().values()) == {"default"}
    assert set(settings.sources()) == set(Settings.model_fields)


def test_xdg_data_home_is_used_if_absolute(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", "/srv/data")
    assert Settings.load().data_dir == Path("/srv/data/opencode-shim")
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert Settings.load().data_dir == here.parent / "home/.local/share/opencode-shim"


def test_each_source_beats_the_next(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    personal = personal_file(here, "port = 1\nlog_level = 'debug'\nidle_reap_s = 1\nabort_timeout_s = 1\n")
    assert Settings.load().port == 1
    (here / "shim.toml").write_text("port = 2\nlog_level = 'WARN'\nidle_reap_s = 2\n")
    assert Settings.load().port == 2
    monkeypatch.setenv("SHIM_PORT", "3")
    monkeypatch.setenv("SHIM_LOG_LEVEL", "ERROR")
    assert Settings.load().port == 3
    settings = Settings.load({"port": 4, "hostname": None, "cors": []})
    assert (settings.port, settings.log_level, settings.idle_reap_s, settings.abort_timeout_s) == (4, "error", 2, 1)
    sources = settings.sources()
    assert sources["port"] == "flag --port"
    assert sources["log_level"] == "environment SHIM_LOG_LEVEL"
    assert sources["idle_reap_s"] == f"file {here / 'shim.toml'}"
    assert sources["abort_timeout_s"] == f"file {personal}"
    assert sources["hostname"] == sources["cors"] == "default"


def test_arguments_alone_read_nothing(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "shim.toml").write_text("port = 2\n")
    monkeypatch.setenv("SHIM_PORT", "3")
    settings = Settings(hostname="::1")
    assert settings.port == 4096
    assert settings.sources()["hostname"] == "argument"


def test_settings_are_frozen(here: Path) -> None:
    with pytest.raises(ValueError, match="frozen"):
        Settings().port = 5


@pytest.mark.parametrize(
    ("text", "value"),
    [("true", True), ("ON", True), ("0", False), ("no", False), ("http://127.0.0.1:4097/", "http://127.0.0.1:4097")],
)
def test_web_ui_is_a_switch_or_a_url(here: Path, monkeypatch: pytest.MonkeyPatch, text: str, value: bool | str) -> None:
    monkeypatch.setenv("SHIM_WEB_UI", text)
    assert Settings.load().web_ui == value


def test_cors_is_separated_by_commas_in_the_environment_and_a_list_in_the_file(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    personal_file(here, "cors = ['http://c']\n")
    assert Settings.load().cors == ("http://c",)
    monkeypatch.setenv("SHIM_CORS", "http://a, http://b")
    assert Settings.load().cors == ("http://a", "http://b")


def test_an_empty_variable_is_no_value(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHIM_PORT", "")
    assert Settings.load().port == 4096


def test_paths_are_absolute_and_the_directory_is_resolved(here: Path) -> None:
    (here / "real").mkdir()
    (here / "link").symlink_to(here / "real")
    settings = Settings.load({"directory": "link", "data_dir": "../data", "record_dir": "~/records"})
    assert settings.directory == here / "real"
    assert settings.data_dir == here.parent / "data"
    assert settings.record_dir == here.parent / "home/records"


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ({"port": 70000}, r"port = 70000 \(flag --port\).*65535"),
        ({"directory": "/no/such/place"}, r"directory = /no/such/place \(flag --directory\).*there is no directory"),
        ({"log_level": "loud"}, r"log_level = loud .*'debug'"),
        ({"web_ui": "maybe"}, r"web_ui = maybe .*use true, false or a URL"),
        ({"abort_timeout_s": 0}, r"abort_timeout_s = 0 \(flag --abort-timeout-s\).*greater than 0"),
    ],
)
def test_a_wrong_value_is_named_with_its_source(here: Path, flags: dict[str, object], told: str) -> None:
    with pytest.raises(SettingsError, match=told):
        Settings.load(flags)


def test_a_password_in_an_address_is_not_printed_back(here: Path) -> None:
    with pytest.raises(SettingsError, match=r"Setting cluster \(flag --cluster\) cannot be used: others could read") as refused:
        Settings.load({"cluster": "nats://user:right@host"})
    assert "right" not in str(refused.value)


def test_an_unknown_name_in_a_file_is_reported_with_the_known_ones(here: Path) -> None:
    (here / "shim.toml").write_text("prot = 1\n")
    with pytest.raises(SettingsError, match=r"Unknown setting prot \(file .*shim.toml\).*port"):
        Settings.load()


@pytest.mark.parametrize("name", sorted(set(Settings.model_fields) - OF_A_PROJECT))
def test_a_project_may_not_set_what_decides_trust_access_or_programs(here: Path, name: str) -> None:
    """The value is not looked at: also one that would be refused for its form names the person's file."""
    (here / "shim.toml").write_text(f"{name} = 'x'\nport = 2\n")
    message = rf"shim\.toml sets {name}, which a project may not decide.*config\.toml.*{env_name(name)}"
    with pytest.raises(SettingsError, match=message):
        Settings.load()


@pytest.mark.parametrize(
    "name",
    [
        *("data_dir", "roots", "trusted_roots", "trust_all", "trust_question_s", "unattended", "fs_anywhere"),
        *("hostname", "username", "password", "allowed_hosts", "cors", "trust_proxy", "tls_cert", "tls_key"),
        *("agents", "hooks", "web_ui", "record_dir", "move_aside_damaged"),
    ],
)
def test_a_project_may_not_set_dangerous_settings(name: str) -> None:
    assert name in Settings.model_fields
    assert name not in OF_A_PROJECT


def test_a_planted_data_directory_is_refused_with_all_else_that_is_in_the_file(here: Path) -> None:
    (here / "shim.toml").write_text("data_dir = 'planted'\nport = 2\n[[hooks]]\non = ['idle']\ncommand = ['./run']\n")
    with pytest.raises(SettingsError, match=r"sets data_dir, hooks, .* SHIM_DATA_DIR, SHIM_HOOKS"):
        Settings.load()


def test_harmless_project_settings_are_taken(here: Path) -> None:
    text = "port = 2\nbase_path = '/a'\ndefault_agent = 'mock'\nlog_level = 'warn'\nmax_sessions = 5\nmock_delay_factor = 0\n"
    (here / "shim.toml").write_text(text)
    settings = Settings.load()
    assert (settings.port, settings.base_path, settings.default_agent, settings.max_sessions) == (2, "/a", "mock", 5)


def test_a_broken_file_is_reported(here: Path) -> None:
    (here / "shim.toml").write_text("port = = 1\n")
    with pytest.raises(SettingsError, match=r"Cannot read the settings of .*shim.toml"):
        Settings.load()


@pytest.mark.timeout(10)
def test_a_pipe_or_a_device_in_the_place_of_a_file_is_reported_and_does_not_block(here: Path) -> None:
    os.mkfifo(here / "shim.toml")
    with pytest.raises(SettingsError, match=r"Cannot read the settings of .*shim.toml.*no regular file"):
        Settings.load()
    (here / "shim.toml").unlink()
    (here / "shim.toml").symlink_to("/dev/zero")
    with pytest.raises(SettingsError, match="no regular file"):
        Settings.load()
    (here / "shim.toml").unlink()
    (here / "shim.toml").write_text("#" * (FILE_LIMIT_BYTES + 1))
    with pytest.raises(SettingsError, match="more than"):
        Settings.load()


def test_every_setting_is_described() -> None:
    for name, field in Settings.model_fields.items():
        assert field.description, f"{name} has no docstring"
        assert field.description.endswith("."), name


def test_every_setting_is_in_the_documentation() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "settings.md").read_text()
    for name in Settings.model_fields:
        assert f"| `{name}` |" in page, f"{name} is not in docs/settings.md: run `make docs`"
        assert f"`{env_name(name)}`" in page


def test_only_load_and_the_defaults_read_the_environment() -> None:
    """`Settings(...)` must stay free of the machine: no other use of os.environ than the XDG base directories."""
    tree = ast.parse(Path(shim.lib.settings.__file__).read_text())
    users = {
        function.name
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute) and node.attr == "environ"
    }
    assert users == {"_xdg", "load"}


def test_agents_of_ones_own(here: Path) -> None:
    personal_file(here, '[agents.mine]\ncommand = ["my-agent", "--acp"]\ntitle = "Mine"\nenv = { KEY = "secret" }\n')
    settings = Settings.load()
    assert settings.agents["mine"].command == ("my-agent", "--acp")
    assert settings.agents["mine"].env["KEY"].get_secret_value() == "secret"
    assert "secret" not in settings.model_dump_json()
    names = list(agents_of(settings))
    assert names[-5:] == ["mine", "opencode", "opencode2", "kilo-serve", "mock"]


def test_the_program_of_open_code_2_can_be_named(here: Path) -> None:
    personal_file(here, '[agents.opencode2]\ncommand = ["/opt/opencode", "--log"]\nenv = { KEY = "secret" }\n')
    spec = agents_of(Settings.load())["opencode2"]
    launched = spec.make(counting_ids()).launch(LaunchOptions(binary="/opt/opencode", directory="/project"))
    assert (spec.program.binaries, spec.program.transport) == (("/opt/opencode",), "http")
    assert launched.argv[:3] == ("/opt/opencode", "--log", "serve")
    assert launched.env["KEY"] == "secret"


def test_an_agent_without_a_command_is_refused_without_showing_its_keys(here: Path) -> None:
    personal_file(here, '[agents.mine]\ncommand = []\nenv = { KEY = "secret" }\n')
    with pytest.raises(SettingsError, match=r"agents\.mine\.command") as refused:
        Settings.load()
    assert "secret" not in str(refused.value)


def test_opencodes_own_variables_are_taken_and_weaker_than_ours(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    personal_file(here, "password = 'of the file'\n")
    monkeypatch.setenv("OPENCODE_SERVER_USERNAME", "me")
    monkeypatch.setenv("OPENCODE_SERVER_PASSWORD", "of OpenCode")
    settings = Settings.load()
    assert settings.password is not None
    assert (settings.username, settings.password.get_secret_value()) == ("me", "of OpenCode")
    assert settings.sources()["password"] == "environment OPENCODE_SERVER_PASSWORD"
    monkeypatch.setenv("SHIM_PASSWORD", "ours")
    assert Settings.load().password.get_secret_value() == "ours"  # type: ignore[union-attr] - set two lines above


@pytest.mark.parametrize(
    "text", ["password = 1234567", "password = ''", "username = 'a:b'", "base_path = '/a/../b'", "roots = '/no/such'"]
)
def test_wrong_access_settings_are_reported_without_the_password(here: Path, text: str) -> None:
    personal_file(here, text)
    with pytest.raises(SettingsError, match=text.split()[0]) as told:
        Settings.load()
    assert "1234567" not in str(told.value)


@pytest.mark.parametrize(("given", "path"), [("", ""), ("/", ""), ("opencode", "/opencode"), ("/a/b/", "/a/b")])
def test_a_base_path_has_one_form(given: str, path: str) -> None:
    assert Settings(base_path=given).base_path == path


@pytest.mark.parametrize(
    ("personal", "project", "level", "source"),
    [("off", "strict", "strict", "project"), ("strict", "off", "strict", "person"), ("project", "project", "project", "person")],
)
def test_a_project_only_tightens_the_sandbox(here: Path, personal: str, project: str, level: str, source: str) -> None:
    personal_file(here, f'sandbox = "{personal}"\n')
    (here / "shim.toml").write_text(f'sandbox = "{project}"\n')
    settings = Settings.load()
    assert settings.sandbox == level
    assert ("shim.toml" in settings.sources()["sandbox"]) is (source == "project")


def test_a_flag_does_not_loosen_the_sandbox_of_a_project(here: Path) -> None:
    (here / "shim.toml").write_text('sandbox = "strict"\n')
    assert Settings.load({"sandbox": "off"}).sandbox == "strict"


def test_a_wrong_sandbox_is_refused_with_its_place(here: Path) -> None:
    (here / "shim.toml").write_text('sandbox = "stric"\n')
    with pytest.raises(SettingsError, match=r"Setting sandbox = stric \(file .*shim\.toml\)"):
        Settings.load()


def test_the_sandbox_of_a_supported_agent_needs_no_command(here: Path) -> None:
    personal_file(here, '[agents.claude]\nsandbox = "strict"\nsandbox_paths = ["~/.cargo"]\n')
    assert Settings.load().agents["claude"].sandbox == "strict"
    (here.parent / "config" / "opencode-shim" / "config.toml").write_text('[agents.claude]\ntitle = "Mine"\n')
    with pytest.raises(SettingsError, match="a command, or sandbox"):
        Settings.load()
