"""What `landlock_start.py` holds a program to, on this kernel. Attacks by way of a server: `tests/e2e/test_sandbox.py`."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from shim.processes import landlock_start
from shim.processes.allow_lists import landlock_command
from shim.processes.landlock_start import CALLS, LEAST_ABI, find_abi, program_of
from universal.sandbox import Verdict

WAIT_S = 20
SYSTEM: dict[str, Verdict] = dict.fromkeys(("/usr", "/etc", "/opt", os.path.realpath(sys.base_prefix)), "fixed")
pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or find_abi() < LEAST_ABI or platform.machine() not in CALLS,
    reason="this kernel has no Landlock that knows TCP",
)


def run(places: dict[str, Verdict], script: str, *, ports: Sequence[int] | None = None, temporary: str = "/nowhere") -> str:
    """What a shell says within these places."""
    argv = landlock_command({**SYSTEM, **places}, temporary, ports, ["/bin/sh", "-c", f"({script}) 2>&1"])
    done = subprocess.run(argv, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert not done.stderr
    return done.stdout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("open/a", "fixed/b", "other/c"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(name)
    return tmp_path


def test_a_place_is_what_it_was_granted(folder: Path) -> None:
    places: dict[str, Verdict] = {f"{folder}/open": "writable", f"{folder}/fixed": "fixed"}
    lines = run(places, f"cd {folder}; cat fixed/b other/c; echo x > fixed/b; echo new > open/n && cat open/n; mv open/n fixed/n")
    assert lines.startswith("fixed/b") and lines.count("Permission denied") == 3 and "new" in lines
    assert (folder / "fixed" / "b").read_text() == "fixed/b" and (folder / "open" / "n").exists()


def test_temporary_files_have_a_folder_of_their_own(folder: Path) -> None:
    assert run({}, 'mktemp; echo "$TMPDIR"', temporary=f"{folder}/open").endswith(f"{folder}/open\n")
    assert len(list((folder / "open").iterdir())) == 2


def test_the_process_gives_up_its_rights() -> None:
    said = run({}, "grep -E 'Cap(Prm|Eff|Bnd)|NoNewPrivs|Seccomp:' /proc/self/status")
    values = dict(line.split(":\t") for line in said.splitlines())
    assert {values[name].strip("0") for name in ("CapPrm", "CapEff")} == {""}
    assert (values["NoNewPrivs"], values["Seccomp"]) == ("1", "2")
    if os.geteuid() == 0:
        assert values["CapBnd"].strip("0") == "", "no program of root gets them back"


SOCKETS = """
import errno, socket
for name, words in (("path", (1, 1, 0)), ("tcp", (2, 1, 0)), ("tcp6", (10, 1, 6)), ("udp", (2, 2, 0)), ("mptcp", (2, 1, 262))):
    try: socket.socket(*words); print(name, end=" ")
    except OSError as error: assert error.errno in (errno.EPERM, errno.EAFNOSUPPORT), error
"""


def test_without_a_network_nothing_but_tcp_is_left(folder: Path) -> None:
    (folder / "open" / "sockets.py").write_text(SOCKETS)
    script = f"{os.path.realpath(sys.executable)} -I -S {folder}/open/sockets.py"
    assert "path" not in run({f"{folder}/open": "fixed"}, script).split()
    assert "udp" in run({f"{folder}/open": "fixed"}, script).split()
    assert set(run({f"{folder}/open": "fixed"}, script, ports=()).split()) <= {"tcp", "tcp6"}


def test_a_kernel_without_it_says_what_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landlock_start, "find_abi", lambda: 3)
    with pytest.raises(SystemExit, match=r"version 3 here, and 4 is needed \(Linux 6\.7"):
        landlock_start.restrict([])


@pytest.mark.parametrize("machine", CALLS)
@pytest.mark.parametrize("has_network", [True, False])
def test_no_jump_of_the_filter_leaves_it(machine: str, has_network: bool) -> None:
    program = program_of(machine, has_network=has_network)
    rows = [program[at : at + 8] for at in range(0, len(program), 8)]
    for at, row in enumerate(rows):
        if row[0] == 0x15:
            assert at + 1 + max(row[2], row[3]) < len(rows)
    assert rows[-1][0] == 0x06, "it ends with an answer"
