"""The build hook of the package: writes which commit it was built from, and the releases of the changelog, into the package.

`shim/build.json` is made for wheels and sdists of a checkout. A wheel that is built from an sdist takes the file from there.
An editable installation has none: `shim.lib.version` reads the checkout itself.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

TARGET = "shim/build.json"
STEP_S = 30
"""For one command of git."""
RELEASE = re.compile(r"^## \[(\d+\.\d+\.\d+)\] - (\d{4}-\d{2}-\d{2})", re.M)


class BuildInfoHook(BuildHookInterface[Any]):
    """Adds `shim/build.json` to what is built."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before it collects files."""
        root = Path(self.root)
        if version == "editable" or (root / TARGET).exists():
            return
        changelog = (root / "CHANGELOG.md").read_text("utf-8")
        info = {"releases": [{"version": number, "date": day} for number, day in RELEASE.findall(changelog)], **commit(root)}
        folder = tempfile.TemporaryDirectory(prefix="opencode-shim-build-")
        self._folder = folder  # the file must be there until hatchling has read it
        file = Path(folder.name) / "build.json"
        file.write_text(json.dumps(info, indent=1) + "\n")
        build_data["force_include"][str(file)] = TARGET


def commit(root: Path) -> dict[str, Any]:
    """The commit of the checkout, its day, and whether files differ from it; {} where there is no git or no repository."""
    if not (root / ".git").exists():
        return {}

    def git(*words: str) -> str:
        argv = ("git", *words)
        return subprocess.run(argv, cwd=root, capture_output=True, text=True, check=True, timeout=STEP_S).stdout.strip()

    try:
        return {
            "commit": git("rev-parse", "HEAD"),
            "date": git("log", "-1", "--format=%cs"),
            "modified": bool(git("status", "--porcelain", "--untracked-files=no")),
        }
    except (OSError, subprocess.SubprocessError):
        return {}
