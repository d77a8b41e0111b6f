"""What `compat_fixtures/permission_sources.json` says of OpenCode, asked again. Minutes, so at night."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.support.permission_sources import ALLOW, DENY, Place, directory, environment, pairs, singles

ROOT = Path(__file__).parents[2]
NATIVE = json.loads((ROOT / "compat_fixtures" / "permission_sources.json").read_text())
ANSWER_S = 60.0

pytestmark = [pytest.mark.e2e, pytest.mark.nightly]


def native(folder: Path, *puts: tuple[Place, str]) -> str | None:
    """The action of `bash *` for the agent `build` by the real OpenCode."""
    (folder / "home").mkdir()
    place = directory(folder)
    offline = {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"}
    env = {"PATH": os.environ["PATH"], **offline, **environment(folder)}
    env |= {name: value for put, action in puts for name, value in put.put(folder, action).items()}
    if not (folder / "named.json").exists():
        del env["OPENCODE_CONFIG"]  # it must exist
    argv = [str(ROOT / ".e2e" / "node_modules" / ".bin" / "opencode"), "debug", "agent", "build"]
    output = subprocess.run(argv, cwd=place, env=env, capture_output=True, text=True, timeout=ANSWER_S, check=True).stdout
    rules = json.loads(output)["permission"]
    return next(
        (rule["action"] for rule in reversed(rules) if rule["permission"] in ("*", "bash") and rule["pattern"] == "*"), None
    )


@pytest.mark.parametrize("place", list(singles()), ids=lambda place: place.name)
def test_a_denial(tmp_path: Path, place: Place) -> None:
    assert native(tmp_path, (place, DENY)) == NATIVE["singles"][place.name]


@pytest.mark.parametrize(("denies", "allows"), list(pairs()), ids=lambda place: place.name)
def test_two_sources(tmp_path: Path, denies: Place, allows: Place) -> None:
    assert native(tmp_path, (denies, DENY), (allows, ALLOW)) == NATIVE["pairs"][f"{denies.name} | {allows.name}"]
