"""Chromium, driven through tests/e2e/browser.mjs: one JSON command a line, one answer a line."""

from __future__ import annotations

import base64
import json
import select
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

from .places import MODULES, Place, tool

SCRIPT = Path(__file__).resolve().parents[1] / "browser.mjs"
ANSWER_S = 60


def url64(text: str) -> str:
    """How the web UI writes a directory or an origin in its paths."""
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


class BrowserError(AssertionError):
    """A command failed: a selector that did not appear, a page that did not load."""


class Browser:
    """One page in a fresh profile, 1280x900, dark, without motion."""

    def __init__(self, place: Place, name: str = "browser") -> None:
        profile = place.root / name
        argv = [tool("node"), str(SCRIPT), str(MODULES), tool("chromium"), str(profile)]
        self.errors = place.log(name).open("wb")
        self.process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env=place.env(),
            text=True,
            start_new_session=True,
        )

    def do(self, name: str, **args: Any) -> Any:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps({"do": name, **args}) + "\n")
        self.process.stdin.flush()
        ready, _, _ = select.select([self.process.stdout], [], [], ANSWER_S)
        line = self.process.stdout.readline() if ready else ""
        if not line:
            raise BrowserError(f"{name}: no answer from the browser within {ANSWER_S} s")
        answer = json.loads(line)
        if "error" in answer:
            raise BrowserError(f"{name} {args}: {answer['error']}\n--- page ---\n{self.text() if name != 'text' else ''}")
        return answer["ok"]

    def goto(self, url: str) -> None:
        self.do("goto", url=url)

    def text(self, selector: str = "body") -> str:
        return self.do("text", selector=selector)

    def wait_text(self, pattern: str, timeout_s: float = 20) -> None:
        """Waits until the page's text matches a JavaScript regular expression."""
        self.do("waitText", pattern=pattern, timeout=int(timeout_s * 1000))

    def wait(self, selector: str, *, state: str = "visible", timeout_s: float = 20) -> None:
        self.do("wait", selector=selector, state=state, timeout=int(timeout_s * 1000))

    def click(self, selector: str) -> None:
        self.do("click", selector=selector)

    def press(self, key: str) -> None:
        self.do("press", key=key)

    def screenshot(self, path: Path, selector: str | None = None) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.do("screenshot", path=str(path), **({"selector": selector} if selector else {}))

    def notes(self) -> list[dict[str, str]]:
        """Page errors, console errors and HTTP failures since the last call."""
        return self.do("notes")

    def close(self) -> None:
        if self.process.poll() is None:
            with suppress(BrowserError, OSError):
                self.do("close")
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(5)
        self.errors.close()
