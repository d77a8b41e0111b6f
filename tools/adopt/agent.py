"""Adopts a version of an agent: installs it, records its scenes, runs the tests with it, and writes a report.

    python -m tools.adopt.agent AGENT [VERSION] [--dry]                  by default the newest version
    python -m tools.adopt.agent AGENT [VERSION] [SCENE ...] --record     installs and records, and does nothing else

Exit code: 0 adopted or nothing to do, 1 code must change first, 2 cannot be installed. `--dry` changes neither the spec nor
tests/e2e. A version that was adopted before, and shows nothing new, leaves all files as they were.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree as ET

from shim.cli.record import report_lines
from shim.dev.record.homes import Target, target
from shim.dev.record.packs import PACK, pack_folder
from shim.dev.record.report import Kinds
from shim.dev.record.report import compare as compare_kinds
from shim.dev.record.take import RecordingResult, folder_of, is_own_folder, kinds_in, scenes_in, take
from shim.lib.errors import ShimError
from tools.adopt.edits import set_pin, set_tested
from tools.adopt.install import InstalledProgram, InstallError, install, install_python
from tools.adopt.verdict import Findings, report
from tools.packages import ROOT, Package, RegistryError, newest
from universal.registry import agents

RECORDINGS = ROOT / "compat_fixtures" / "agents"
GOLDENS = ROOT / "compat_fixtures" / "goldens"
REPORT = "adoption.txt"
"""File name of the report. It lies beside the recordings, and docs/recordings.md shows it."""
TESTS_S = 900
DRIVE_S = 1800
GEN_S = 900
DRIVEN_TESTS = "tests/e2e/test_agents.py"
CODES = {"adopt": 0, "nothing to do": 0, "needs code": 1, "cannot install": 2}


class Earlier(NamedTuple):
    """The recordings of the same version that an earlier adoption has left, and whether it ended well."""

    files: dict[Path, bytes]
    scenes: set[str]
    kinds: Kinds
    adopted: bool

    @classmethod
    def read(cls, folder: Path) -> Earlier | None:
        """None where this recorder has recorded nothing of the version."""
        if not is_own_folder(folder):
            return None
        report_, scenes = folder / REPORT, scenes_in(folder)
        head = report_.read_text("utf-8").partition("\n")[0] if report_.exists() else ""
        goldens = GOLDENS / f"{folder.relative_to(RECORDINGS)}.jsonl.xz"
        files = {path: path.read_bytes() for path in (folder / PACK, goldens) if path.exists()}
        return cls(files, scenes, kinds_in(folder, scenes), head.endswith(": adopt"))

    def holds(self, taken: RecordingResult) -> bool:
        """Whether the new recordings have no scene, kind or field that these lack."""
        difference = compare_kinds(self.kinds, kinds_in(taken.folder, taken.scenes))
        return self.scenes.issuperset(taken.scenes) and not (difference.new_kinds or difference.new_fields)

    def restore(self) -> None:
        """Put the recordings and what clients saw of them back: ids and times differ each time."""
        for path, data in self.files.items():
            path.write_bytes(data)


def say(line: str) -> None:
    """Print a line at once."""
    sys.stderr.write(f"  {line}\n")
    sys.stderr.flush()


@contextmanager
def measure_step(found: Findings, step: str) -> Generator[None]:
    """Measure a step of the adoption."""
    began = time.monotonic()
    try:
        yield
    finally:
        found.seconds[step] = time.monotonic() - began


def adopt(agent: str, version: str, *, dry: bool = False) -> Findings:
    """Run all steps. Raises ShimError for an agent that does not exist or cannot be recorded."""
    to = target(agent)
    found = Findings(agent, version)
    folder = ROOT / ".record" / f"{agent}-{version}"
    try:
        with measure_step(found, "install"):
            installed = install_version(agent, to, version, folder)
    except InstallError as error:
        found.notes.append(str(error))
        return found
    found.notes += installed.notes
    found.installed = f"the {installed.how}"
    earlier = Earlier.read(folder_of(RECORDINGS, agent, to, version))
    with measure_step(found, "record"):
        taken = record(agent, version, installed)
    note(found, taken, earlier)
    if not taken.scenes:
        return found
    # The driven program mostly waits, so the recordings are played beside it.
    with measure_step(found, "replay, compare and drive"), ThreadPoolExecutor(max_workers=1) as pool:
        driving = pool.submit(drive, agent, installed)
        found.replays = replay_new_recordings(taken)
        compare(found, taken)
        found.drove, found.driven = driving.result()
    if earlier is not None and earlier.holds(taken):
        earlier.restore()
        found.nothing_new = earlier.adopted
    if found.verdict == "nothing to do":
        return found
    if found.verdict == "adopt" and not dry:
        with measure_step(found, "write"):
            write(found, to.package, installed)
    (taken.folder / REPORT).write_text("\n".join(report(found)) + "\n", "utf-8")
    if not dry:
        for argv in ([str(ROOT / "scripts" / "gen")], [sys.executable, "-m", "tools.outdated", "--write"]):
            subprocess.run(argv, cwd=ROOT, check=False, timeout=GEN_S, stdout=subprocess.DEVNULL)
    return found


def install_version(agent: str, to: Target, version: str, folder: Path) -> InstalledProgram:
    """Install a version from npm or PyPI. Raises InstallError."""
    if to.python:
        return install_python(to.package, to.program, version, to.python, folder)
    return install(agent, to.package, to.program, version, folder, say)


def record(agent: str, version: str, installed: InstalledProgram, scenes: tuple[str, ...] = ()) -> RecordingResult:
    """Record scenes (all, or the named ones) of the program into the fixtures, and pack them."""
    spec = agents()[agent]
    os.environ["PATH"] = installed.path
    environ = {**os.environ, spec.program.env_override: str(installed.program)}
    taken = asyncio.run(take(spec, RECORDINGS, environ, names=scenes, version=version, say=say))
    if taken.scenes and taken.failed:  # once more, with nothing beside them
        again = asyncio.run(take(spec, RECORDINGS, environ, names=tuple(taken.failed), version=version, say=say))
        taken.scenes.extend(again.scenes)
        for name in again.scenes:
            del taken.failed[name]
    pack_folder(taken.folder)
    return taken


def note(found: Findings, taken: RecordingResult, earlier: Earlier | None) -> None:
    """Add what the recorder tells to the report."""
    found.scenes = len(taken.scenes)
    found.unparsed = taken.unparsed
    found.failed = taken.failed
    found.possible = taken.possible
    found.before = taken.before or ""
    found.difference = taken.difference
    had = set(taken.failed)
    if earlier is not None:
        had = earlier.scenes
    elif taken.before:
        had = scenes_in(taken.folder.parent / taken.before)
    found.new_failures = [name for name in taken.failed if name in had]


def replay_new_recordings(taken: RecordingResult) -> list[str]:
    """Write the goldens of the new recordings, and run the tests of these recordings alone. Returns the failures."""
    name = taken.folder.relative_to(RECORDINGS).as_posix()
    python = sys.executable
    goldens = subprocess.run(
        [python, "-m", "tests.goldens", "write", f"{name}/"],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": "."}, capture_output=True, text=True, timeout=TESTS_S, check=False,
    )  # fmt: skip
    failures = [] if goldens.returncode == 0 else [f"goldens: {(goldens.stderr or goldens.stdout).strip()[-300:]}"]
    _, tests = pytest(["-n", "2", "tests/translate/test_recorded.py", "-k", f"{name}/"], {}, TESTS_S)
    return failures + tests


def compare(found: Findings, taken: RecordingResult) -> None:
    """Differences in what a session shows, compared with the version before."""
    from tools.adopt.evidence import changes  # late: it loads the tests' engines

    if taken.before is not None:
        found.changes = changes(taken.folder.parent / taken.before, taken.folder)


def drive(agent: str, installed: InstalledProgram) -> tuple[int, list[str]]:
    """Run the end-to-end tests of agents with this program. Returns the number of tests and the failures."""
    env = {"E2E_AGENT": agent, "E2E_PROGRAM": str(installed.program)}
    node = installed.path.split(os.pathsep)[0]
    if (Path(node) / "node").exists():
        env["E2E_NODE"] = node
    return pytest(["-m", "e2e", DRIVEN_TESTS], env, DRIVE_S)


def pytest(arguments: list[str], env: dict[str, str], most_s: float) -> tuple[int, list[str]]:
    """Run tests. Returns their number, and a line for each failure."""
    results = ROOT / ".record" / f"results-{os.getpid()}-{threading.get_ident()}.xml"
    results.unlink(missing_ok=True)
    argv = [sys.executable, "-m", "pytest", "-q", f"--junitxml={results}", *arguments]
    try:
        subprocess.run(argv, cwd=ROOT, env={**os.environ, **env}, capture_output=True, timeout=most_s, check=False)
    except subprocess.TimeoutExpired:
        return 0, [f"the tests did not end within {most_s:.0f} s"]
    if not results.exists():
        return 0, [f"`pytest {' '.join(arguments)}` wrote no results"]
    cases = list(ET.parse(results).iter("testcase"))  # noqa: S314 - pytest has written it
    results.unlink()
    cases = [case for case in cases if case.find("skipped") is None]
    failed = [(case, case.find("failure") if case.find("failure") is not None else case.find("error")) for case in cases]
    lines = [f"{case.get('name')}: {_first_line(end.get('message', ''))}" for case, end in failed if end is not None]
    return len(cases), lines if cases else ["no test was selected"]


def _first_line(message: str) -> str:
    return re.sub(r"\s+", " ", message.partition("\n")[0])[:200]


def write(found: Findings, package: str, installed: InstalledProgram) -> None:
    """Write the tested version, and the pin of the end-to-end tests if npm can install the package."""
    changed = [set_tested(found.agent, found.version)]
    if installed.how == "package":
        try:
            changed.append(set_pin(package, found.version))
        except RuntimeError as error:
            found.notes.append(str(error))
    found.written += [path.relative_to(ROOT).as_posix() for path in changed if path is not None]


def record_only(agent: str, version: str, scenes: tuple[str, ...]) -> int:
    """Install and record, without tests: `make record`. Returns the exit code."""
    to = target(agent)
    installed = install_version(agent, to, version, ROOT / ".record" / f"{agent}-{version}")
    taken = record(agent, version, installed, scenes)
    sys.stdout.write("\n".join(report_lines(taken)) + "\n")
    return 1 if taken.failed or taken.unparsed else 0


def newest_of(agent: str) -> str:
    """The newest version on npm or PyPI. Raises RegistryError."""
    to = target(agent)
    package = Package("agent", agent, "pypi" if to.python else "npm", to.package, "")
    return newest([package])[package.registry, package.package]


def main(arguments: list[str]) -> int:
    """Run the command line. Returns the exit code."""
    words = [word for word in arguments if not word.startswith("--")]
    if not words:
        sys.stderr.write("usage: make adopt AGENT=name [VERSION=x.y.z] | make record AGENT=name [VERSION=x.y.z] [SCENES='a b']\n")
        return 2
    try:
        agent, version, *scenes = words[0], *(words[1:] or ["latest"])
        if version == "latest":
            version = newest_of(agent)
        if "--record" in arguments:
            return record_only(agent, version, tuple(scenes))
        found = adopt(agent, version, dry="--dry" in arguments)
    except (ShimError, RegistryError, InstallError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write("\n".join(report(found)) + "\n")
    return CODES[found.verdict]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
