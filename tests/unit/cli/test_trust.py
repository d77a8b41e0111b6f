"""`opencode-shim trust`: shows what would run, asks, and keeps the answer where the server reads it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from shim.cli.commands import cli
from shim.cli.trust import state
from shim.host.trust.project_settings import ProjectScanner
from shim.host.trust.trust_store import FILE, ProjectTrust, TrustDecision, TrustFile, each_agents_settings
from shim.lib.clock import ManualClock
from shim.lib.settings import Settings, SettingsError, env_name

HOOK = {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "touch hooked"}]}]}}


@pytest.fixture(autouse=True)
def clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings of the person's."""
    for name in Settings.model_fields:
        monkeypatch.delenv(env_name(name), raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / ".git").mkdir(parents=True)
    (root / ".claude").mkdir()
    (root / ".claude" / "settings.json").write_text(json.dumps(HOOK))
    (root / ".mcp.json").write_text(json.dumps({"mcpServers": {"s": {"command": "serve"}}}))
    return root


def run(tmp_path: Path, *arguments: str, answer: str = "") -> tuple[int, str]:
    result = CliRunner().invoke(cli, ["trust", *arguments, "--data-dir", str(tmp_path / "data")], input=answer)
    return result.exit_code, result.output


def verdict(tmp_path: Path, project: Path, *families: str) -> str:
    decisions = TrustFile(tmp_path / "data" / FILE, ManualClock())
    return ProjectTrust(ProjectScanner(str(tmp_path / "home")), decisions).look(str(project), families).decision


def test_trust_shows_the_settings_and_stores_a_yes_for_every_agent(tmp_path: Path, project: Path) -> None:
    code, output = run(tmp_path, str(project), answer="y\n")
    assert code == 0
    assert ".claude/settings.json  hooks.Stop: touch hooked  (claude)" in output
    assert ".mcp.json  mcpServers.s: serve  (claude, copilot)" in output
    assert [verdict(tmp_path, project, family) for family in ("claude", "copilot")] == ["trusted", "trusted"]


@pytest.mark.parametrize("answer", ["n\n", "\n"])
def test_no_is_the_default_and_keeps_nothing(tmp_path: Path, project: Path, answer: str) -> None:
    code, _ = run(tmp_path, str(project), answer=answer)
    assert code == 1
    assert verdict(tmp_path, project, "claude") == "undecided"


def test_yes_asks_nothing_list_shows_and_remove_forgets(tmp_path: Path, project: Path) -> None:
    assert run(tmp_path, str(project), "--yes")[0] == 0
    assert "It is trusted already." in run(tmp_path, str(project))[1]
    code, output = run(tmp_path, "--list")
    assert code == 0
    assert str(project) in output and "hooks.Stop: touch hooked" in output
    assert run(tmp_path, str(project), "--remove")[0] == 0
    assert verdict(tmp_path, project, "claude") == "undecided"
    assert run(tmp_path, str(project), "--remove")[0] == 1


def test_changed_content_is_not_trusted(tmp_path: Path, project: Path) -> None:
    run(tmp_path, str(project), "--yes")
    (project / ".mcp.json").write_text(json.dumps({"mcpServers": {"s": {"command": "other"}}}))
    assert verdict(tmp_path, project, "claude") == "undecided"


def test_the_same_content_elsewhere_is_not_trusted(tmp_path: Path, project: Path) -> None:
    run(tmp_path, str(project), "--yes")
    project.rename(tmp_path / "moved")
    assert verdict(tmp_path, tmp_path / "moved", "claude") == "undecided"


def test_a_project_without_such_settings_needs_no_trust(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    code, output = run(tmp_path, str(tmp_path / "plain"))
    assert code == 0
    assert "nothing to trust" in output
    assert not (tmp_path / "data" / FILE).exists()


def test_doctor_says_whether_the_project_is_trusted(tmp_path: Path, project: Path) -> None:
    settings = Settings(directory=project, data_dir=tmp_path / "data")
    assert "not trusted yet: opencode-shim trust" in state(settings, project)
    run(tmp_path, str(project), "--yes")
    assert "is trusted" in state(settings, project)
    always = Settings(directory=project, data_dir=tmp_path / "data", trusted_roots=(tmp_path,))
    assert "always trusted" in state(always, project)


@pytest.mark.parametrize("line", ["trust_all = true", 'trusted_roots = ["/"]'])
def test_a_project_does_not_trust_itself_by_shim_toml(tmp_path: Path, line: str) -> None:
    (tmp_path / "shim.toml").write_text(line)
    with pytest.raises(SettingsError, match="a project may not decide"):
        Settings.load()


def test_a_damaged_file_trusts_nothing(tmp_path: Path, project: Path) -> None:
    run(tmp_path, str(project), "--yes")
    (tmp_path / "data" / FILE).write_text("{")
    assert verdict(tmp_path, project, "claude") == "undecided"


def test_a_decision_of_another_process_is_seen_at_once(tmp_path: Path, project: Path) -> None:
    decisions = TrustFile(tmp_path / "data" / FILE, ManualClock())
    trust = ProjectTrust(ProjectScanner(str(tmp_path / "home")), decisions)
    assert trust.look(str(project), ["claude"]).decision == "undecided"
    run(tmp_path, str(project), "--yes")
    assert trust.look(str(project), ["claude"]).decision == "trusted"


def test_decisions_are_bounded_and_private(tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shim.host.trust.trust_store.KEPT_PROJECTS", 2)
    file = TrustFile(tmp_path / "data" / FILE, ManualClock())
    for number in range(4):
        (project / ".mcp.json").write_text(json.dumps({"mcpServers": {f"s{number}": {"command": "serve"}}}))
        found = ProjectScanner(str(tmp_path / "home")).look(str(project))
        file.decide(each_agents_settings(found, [("claude",)]), trusted=True)
    rows: tuple[TrustDecision, ...] = file.decisions()
    assert len(rows) == 2
    assert (tmp_path / "data" / FILE).stat().st_mode & 0o777 == 0o600


def test_an_allow_counts_only_as_it_was_trusted(tmp_path: Path, project: Path) -> None:
    (project / "opencode.json").write_text(json.dumps({"permission": {"bash": {"npm test": "allow"}}}))
    decisions = TrustFile(tmp_path / "data" / FILE, ManualClock())
    trust = ProjectTrust(ProjectScanner(str(tmp_path / "home")), decisions)
    assert not trust.counts(str(project), "bash", "npm test")
    run(tmp_path, str(project), "--yes")
    trust.look(str(project), ["claude"])
    assert trust.counts(str(project), "bash", "npm test")
    assert not trust.counts(str(project), "bash", "*"), "a rule that was added since counts for nothing"
    assert not trust.counts(str(project), "*", "*")
