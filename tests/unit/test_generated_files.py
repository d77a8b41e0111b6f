"""Files that a tool writes."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from shim.host.config.opencode_config import NATIVE_KEYS
from tests.unit.test_security_doc import missing_tests
from tools import generated_files, setup
from tools.generated_files import ROOT, settle
from universal.registry import agents

TYPES = sorted((ROOT / "shim" / "faces").glob("opencode*/_generated/*types.py"))
DOCSTRING = re.compile(r'"""(.|\n)*?"""')


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(generated_files, "ROOT", tmp_path)
    (tmp_path / "current.md").write_text("same")
    (tmp_path / "stale.md").write_text("old")
    return tmp_path


def wanted_texts(root: Path) -> dict[Path, str]:
    return {root / "current.md": "same", root / "stale.md": "new", root / "folder" / "missing.md": "first"}


def test_check_lists_stale_and_missing_files_and_writes_nothing(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert settle(wanted_texts(root), check=True, command="make docs") == 1
    captured = capsys.readouterr()
    assert captured.err.splitlines() == [
        "stale.md is not current: run `make docs`",
        "folder/missing.md is not current: run `make docs`",
    ]
    assert (root / "stale.md").read_text() == "old"
    assert not (root / "folder").exists()


def test_only_stale_and_missing_files_are_written(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert settle(wanted_texts(root), check=False) == 0
    assert capsys.readouterr().out.splitlines() == ["wrote stale.md", "wrote folder/missing.md"]
    assert {path: path.read_text() for path in wanted_texts(root)} == wanted_texts(root)
    assert settle(wanted_texts(root), check=True) == 0


@pytest.mark.parametrize("module", TYPES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_each_generated_type_is_used(module: Path) -> None:
    """By the face's own code, or in another type. Those that nothing uses are taken out of the generator's table."""
    source = module.read_text("utf-8")
    names = {
        node.name if isinstance(node, ast.ClassDef) else ast.unparse(node.target)
        for node in ast.parse(source).body
        if isinstance(node, ast.ClassDef | ast.AnnAssign)
    }
    texts = [path.read_text("utf-8") for path in module.parents[1].rglob("*.py") if path != module]
    words = re.findall(r"\w+", DOCSTRING.sub("", "\n".join([source, *texts])))
    assert names
    assert sorted(name for name in names if words.count(name) < 2) == []


def test_every_key_of_the_configuration_has_its_row() -> None:
    assert set(setup.ROWS) == setup.keys()
    assert {key for key, row in setup.ROWS.items() if row.effect == "OpenCode alone"} == NATIVE_KEYS


HELD = {
    "agent": "tests/e2e/test_own_agents.py::test_a_primary_agent_is_chosen_by_name",
    "command": "tests/http/test_agent_commands.py::test_a_projects_commands_are_listed_and_run_before_its_first_session",
    "default_agent": "tests/e2e/test_own_agents.py::test_the_default_agent_counts_with_its_model",
    "disabled_providers": "tests/unit/sessions/prompts/test_prompt_request.py::"
    "test_a_disabled_mode_or_provider_takes_no_prompt_that_names_it",
    "experimental": "tests/unit/sessions/permissions/test_requests.py::test_a_refusal_without_words_ends_the_turn",
    "formatter": "tests/e2e/test_formatters.py::test_a_formatter_runs_after_an_edit_and_its_change_is_in_the_diffs",
    "instructions": "tests/e2e/test_setup.py::test_instructions_reach_the_model_once_and_follow_their_files",
    "mcp": "tests/e2e/test_setup.py::test_mcp_servers_of_the_configuration_act_and_have_a_state",
    "mode": "tests/unit/host/config/test_opencode_config.py::test_each_form_of_a_denial_counts",
    "model": "tests/unit/sessions/prompts/test_prompt_request.py::test_the_configuration_chooses_for_prompts_that_name_nothing",
    "permission": "tests/e2e/test_own_agents.py::test_claude_has_the_subagents_and_their_rules_hold",
    "plugin": "tests/e2e/test_plugins.py::test_own_tools_are_called_by_their_names_and_a_guard_refuses",
    "share": "tests/http/test_switched_off.py::test_new_sessions_are_shared_if_the_person_says_so",
    "skills": "tests/e2e/test_setup.py::test_skills_reach_the_model_once_unless_a_rule_denies_them",
    "snapshot": "tests/http/test_revert.py::test_snapshots_switched_off_in_the_config",
    "tools": "tests/unit/host/config/test_opencode_config.py::test_permission_comes_after_tools",
}
"""Key that the table says acts, at least in part -> the test in which it does."""


def test_each_key_that_acts_has_a_test_in_which_it_does() -> None:
    assert HELD.keys() == {key for key, row in setup.ROWS.items() if row.effect in ("acts", "in part")}
    assert missing_tests([(file, name) for file, _, name in (test.partition("::") for test in HELD.values())]) == []


def test_the_row_of_mcp_names_each_agent() -> None:
    row = next(line for line in setup.render().splitlines() if line.startswith("| `mcp` |"))
    titles = [spec.title for spec in agents().values() if spec.name != "mock"]
    assert [title for title in titles if f"{title}," not in row and f"{title} " not in row and f"{title}." not in row] == []
