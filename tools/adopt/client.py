"""Tries a newer version of OpenCode as a client: compares its API document, and runs its CLI, TUI and web UI on our server.

    python -m tools.adopt.client VERSION [--write]

`--write` stores the version's document if it differs from the served one; `tools/generate.py` reads the newest.
Exit code: 0 it can be adopted, 1 code must change first, 2 it cannot be installed.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from shim.dev.record.homes import OPENCODE_ENV, Place
from tools.adopt.agent import pytest, say
from tools.adopt.install import InstallError, install
from tools.generate import DOCUMENT, METHODS, load
from tools.packages import ROOT

PROGRAM = "opencode"
PACKAGE = "opencode-ai"
START_S = 60.0
"""Timeout in seconds for `opencode serve` to print its port."""
SMOKE_S = 540
URL = re.compile(r"listening on (http://127\.0\.0\.1:\d+)")
SMOKE: tuple[tuple[str, str], ...] = (
    ("tests/e2e/test_run.py", "mock"),
    ("tests/e2e/test_tui.py", "mock and not 1.1.53 and (grows or permission_is_asked)"),
    ("tests/e2e/test_web.py", "mock and (prompt_is_answered or permission_is_answered)"),
)
"""(test file, selection) of `run --attach`, of the TUI, and of the web UI inside the program."""


def document_of(binary: Path, path: str) -> dict[str, Any]:
    """The answer of `GET /doc` of a version, which runs with an empty home. Raises InstallError if it does not serve."""
    place = asyncio.run(Place.make())
    env = {**place.environment(OPENCODE_ENV), "PATH": path}
    log = place.root / "serve.log"
    try:
        with log.open("wb") as out:
            server = subprocess.Popen(
                [str(binary), "serve", "--port", "0"],
                cwd=place.project,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        try:
            with urlopen(f"{_url(server, log)}/doc", timeout=START_S) as answer:  # noqa: S310 - on loopback
                return json.load(answer)
        except (URLError, ValueError) as error:
            raise InstallError(f"`opencode serve` gave no document: {error}") from error
        finally:
            server.kill()
            server.wait()
    finally:
        place.remove()


def _url(server: subprocess.Popen[bytes], log: Path) -> str:
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        if match := URL.search(log.read_text("utf-8", "replace")):
            return match[1]
        if server.poll() is not None:
            break
        time.sleep(0.1)
    raise InstallError(f"`opencode serve` did not start: {log.read_text('utf-8', 'replace').strip()[-300:]}")


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """Differences between two documents: a line for each operation and each schema."""
    before, after = _operations(old), _operations(new)
    yield from (f"operation new: {name}" for name in sorted(after.keys() - before.keys()))
    yield from (f"operation gone: {name}" for name in sorted(before.keys() - after.keys()))
    yield from (f"operation changed: {name}" for name in sorted(after.keys() & before.keys()) if after[name] != before[name])
    schemas, others = old["components"]["schemas"], new["components"]["schemas"]
    yield from (f"schema new: {name}" for name in sorted(others.keys() - schemas.keys()))
    yield from (f"schema gone: {name}" for name in sorted(schemas.keys() - others.keys()))
    for name in sorted(others.keys() & schemas.keys()):
        if others[name] != schemas[name]:
            yield f"schema changed: {name}{_properties(schemas[name], others[name])}"


def _operations(document: Mapping[str, Any]) -> dict[str, Any]:
    paths: Mapping[str, Any] = document["paths"]
    rows = [(method, path, item) for path, item in paths.items() for method in METHODS if method in item]
    return {f"{method.upper()} {path}": item[method] for method, path, item in rows}


def _properties(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    before, after = set(old.get("properties", {})), set(new.get("properties", {}))
    words = [f"+{name}" for name in sorted(after - before)] + [f"-{name}" for name in sorted(before - after)]
    return f" ({', '.join(words)})" if words else ""


def smoke(binary: Path, path: str) -> tuple[int, list[str]]:
    """Run the clients of this version on our server. Returns the number of tests and the failures."""
    total, failures = 0, list[str]()
    for tests, selection in SMOKE:
        count, failed = pytest(["-m", "e2e", tests, "-k", selection], {"E2E_CLIENT": str(binary), "PATH": path}, SMOKE_S)
        total += count
        failures += [f"{Path(tests).stem} {line}" for line in failed]
    return total, failures


def main(arguments: list[str]) -> int:
    """Run the command line. Returns the exit code."""
    words = [word for word in arguments if not word.startswith("--")]
    if len(words) != 1:
        sys.stderr.write("usage: make adopt-client VERSION=x.y.z\n")
        return 2
    version, began = words[0], time.monotonic()
    try:
        found = install(PROGRAM, PACKAGE, PROGRAM, version, ROOT / ".record" / f"{PROGRAM}-{version}", say)
        document = document_of(found.program, found.path)
    except InstallError as error:
        sys.stdout.write(f"OpenCode {version}: cannot install\n\n{error}\n")
        return 2
    changed = list(differences(load(), document))
    count, failures = smoke(found.program, found.path)
    verdict = "needs code" if changed or failures else "adopt"
    lines = [f"OpenCode {version} as a client: {verdict}", "", *found.notes, f"Installed: the {found.how}.", ""]
    lines += [f"document, against {DOCUMENT.parent.name}:", *(f"  - {line}" for line in changed or ["no difference"])]
    lines += [f"clients: {count} tests of run --attach, TUI and web UI", *(f"  - failed: {line}" for line in failures)]
    if "--write" in arguments and changed:
        target = DOCUMENT.parent.parent / version / DOCUMENT.name
        target.parent.mkdir(exist_ok=True)
        target.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", "utf-8")
        lines.append(f"written: {target.relative_to(ROOT)}; `make gen` and `make test` tell what follows")
    lines += ["", f"{(time.monotonic() - began) / 60:.1f} minutes."]
    sys.stdout.write("\n".join(lines) + "\n")
    return 1 if verdict == "needs code" else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
