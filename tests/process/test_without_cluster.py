"""The product of one machine: with the folder of the cluster deleted, a server runs a turn, and unit tests pass."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.process.test_serve import RUN, START_S, environment, rest, run_server

ROOT = Path(__file__).parents[2]
UNITS = (
    "tests/unit/sessions/index/test_manager.py",
    "tests/unit/sessions/prompts/test_prompt_dispatch.py",
    "tests/unit/sessions/test_placement.py",
    "tests/unit/store/test_memory.py",
    "tests/unit/store/test_ownership.py",
    "tests/unit/stream/test_hub.py",
)
"""Tests of what asks the cluster's interfaces: sessions, prompts, placement, stores, streams."""
UNITS_S = 120
"""Maximum seconds for them, on a busy machine."""

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This repository's code without `shim/cluster`."""
    place = tmp_path_factory.mktemp("tree")
    for folder in ("shim", "universal", "tests"):
        shutil.copytree(ROOT / folder, place / folder)  # with the times of files, so that what is compiled stays valid
    (place / "compat_fixtures").symlink_to(ROOT / "compat_fixtures")
    shutil.copy(ROOT / "pyproject.toml", place)
    shutil.rmtree(place / "shim" / "cluster")
    return place


def call(url: str, body: object = None) -> Any:
    """The JSON of an answer."""
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(
        urllib.request.Request(url, data, {"Content-Type": "application/json"}), timeout=START_S
    ) as answer:
        return json.load(answer)


def test_a_server_runs_a_turn_and_says_that_it_is_alone(tree: Path, tmp_path: Path) -> None:
    # -P: the directory in which tests run has the cluster
    command = (sys.executable, "-P", "-c", f"import shim; assert shim.__path__ == [{str(tree / 'shim')!r}], shim.__path__; {RUN}")
    with run_server(tmp_path, command=command, PYTHONPATH=str(tree), SHIM_MOCK_DELAY_FACTOR="0") as (process, url):
        rest(process)
        session = call(f"{url}/session", {})["id"]
        answer = call(f"{url}/session/{session}/message", {"parts": [{"type": "text", "text": "echo Hello"}]})
        assert [part["text"] for part in answer["parts"] if part["type"] == "text"] == ["Hello"]
        assert call(f"{url}/session/status") == {}
        assert call(f"{url}/v1/x-nodes") == {"nodes": []}
        with urllib.request.urlopen(f"{url}/metrics", timeout=START_S) as metrics:
            assert b"_cluster_" not in metrics.read()
    assert "Traceback" not in (tmp_path / "stderr").read_text()


@pytest.mark.slow  # the other test, and those of `tests/unit/main/test_choose_store.py`, say it in `make test`
def test_unit_tests_pass(tree: Path, tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *UNITS]
    done = subprocess.run(
        argv,
        env=environment(tmp_path, PYTHONPATH=str(tree), PATH=os.environ["PATH"]),
        cwd=tree,
        capture_output=True,
        text=True,
        timeout=UNITS_S,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
