"""`.ci/parts.sh`: every part runs, a failed part fails the run, and so do too many tests that passed only at a second try."""

from __future__ import annotations

import re
import subprocess
import sys
from itertools import chain, combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from _pytest.assertion import rewrite
from _pytest.mark.expression import Expression

from tests.support import worker_memory
from tests.support.compiled_tests import compile_share
from tests.support.second_try import SecondTry
from tests.support.worker_memory import MAX_MIB, TOO_MUCH, WorkerMemory

REPO = Path(__file__).resolve().parents[2]
RUN_S = 120
"""Two runs of pytest with workers take 3 s on idle cores."""


def run(script: str) -> tuple[int, str]:
    """The exit code and the output of a script that has the functions."""
    text = f"set -euo pipefail\nsource .ci/parts.sh\n{script}\nfinish"
    done = subprocess.run(["bash", "-c", text], cwd=REPO, capture_output=True, text=True, timeout=RUN_S, check=False)
    return done.returncode, done.stdout + done.stderr


def test_all_parts_run_and_the_failed_ones_are_named() -> None:
    code, output = run("part one false\npart two echo ran\npart three false")
    assert code == 1
    assert "ran" in output
    assert output.endswith("failed: one three\n")


def test_a_run_without_failures_succeeds() -> None:
    code, output = run("part one true")
    assert code == 0
    assert "failed" not in output


def test_a_background_command_runs_beside_the_parts_and_fails_where_it_is_collected() -> None:
    slow = "mkfifo $outputs/gate\nslow() { read -r line <$outputs/gate; echo $line; return 3; }\nbackground slow slow"
    code, output = run(f"{slow}\npart one echo first\necho second >$outputs/gate\npart two collect slow")
    assert code == 1
    assert output.index("first") < output.index("second")
    assert output.endswith("failed: two\n")


def test_tests_that_run_side_by_side_run_again_what_failed_of_their_own() -> None:
    """One fails at both tries, while the other one's only failure passes when it is run again."""
    fails = 'fails() { echo tests/a.py::test_a >>"$SHIM_FAILED"; return 1; }'
    again = 'again() { [[ -v SHIM_SECOND_TRY ]] && return; echo tests/b.py::test_b >>"$SHIM_FAILED"; return 1; }'
    code, output = run(f'{fails}\n{again}\nbackground a tests "" fails\npart b tests "" again\npart a collect a')
    assert code == 1
    assert output.count("== once more\ntests/b.py::test_b\n") == output.count("== once more\ntests/a.py::test_a\n") == 1
    assert output.endswith("failed: a\n")


@pytest.mark.parametrize(("reruns", "code"), [(0, 0), (1, 0), (5, 0), (6, 1)])
def test_more_than_five_reruns_fail_the_run(reruns: int, code: int) -> None:
    lines = "\n".join(f'echo tests/x.py::test_{number} >> "$SHIM_RERUNS"' for number in range(reruns))
    done, output = run(f"part one true\n{lines}")
    assert done == code
    assert output.count("tests/x.py::test_") == reruns
    assert ("failed: reruns" in output) == bool(code)


SUITE = """
import os, pytest

@pytest.mark.xdist_group("one")
@pytest.mark.parametrize("odd", ["a b@c", "it's"])
def test_second(odd):
    assert os.environ.get("SHIM_SECOND_TRY")

def test_first():
    assert not os.environ.get("SHIM_SECOND_TRY")

def test_never():
    assert not os.environ.get("NEVER")

@pytest.mark.parametrize("number", range(int(os.environ.get("MANY", "0"))))
def test_many(number):
    raise AssertionError
"""
"""A test that passes only at its second try, one that must not have one, and failures on demand."""


@pytest.mark.parametrize(
    ("environment", "workers", "code", "runs", "passed"),
    [
        ("NEVER=", "-n 2 --dist loadgroup", 0, 2, 2),
        ("NEVER=", "-n 0", 0, 2, 2),
        ("NEVER=1", "-n 0", 1, 2, 2),
        ("MANY=4", "-n 0", 1, 1, 0),
    ],
    ids=["passes then", "passes then, without workers", "fails twice", "too many"],
)
def test_a_test_that_fails_is_run_once_more(
    environment: str, workers: str, code: int, runs: int, passed: int, tmp_path: Path
) -> None:
    (tmp_path / "test_suite.py").write_text(SUITE)
    (tmp_path / "conftest.py").write_text(
        "from tests.support.second_try import SecondTry\n"
        "def pytest_configure(config):\n    config.pluginmanager.register(SecondTry())\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = xdist_group\n")
    suite = f"suite() {{ echo runs; {sys.executable} -m pytest -q -p no:cacheprovider {tmp_path} ${{1#ARGS=}}; }}"
    done, output = run(f'{suite}\nexport PYTHONPATH=. {environment}\npart one tests "{workers}" suite')
    assert (done, output.count("runs\n")) == (code, runs), output
    names = output.partition("passed only when run again")[2]
    assert names.count("::test_second[") == passed, output
    assert ("::test_never" in names, "::test_first" in names) == (False, False)


