"""The steps of the Dockerfile, done in folders that debootstrap makes: no registry of images is needed.

`COPY`, `ENV`, `USER`, `WORKDIR` and the build arguments are done as an image builder does them, `RUN` by chroot. Not done:
layers, the isolation of a container. Needs root, debootstrap and Debian's and Python's package registries.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.dockerfile import Stage, last, parse, substitute, words

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(bool(os.geteuid()) or shutil.which("debootstrap") is None, reason="needs root and debootstrap"),
]
ROOT = Path(__file__).resolve().parents[2]
STEP_S = 600
HEALTHY_S = 60
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
INSIDE = "/etc/of-the-builder.crt"
"""Where those of this machine are put: the package ca-certificates writes its own."""


@contextmanager
def host_mounts(root: Path) -> Iterator[None]:
    """/proc and /dev inside, and the names and certificates of this machine, as an image builder lends them."""
    for name in ("proc", "dev"):
        subprocess.run(["mount", "--bind", f"/{name}", str(root / name)], check=True)
    try:
        for name in ("resolv.conf", "hosts"):
            if Path("/etc", name).exists():
                shutil.copy(Path("/etc", name), root / "etc" / name)
        yield
    finally:
        for name in ("proc", "dev"):
            subprocess.run(["umount", "--lazy", str(root / name)], check=True)


def in_root(root: Path, stage: Stage, command: list[str], *, user: str = "0:0", cwd: str = "/", **more: str) -> list[str]:
    """The command line that runs `command` in a stage's folder."""
    variables = {
        "HOME": "/root",
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        **stage.variables,
        **more,
    }
    trust = dict.fromkeys(("PIP_CERT", "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS"), INSIDE)
    pairs = [f"{name}={value}" for name, value in {**variables, **trust, "DEBIAN_FRONTEND": "noninteractive"}.items()]
    shell = ["/bin/sh", "-c", 'cd "$0" && exec "$@"', cwd, *command]
    return ["chroot", f"--userspec={user}", str(root), "/usr/bin/env", "-i", *pairs, *shell]


def run(argv: list[str]) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=STEP_S, check=False)
    assert done.returncode == 0, f"{argv[-1][:300]}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def copy(rest: str, cwd: str, root: Path, roots: dict[str, Path]) -> None:
    """COPY, from the checkout (what git has) or from another stage."""
    *sources, target = rest.split()
    if sources[0].startswith("--from="):
        origin = roots[sources.pop(0).partition("=")[2]]
        [source] = sources
        shutil.copytree(origin / source.lstrip("/"), root / target.lstrip("/"), symlinks=True)
        return
    assert (sources, target) == (["."], "."), rest
    place = root / cwd.lstrip("/")
    kept = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    for name in kept:
        if name == ".git":
            subprocess.run(["git", "clone", "--quiet", "--bare", "--shared", str(ROOT), str(place / ".git")], check=True)
            subprocess.run(["git", "-C", str(place / ".git"), "config", "core.bare", "false"], check=True)
        elif (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, place / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, place / name)


def build(stage: Stage, root: Path, roots: dict[str, Path]) -> None:
    user, cwd = "0:0", "/"
    later = {rest.partition("=")[0] for word, rest in stage.steps if word == "ENV"}
    now = Stage(stage.name, stage.base, [], {name: value for name, value in stage.variables.items() if name not in later})
    for word, rest in stage.steps:
        if word == "RUN":
            run(in_root(root, now, ["/bin/sh", "-c", substitute(rest, now.variables)], user=user, cwd=cwd))
        elif word == "ENV":
            name, _, value = rest.partition("=")
            now.variables[name] = value
        elif word == "COPY":
            copy(rest, cwd, root, roots)
        elif word == "WORKDIR":
            cwd = rest
            (root / cwd.lstrip("/")).mkdir(parents=True, exist_ok=True)
        elif word == "USER":
            user = rest


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A minimal Debian of the release that the Dockerfile begins with."""
    [stage, *_] = parse(ROOT / "Dockerfile", {})
    release = stage.base.removeprefix("debian:").removesuffix("-slim")
    made = os.environ.get("SHIM_TEST_DEBIAN_ROOT")
    base = Path(made) if made else tmp_path_factory.mktemp("base") / release
    if not made:
        run(["debootstrap", "--variant=minbase", "--include=ca-certificates", release, str(base)])
    return base


@pytest.mark.parametrize("agents", ["", "@anthropic-ai/claude-code"])
def test_the_image_is_built_and_serves_as_its_user(bases: Path, tmp_path: Path, agents: str) -> None:
    stages = parse(ROOT / "Dockerfile", {"AGENTS": agents})
    roots: dict[str, Path] = {}
    for number, stage in enumerate(stages):
        root = tmp_path / f"stage-{number}"
        subprocess.run(["cp", "--archive", "--reflink=auto", str(bases), str(root)], check=True)
        shutil.copy(CERTIFICATES, root / INSIDE.lstrip("/"))
        roots[stage.name or str(number)] = root
        with host_mounts(root):
            build(stage, root, roots)
    final = stages[-1]
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = str(sock.getsockname()[1])
    secret = {"OPENCODE_SERVER_PASSWORD": "correct-horse", "SHIM_PORT": port}
    user, cwd = last(final, "USER"), last(final, "WORKDIR")
    with host_mounts(root):
        command = [*words(last(final, "ENTRYPOINT")), *words(last(final, "CMD"))]
        server = subprocess.Popen(in_root(root, final, command, user=user, cwd=cwd, **secret), stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == f"opencode server listening on http://0.0.0.0:{port}\n"
            health = json.loads(last(final, "HEALTHCHECK").partition("CMD ")[2])
            until = time.monotonic() + HEALTHY_S
            while subprocess.run(in_root(root, final, health, user=user, cwd=cwd, **secret), capture_output=True).returncode:
                assert time.monotonic() < until
            told = json.loads(run(in_root(root, final, ["opencode-shim", "agents", "--json"], user=user, cwd=cwd)))
            usable = {row["name"] for row in told if row["problem"] is None}
            assert ("claude" in usable) == bool(agents)
            with pytest.raises(urllib.error.HTTPError, match="401"):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/session", timeout=10)
            assert Path(f"/proc/{server.pid}/status").read_text().split("Uid:")[1].split()[0] == "1000"
            assert (root / "data" / "opencode-shim.db").stat().st_uid == 1000
            server.terminate()
            assert server.wait(10) == 0
        finally:
            server.kill()
            server.communicate()
