"""Writes the results of an adoption: the tested version in the agent's spec, and the pin of tests/e2e.

The spec is the only source of the version; tables and documents are generated from it.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.packages import ROOT, numbers, program

AGENTS = ROOT / "universal" / "agents"
E2E = ROOT / "tests" / "e2e"
LOCK_S = 180
"""Timeout in seconds for npm to write the lock file."""


@dataclass(frozen=True, slots=True)
class VersionRange:
    """The place of an agent's `tested=(...)`: lines and columns of the tuple."""

    path: Path
    node: ast.Tuple


def version_ranges(name: str, folder: Path = AGENTS) -> Iterator[VersionRange]:
    """Find the range of tested versions in each spec with this name. A correct registry has one."""
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text("utf-8")
        for node in ast.walk(ast.parse(text)) if "tested=" in text else ():
            if isinstance(node, ast.Call) and _owner(node, path) == name:
                for word in ast.walk(node):
                    if isinstance(word, ast.keyword) and word.arg == "tested" and isinstance(word.value, ast.Tuple):
                        yield VersionRange(path, word.value)


def _owner(call: ast.Call, path: Path) -> str:
    """The agent's name: the first argument or `name=` if it is a text; for a constant, the folder's name."""
    value = next((word.value for word in call.keywords if word.arg == "name"), call.args[0] if call.args else None)
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        return value.value
    return path.parent.name if isinstance(value, ast.Name) and value.id == "NAME" else ""


def with_version(tested: tuple[str, ...], version: str) -> tuple[str, ...]:
    """Extend the range of tested versions (oldest, newest) by a version."""
    ordered = sorted({*tested, version}, key=numbers)
    return tuple(dict.fromkeys((ordered[0], ordered[-1])))


def set_tested(name: str, version: str, folder: Path = AGENTS) -> Path | None:
    """Write a version into the spec or card of an agent. Returns the file, or None if it needs no change."""
    card = folder / "acp" / "cards" / f"{name}.toml"
    if card.exists():
        return _set_in_card(card, version)
    [place] = list(version_ranges(name, folder))
    before: tuple[str, ...] = ast.literal_eval(place.node)
    after = with_version(before, version)
    if after == before:
        return None
    lines = place.path.read_text("utf-8").splitlines(keepends=True)
    node = place.node
    assert node.end_lineno == node.lineno, "a range of two versions stands on one line"
    line = lines[node.lineno - 1]
    words = ", ".join(json.dumps(one) for one in after) + ("," if len(after) == 1 else "")
    lines[node.lineno - 1] = f"{line[: node.col_offset]}({words}){line[node.end_col_offset :]}"
    place.path.write_text("".join(lines), "utf-8")
    return place.path


def _set_in_card(card: Path, version: str) -> Path | None:
    text = card.read_text("utf-8")
    before = tuple(tomllib.loads(text).get("tested", ()))
    after = with_version(before, version)
    if after == before:
        return None
    row = f"tested = {json.dumps(list(after))}"
    pattern = r"^tested = .*$" if before else r"^(?=install_hint = )"
    card.write_text(re.sub(pattern, row if before else f"{row}\n", text, count=1, flags=re.M), "utf-8")
    return card


def set_pin(package: str, version: str, folder: Path = E2E) -> Path | None:
    """Pin an npm package of tests/e2e to a version, if it is pinned there, and update the lock file.

    Returns package.json, or None if it needs no change. Raises RuntimeError if npm cannot write the lock file.
    """
    path = folder / "package.json"
    text = path.read_text("utf-8")
    manifest = json.loads(text)
    before = manifest["dependencies"].get(package)
    if before is None or before == version:
        return None
    path.write_text(text.replace(f'"{package}": "{before}"', f'"{package}": "{version}"'), "utf-8")
    argv = [program("npm"), "install", "--package-lock-only", "--no-fund", "--no-audit", "--loglevel=error"]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=LOCK_S, check=False)
    if done.returncode != 0:
        path.write_text(text, "utf-8")
        raise RuntimeError(
            f"npm cannot write {folder.name}/package-lock.json for {package} {version}: {done.stderr.strip()[-300:]}"
        )
    return path