@pytest.mark.parametrize(("failed", "code"), [("test_x", 0), ("test_x\ntest_gone", 1)])
def test_a_test_that_is_not_found_again_has_failed(
    failed: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "failed").write_text(failed)
    for name, value in (("SHIM_SECOND_TRY", "1"), ("SHIM_FAILED", str(tmp_path / "failed")), ("SHIM_RERUNS", "")):
        monkeypatch.setenv(name, value)
    second, session = SecondTry(), cast("Any", SimpleNamespace(config=object(), exitstatus=0))
    second.pytest_runtest_logreport(cast("Any", SimpleNamespace(nodeid="test_x", failed=False)))
    second.pytest_sessionfinish(session)
    assert session.exitstatus == code


SELECTIONS = {
    "make test": ("pyproject.toml", r"-m '(.+)' -p", ("tests/e2e", "tests/http")),
    "make test-slow": ("Makefile", r'-m "(slow.+)" \$', ("tests/e2e", "tests/http")),
    "make e2e": ("Makefile", r'-m "(e2e.+)" tests/e2e', ("tests/e2e",)),
    "make slow-all": ("Makefile", r"-m (\w+) --ignore=tests/e2e", ("tests/http",)),
    "make e2e-all": ("Makefile", r"-m (\w+) tests/e2e", ("tests/e2e",)),
}
"""Part of `.ci/run` or `.ci/nightly` -> where the marks stand that it selects, and the folders in which it looks for them."""
COMBINATIONS = tuple(chain.from_iterable(combinations(("slow", "nightly"), count) for count in range(3)))


@pytest.mark.parametrize("folder", ["tests/e2e", "tests/http"])
@pytest.mark.parametrize("marks", COMBINATIONS, ids=lambda marks: " and ".join(marks) or "no marks")
def test_a_test_with_any_marks_is_run_by_one_part(folder: str, marks: tuple[str, ...]) -> None:
    marks = (*marks, "e2e") if folder == "tests/e2e" else marks
    parts: list[str] = []
    for part, (file, pattern, folders) in SELECTIONS.items():
        [selection] = re.findall(pattern, (REPO / file).read_text())
        if folder in folders and Expression.compile(selection).evaluate(lambda name, **_: name in marks):
            parts.append(part)
    assert len(parts) == 1


@pytest.mark.parametrize(("target", "folder"), [("micro", "tests/micro"), ("test-process", "tests/process")])
def test_a_folder_that_make_test_leaves_out_is_a_part_of_its_own(target: str, folder: str) -> None:
    lines = (REPO / ".ci" / "run").read_text().splitlines()
    assert len([line for line in lines if line.startswith(("part ", "background ")) and f"make {target}" in line]) == 1
    makefile = (REPO / "Makefile").read_text()
    assert re.search(rf"\ntest: .*\n\t.*--ignore={folder} ", makefile)
    assert re.search(rf"\n{target}: .*\n\t.*pytest.* {folder}\b", makefile)


def worker(mib: int) -> Any:
    """A worker at its end, as the process sees it that has the results."""
    return SimpleNamespace(gateway=SimpleNamespace(id="gw0"), workeroutput={"held_mib": mib})


@pytest.mark.parametrize(("mib", "code"), [(MAX_MIB, pytest.ExitCode.OK), (MAX_MIB + 1, TOO_MUCH)])
def test_a_worker_that_keeps_too_much_memory_fails_the_run(mib: int, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_memory, "held_mib", lambda: 1)
    memory = WorkerMemory()
    memory.pytest_testnodedown(worker(mib))
    session: Any = SimpleNamespace(config=object(), exitstatus=pytest.ExitCode.OK)
    memory.pytest_sessionfinish(session)
    assert session.exitstatus == code
    assert [line.split()[:3] for line in memory.excess()] == [["gw0", "holds", f"{mib}"]] * (code != pytest.ExitCode.OK)


def test_a_worker_compiles_its_share_of_the_tests_once(
    tmp_path: Path, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    files = [tmp_path / f"test_{name}.py" for name in "abc"]
    for file in files:
        file.write_text("def test_it():\n    assert 1 == 1\n")
    assert compile_share(pytestconfig, files, 1, 2) == 1
    assert [compile_share(pytestconfig, files, number, 2) for number in (0, 1)] == [2, 0]
    for file in files:
        assert rewrite._read_pyc(file, rewrite.get_cache_dir(file) / f"{file.stem}{rewrite.PYC_TAIL}") is not None


def test_a_worker_tells_what_it_holds() -> None:
    session: Any = SimpleNamespace(config=SimpleNamespace(workeroutput={}), exitstatus=pytest.ExitCode.OK)
    WorkerMemory().pytest_sessionfinish(session)
    assert session.config.workeroutput["held_mib"] > 20
