"""A real `systemd --user` and journal for one test: in a mount namespace of its own, with a control group of its own.

systemd wants a machine that was booted with it. In the namespace there is /run/systemd/system, and a cgroup2 tree of which
ours is the root. Needs root.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from .children import wait_for

SYSTEMD = Path("/usr/lib/systemd/systemd")
JOURNALD = Path("/usr/lib/systemd/systemd-journald")
CGROUPS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))
"""Where the machine has its cgroup2 tree."""
START_S = 30.0
COMMAND_S = 90.0
SCRIPT = """
set -e
mount --make-rprivate /
mount -t tmpfs tmpfs /run/systemd
mkdir -p /run/systemd/system /run/systemd/journal /run/log
mount -t tmpfs tmpfs /run/log
mkdir -p /run/log/journal
mount -t cgroup2 none /sys/fs/cgroup
mkdir -p "/sys/fs/cgroup/$GROUP"
echo $$ > "/sys/fs/cgroup/$GROUP/cgroup.procs"
exec unshare --cgroup bash -c "$INSIDE"
"""
INSIDE = """
set -e
umount /sys/fs/cgroup
mount -t cgroup2 none /sys/fs/cgroup
mine=/sys/fs/cgroup/user.slice/user-0.slice/user@0.service
mkdir -p "$mine"
"$JOURNALD" &
(echo $BASHPID > "$mine/cgroup.procs"; exec "$SYSTEMD" --user --log-target=console) &
wait $!
"""
"""The journal knows a unit of a user by the names of these groups."""


def skip_reason() -> str:
    """Why it cannot be run here; "" if it can."""
    if os.geteuid():
        return "only root may make a mount namespace with a control group"
    if not SYSTEMD.exists() or shutil.which("unshare") is None or shutil.which("nsenter") is None:
        return "systemd is not on this machine"
    return ""


@dataclass
class UserSystemd:
    """A service manager that runs. `run` gives a command to it."""

    pid: int
    environment: dict[str, str]

    def run(self, *argv: str, check: bool = True, **more: str) -> subprocess.CompletedProcess[str]:
        """A command in its namespace, with its bus."""
        words = ["nsenter", "--target", str(self.pid), "--mount", "--pid", "--cgroup", "--", *argv]
        done = subprocess.run(
            words, env=self.environment | more, cwd=self.environment["HOME"], capture_output=True, text=True, timeout=COMMAND_S
        )
        assert done.returncode == 0 or not check, f"{argv}: {done.stdout}{done.stderr}"
        return done


@contextmanager
def user_systemd(home: Path, **environment: str) -> Iterator[UserSystemd]:
    """The manager of a person whose home this is. Everything that it started is ended."""
    runtime = home / "run"
    runtime.mkdir(mode=0o700)
    group = f"opencode-shim-test-{os.getpid()}"
    names = {"HOME": str(home), "XDG_RUNTIME_DIR": str(runtime), "LANG": "C.UTF-8", **environment}
    script = {
        "GROUP": group,
        "SYSTEMD": str(SYSTEMD),
        "JOURNALD": str(JOURNALD),
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "INSIDE": INSIDE,
    }
    with (home / "manager.log").open("w") as log:
        process = subprocess.Popen(
            ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-c", SCRIPT],
            env=names | script,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )

    def has_started() -> bool:
        assert process.poll() is None, (home / "manager.log").read_text()
        return (runtime / "systemd" / "private").exists()

    try:
        wait_for(has_started, START_S, (home / "manager.log").read_text)
        [child] = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        yield UserSystemd(int(child), names)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        _remove_groups(group)


def _remove_groups(name: str) -> None:
    """The control groups of the test, once the last process of its namespace has gone."""
    for top in (root / name for root in CGROUPS if (root / name).exists()):
        wait_for(partial(_is_removed, top), START_S, f"{top} is still in use")


def _is_removed(top: Path) -> bool:
    """Remove the groups that are empty; whether all of them are."""
    for folder, _, _ in os.walk(top, topdown=False):
        with suppress(OSError):
            os.rmdir(folder)
    return not top.exists()
