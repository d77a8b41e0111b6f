"""The workflows of GitHub Actions: held to their schema, since they are run only there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.y*ml"))
SCHEMA: dict[str, Any] = json.loads((ROOT / "compat_fixtures" / "github" / "workflow.schema.json").read_text("utf-8"))


def load(text: str) -> Any:
    """A workflow; `on` is a word of it, and true in YAML 1.1."""
    return {("on" if key is True else key): value for key, value in yaml.safe_load(text).items()}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflow_fits_the_schema(path: Path) -> None:
    found = [f"{list(error.instance_path)}: {error.message}" for error in validator().iter_errors(load(path.read_text("utf-8")))]
    assert found == []


def test_schema_refuses_a_workflow_with_an_unknown_key() -> None:
    [path] = [path for path in WORKFLOWS if path.name == "outdated.yml"]
    assert not validator().is_valid(load(path.read_text("utf-8").replace("timeout-minutes:", "timeout-hours:")))


def test_workflow_acts_on_the_exit_codes_of_the_command() -> None:
    from tools.outdated import BEHIND, NO_ANSWER

    text = (ROOT / ".github" / "workflows" / "outdated.yml").read_text("utf-8")
    assert f"steps.ask.outputs.code == '{BEHIND}'" in text
    assert f"steps.ask.outputs.code == '{NO_ANSWER}'" in text


def validator() -> jsonschema_rs.Draft7Validator:
    return jsonschema_rs.Draft7Validator(SCHEMA)
