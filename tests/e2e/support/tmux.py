"""Drives a terminal program in tmux, on a socket of its own: type, press keys, read the screen, wait."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from .children import wait_for

KEY_PAUSE_S = 0.15
"""After each key: what a terminal program reads at once it takes for pasted text, and nothing on the screen says that it has."""
ENTER_PAUSE_S = 0.4
"""After the text is seen in the input box, before Enter: the box is drawn before its list of completions has closed."""
END_S = 3
"""For what ran in the window, after each signal."""

Want = str | re.Pattern[str] | tuple[str, ...] | Callable[[str], object]
"""What a screen is to have: a pattern, all of several, or what a function says.

Programs draw a screen in several steps, so all that a test reads of one is waited for.
"""


def squeeze(text: str) -> str:
    """Without blanks and the box's border: what was typed, however it was wrapped."""
    return re.sub(r"[\s┃╹▀│]+", "", text)


def _wait_for_more(count: Callable[[], int], before: int) -> None:
    wait_for(lambda: count() > before, 4)


def _runs(pid: int) -> bool:
    """Whether it has not ended; who was to collect its end may be gone itself."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


class Terminal:
    """One program in a window of fixed size."""

    def __init__(
        self, argv: Sequence[str], cwd: Path, env: Mapping[str, str], *, columns: int = 120, rows: int = 40, name: str = "main"
    ) -> None:
        self.socket = f"e2e-{os.getpid()}-{id(self)}"
        self.name = name
        sets = " ".join(f"{key}={shlex.quote(value)}" for key, value in env.items())
        program = " ".join(map(shlex.quote, argv))
        command = f'cd {shlex.quote(str(cwd))} && env -i {sets} {program}; echo "[exit $?]"; exec sleep 600'
        self.tmux("new-session", "-d", "-s", name, "-x", str(columns), "-y", str(rows), command)
        self.tmux("set-option", "-g", "escape-time", "0")

    def tmux(self, *args: str) -> str:
        done = subprocess.run(["tmux", "-L", self.socket, "-f", "/dev/null", *args], capture_output=True, text=True, timeout=20)
        return done.stdout

    def screen(self, *, colours: bool = False) -> str:
        """The text of the window; with `colours`, the escape sequences (SGR) too."""
        return self.tmux("capture-pane", "-p", *(["-e"] if colours else []), "-t", self.name)

    def type(self, text: str) -> None:
        self.tmux("send-keys", "-t", self.name, "-l", text)

    def key(self, *keys: str, pause_s: float = KEY_PAUSE_S) -> None:
        for key in keys:
            self.tmux("send-keys", "-t", self.name, key)
            time.sleep(pause_s)

    def submit(self, text: str) -> None:
        """Types a line, sees that it has arrived in the input box (keys sent too early are lost), presses Enter."""
        tail = squeeze(text)[-24:]

        def count() -> int:
            return squeeze(self.screen()).count(tail)

        for _ in range(4):
            before = count()
            self.type(text)
            try:
                _wait_for_more(count, before)
            except AssertionError:
                self.key("C-u")
                continue
            time.sleep(ENTER_PAUSE_S)
            self.key("Enter")
            return
        raise AssertionError(f"{text!r} does not arrive in the input box:\n{self.screen()}")

    def wait(self, want: Want, timeout_s: float = 20, *, gone: bool = False) -> str:
        """The screen once it matches (or, with `gone`, no longer does)."""

        def look() -> str | None:
            screen = self.screen()
            if callable(want):
                found = want(screen)
            else:
                found = all(re.search(each, screen) for each in (want if isinstance(want, tuple) else (want,)))
            return (screen or " ") if bool(found) != gone else None

        sense = "still there" if gone else "not seen"
        return wait_for(look, timeout_s, lambda: f"{want if not callable(want) else ''} {sense}:\n{self.screen()}")

    def settle(self, quiet_s: float = 1.0, timeout_s: float = 15) -> str:
        """The screen when it has not changed for `quiet_s`."""
        last, since = self.screen(), time.monotonic()

        def look() -> str | None:
            nonlocal last, since
            screen = self.screen()
            if screen != last:
                last, since = screen, time.monotonic()
            return (screen or " ") if time.monotonic() - since >= quiet_s else None

        return wait_for(look, timeout_s, lambda: f"the screen does not come to rest:\n{self.screen()}")

    def pids(self) -> list[int]:
        """The window's process and all below it."""
        top = self.tmux("display-message", "-p", "-t", self.name, "#{pane_pid}").strip()
        if not top:
            return []
        children: dict[int, list[int]] = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
                except OSError:
                    continue
                children.setdefault(parent, []).append(int(entry.name))
        found = [int(top)]
        for pid in found:
            found += children.get(pid, [])
        return found

    def close(self) -> None:
        """Ends the program and all below it: older clients outlive their terminal."""
        pids = self.pids()
        self.tmux("kill-server")
        for number in (signal.SIGTERM, signal.SIGKILL):
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
            with suppress(AssertionError):
                wait_for(lambda: not any(map(_runs, pids)), END_S)
                return
