"""Dockerfile and compose.yaml: linted, without root, with a health check, a volume for data, and a password that must be set."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import yaml

from tests.support.dockerfile import last, parse, words

ROOT = Path(__file__).resolve().parents[2]
LINT_S = 30


def test_hadolint_finds_nothing() -> None:
    program = Path(sys.executable).parent / "hadolint"
    done = subprocess.run([program, ROOT / "Dockerfile"], capture_output=True, text=True, timeout=LINT_S, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_image_runs_without_root_with_a_health_check_and_its_data_on_a_volume() -> None:
    stages = parse(ROOT / "Dockerfile", {})
    assert [stage.name for stage in stages] == ["build", ""]
    final = stages[-1]
    assert last(final, "USER") == "1000:1000"
    assert words(last(final, "VOLUME")) == ["/data", final.variables["HOME"]]
    assert final.variables["SHIM_DATA_DIR"] == "/data"
    assert last(final, "HEALTHCHECK").endswith('CMD ["opencode-shim", "health"]')
    assert words(last(final, "ENTRYPOINT")) + words(last(final, "CMD")) == ["opencode-shim", "serve"]


def test_the_image_gets_what_the_wheel_is_built_from() -> None:
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = project["tool"]["hatch"]["build"]["targets"]["sdist"]["only-include"]
    assert set(wanted) <= kept
    assert ".git" in kept, "the commit is read from it"


def test_compose_serves_https_alone_and_wants_a_password() -> None:
    compose: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
    shim, caddy = compose["services"]["shim"], compose["services"]["caddy"]
    assert "ports" not in shim, "only Caddy is reached from outside"
    assert shim["environment"]["OPENCODE_SERVER_PASSWORD"].startswith("${OPENCODE_SERVER_PASSWORD:?")
    assert shim["init"] is True
    assert caddy["depends_on"]["shim"]["condition"] == "service_healthy"
    assert {volume.partition(":")[0] for volume in shim["volumes"][:2]} <= set(compose["volumes"])
    assert "reverse_proxy shim:4096" in compose["configs"]["caddyfile"]["content"]
    names = {name for name in re.findall(r"SHIM_\w+", (ROOT / "compose.yaml").read_text())} - {"SHIM_HOST"}
    from shim.lib.settings import Settings, env_name

    assert names <= {env_name(field) for field in Settings.model_fields}
