"""What the registry says about spares, and the signs of a login."""

from __future__ import annotations

from pathlib import Path

import pytest

from shim.agents.keys import is_logged_in
from tests.support.specs import change
from universal.agent_spec import AgentSpec, LoginSigns
from universal.agents.mock.spec import MOCK
from universal.launch import LaunchOptions
from universal.permissions import Rule
from universal.registry import agents

SPARES = [spec for spec in agents().values() if spec.program.spare is not None]


def _ids(kind: str) -> str:
    return kind


PAGE = Path(__file__).resolve().parents[3] / "docs" / "using.md"


def test_the_agents_that_may_wait() -> None:
    assert {spec.name for spec in SPARES} == {"claude", "claude-agent-acp", "codex", "opencode", "pi"}


@pytest.mark.parametrize("spec", SPARES, ids=lambda spec: spec.name)
def test_an_agent_that_may_wait_has_a_codec_for_it_and_is_in_the_documentation(spec: AgentSpec) -> None:
    codec = spec.make(_ids)
    codec.launch(LaunchOptions("/bin/true", "/"))
    assert codec.adopt(LaunchOptions("/bin/true", "/", mode="plan", model="m", variant="v"))
    assert spec.title in PAGE.read_text()


def test_claude_behind_acp_needs_a_process_of_its_own_for_rules_of_a_session() -> None:
    codec = agents()["claude-agent-acp"].make(_ids)
    codec.launch(LaunchOptions("/bin/true", "/"))
    assert not codec.adopt(LaunchOptions("/bin/true", "/", rules=(Rule("bash", "*", "deny"),)))


def test_an_agent_without_spares_says_why() -> None:
    assert MOCK.program.spare is None
    assert MOCK.program.no_spare
    assert "list" in agents()["opencode-acp"].program.no_spare


def test_signs_of_a_login(tmp_path: Path) -> None:
    spec = change(MOCK, login_signs=LoginSigns(("KEY",), ("~/login", "$CONFIG/login")))
    environ = {"HOME": str(tmp_path)}
    assert not is_logged_in(spec, environ, tells=True)
    assert is_logged_in(spec, {**environ, "KEY": "k"}, tells=False)
    (tmp_path / "login").write_text("")
    assert is_logged_in(spec, environ, tells=False)
    assert is_logged_in(spec, {"CONFIG": str(tmp_path)}, tells=False)
    assert is_logged_in(change(MOCK, login_signs=None), {}, tells=True)
