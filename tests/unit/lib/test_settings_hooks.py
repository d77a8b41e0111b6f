"""Hooks in the settings: read from a file, and a wrong one is told without its secrets."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from shim.cli import screen
from shim.lib.settings import Settings, SettingsError

GOOD = """
[[hooks]]
on = ["idle", "error"]
url = "https://user:hunter22@example.org/hook"
headers = { Authorization = "Bearer hunter22" }
"""


def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    path = tmp_path / "config" / "opencode-shim" / "config.toml"
    path.parent.mkdir(parents=True)
    path.write_text(text)


def test_hooks_are_read_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, monkeypatch, GOOD)
    [hook] = Settings.load().hooks
    assert hook.on == ("idle", "error")
    assert hook.headers["Authorization"].get_secret_value() == "Bearer hunter22"
    assert hook.name == "example.org"


def test_secrets_are_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, monkeypatch, GOOD)
    settings = Settings.load()
    screen.settings_table(screen.console(sys.stdout), settings)
    table = capsys.readouterr().out
    assert "idle/error: example.org" in table
    assert "hunter22" not in table + screen.settings_json(settings) + repr(settings)


@pytest.mark.parametrize("url", ["ftp://example.org", "example.org", "https:///path"])
def test_a_url_is_one_of_the_web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    write(tmp_path, monkeypatch, GOOD.replace("https://user:hunter22@example.org/hook", url))
    with pytest.raises(SettingsError, match="begin with http"):
        Settings.load()


def test_a_wrong_setting_is_reported_without_its_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, monkeypatch, GOOD.replace("idle", "idl"))
    with pytest.raises(SettingsError, match="hooks") as error:
        Settings.load()
    assert "hunter22" not in str(error.value)
