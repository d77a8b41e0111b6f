"""`opencode-shim config set` changes one line of the file, or nothing."""

from __future__ import annotations

import stat
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from shim.cli.commands import cli
from shim.cli.config_file import ConfigFileError, set_value, unset
from shim.lib.settings import Settings

OLD = """# mine
port = 5000  # for the phone
cors = [
  "https://a.example",
]

[agents.mine]
command = ["mine"]
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "config" / "opencode-shim" / "config.toml"


def test_a_new_file_is_private_and_is_read(file: Path) -> None:
    assert set_value("port", "5001") == file
    assert file.read_text() == "port = 5001\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert Settings.load().port == 5001


def test_comments_order_and_tables_stay(file: Path) -> None:
    file.parent.mkdir(parents=True)
    file.write_text(OLD)
    set_value("port", "5001")
    set_value("log_level", "WARNING")
    assert file.read_text() == OLD.replace("port = 5000  # for the phone", "port = 5001").replace(
        "]\n\n[agents", ']\n\nlog_level = "warn"\n[agents', 1
    )
    unset("log_level")
    assert tomllib.loads(file.read_text()) == tomllib.loads(OLD) | {"port": 5001}


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("trust_proxy", "yes", "trust_proxy = true"),
        ("idle_reap_s", "60", "idle_reap_s = 60.0"),
        ("allowed_hosts", "a.example, b.example", 'allowed_hosts = ["a.example", "b.example"]'),
        ("default_agent", 'q"uo\\te', 'default_agent = "q\\"uo\\\\te"'),
        ("password", "s3cret-word", 'password = "s3cret-word"'),
    ],
)
def test_values_are_written_as_toml(file: Path, name: str, text: str, line: str) -> None:
    set_value(name, text)
    assert file.read_text() == f"{line}\n"


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("prot", "1", "There is no setting prot. Did you mean port?"),
        ("port", "many", "port = many .*it needs a whole number"),
        ("steer", "many", "it needs true or false"),
        ("zzzzz", "1", "docs/settings.md"),
        ("hooks", "[]", "table"),
        ("cors", "https://b.example", "Edit the file; it is unchanged"),
    ],
)
def test_an_invalid_setting_is_refused_and_the_file_stays(file: Path, name: str, text: str, why: str) -> None:
    file.parent.mkdir(parents=True)
    file.write_text(OLD)
    with pytest.raises(ConfigFileError, match=why):
        set_value(name, text)
    assert file.read_text() == OLD


@pytest.mark.parametrize(
    ("words", "environment", "end"),
    [
        (("log_level", "debug"), {}, "applies it within a few seconds."),
        (("port", "5001"), {}, "service restart, or stop it and start it again."),
        (("port", "5001"), {"SHIM_PORT": "5002"}, "But environment SHIM_PORT overrides it."),
    ],
)
def test_config_set_says_when_the_change_holds(file: Path, words: tuple[str, str], environment: dict[str, str], end: str) -> None:
    result = CliRunner().invoke(cli, ["config", "set", *words], env=environment)
    assert result.exit_code == 0
    assert result.output.strip().endswith(end)


def test_a_password_can_come_from_stdin(file: Path) -> None:
    assert CliRunner().invoke(cli, ["config", "set", "password", "-"], input="hunter22hunter\n").exit_code == 0
    assert file.read_text() == 'password = "hunter22hunter"\n'
