"""docs/install.md and docs/remote-control.md: each command that stands there is run as it stands there, in an empty home.

The package comes from a local index with the wheel of this checkout; its dependencies come from PyPI. Ports are set by SHIM_PORT,
or are those of the page in a network namespace of the recipe's own.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.support import user_systemd
from tests.support.install_doc import block, blocks

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300), pytest.mark.xdist_group("install")]
ROOT = Path(__file__).resolve().parents[2]
COMMAND_S = 200
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
NETWORKED = {"uvx", "tool", "pip"}
RECIPES = {"caddy": "Caddyfile", "nginx": "nginx.conf", "ssh": "ssh"}
PLAYED = NETWORKED | {
    "doctor",
    "bash-completion",
    "zsh-completion",
    "fish-completion",
    "service",
    "proxy-settings",
    "pair",
    "ssh",
    "remote-service",
    "remote-pair",
    "remote-tls",
    "remote-list",
    "remote-end",
}
PLAYED |= {"mdns", "config", "backup", "restore", "prune", "remove", "Caddyfile", "nginx.conf"}


@dataclass
class Person:
    """Somebody with an empty home, an index that has the package, and uv."""

    home: Path
    environment: dict[str, str]

    def run(self, text: str, **more: str) -> str:
        """The output of a block; all of it has to succeed."""
        argv = ["bash", "-euo", "pipefail", "-c", text]
        environment = self.environment | more
        done = subprocess.run(
            argv, env=environment, cwd=self.home, capture_output=True, text=True, timeout=COMMAND_S, check=False
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}"
        return done.stdout

    def serve(self, text: str, **more: str) -> str:
        """A block that starts a server: its first line. It is stopped then."""
        argv = ["bash", "-euo", "pipefail", "-c", text]
        with (self.home / "server.log").open("w") as log:
            process = subprocess.Popen(
                argv,
                env=self.environment | more,
                cwd=self.home,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert "listening on" in line, (self.home / "server.log").read_text()
            return line
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.communicate(timeout=30)


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return str(sock.getsockname()[1])


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    """After `uv tool install opencode-shim`."""
    folder = tmp_path_factory.mktemp("person")
    uv = shutil.which("uv") or str(ROOT / ".uv" / "bin" / "uv")
    trust = {
        "UV_SYSTEM_CERTS": "true",
        "UV_NATIVE_TLS": "true",
        "PIP_CERT": str(CERTIFICATES),
        "SSL_CERT_FILE": str(CERTIFICATES),
    }
    inherited = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "LANG": "C.UTF-8"} | (
        trust if CERTIFICATES.exists() else {}
    )
    subprocess.run(
        [uv, "build", "--quiet", "--out-dir", folder / "dist"], cwd=ROOT, env=os.environ | trust, check=True, timeout=COMMAND_S
    )
    (folder / "tools").mkdir()
    for name in ("uv", "uvx"):
        (folder / "tools" / name).symlink_to(Path(uv).parent / name)
    (folder / "tools" / "python3").symlink_to(sys.executable)
    home = folder / "home"
    home.mkdir()
    environment = inherited | {
        "HOME": str(home),
        "PATH": f"{home}/.local/bin:{folder}/tools:/usr/bin:/bin",
        "UV_FIND_LINKS": str(folder / "dist"),
        "PIP_FIND_LINKS": str(folder / "dist"),
        "UV_PYTHON": str(Path(sys.executable).resolve()),
        "SHELL": "/bin/bash",
    }
    found = Person(home, environment)
    assert found.run(block("tool")).count(".") >= 2
    yield found


def test_every_block_of_the_pages_is_run_or_says_why_not() -> None:
    unmarked = [one.text for one in blocks() if one.mark is None]
    assert unmarked == []
    assert {one.name for one in blocks() if one.mark != "not run"} == PLAYED
    assert all(len(one.name) > 20 for one in blocks() if one.mark == "not run")


@pytest.mark.nightly
def test_uvx_starts_a_server_without_installing_anything(person: Person) -> None:
    port = free_port()
    assert person.serve(block("uvx"), SHIM_PORT=port) == f"opencode server listening on http://127.0.0.1:{port}\n"


@pytest.mark.nightly
def test_pip_installs_it(person: Person) -> None:
    assert person.run(block("pip")).splitlines()[-1].startswith("0.")


@pytest.mark.nightly
def test_doctor_says_what_works(person: Person) -> None:
    said = person.run(block("doctor"), SHIM_PORT=free_port())
    assert "server:" in said
    assert "mock" in said


@pytest.mark.nightly
def test_bash_completes_commands(person: Person) -> None:
    person.run(block("bash-completion"))
    file = "~/.local/share/bash-completion/completions/opencode-shim"
    words = 'COMP_WORDS=(opencode-shim ser); COMP_CWORD=1; _opencode_shim_completion opencode-shim ser; echo "${COMPREPLY[@]}"'
    assert person.run(f"source {file}; complete -p opencode-shim >/dev/null; {words}").split() == ["serve", "service"]


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("shell", "file", "mark"),
    [
        ("zsh", ".zfunc/_opencode-shim", "#compdef opencode-shim"),
        ("fish", ".config/fish/completions/opencode-shim.fish", "--command opencode-shim"),
    ],
)
def test_zsh_and_fish_get_their_completions(person: Person, shell: str, file: str, mark: str) -> None:
    """Read by the shell itself where it is installed."""
    person.run(block(f"{shell}-completion"))
    assert mark in (person.home / file).read_text()
    if (program := shutil.which(shell)) is not None:
        subprocess.run([program, "-n", person.home / file], check=True, timeout=COMMAND_S)


@pytest.mark.nightly
def test_settings_a_backup_and_its_restoring(person: Person) -> None:
    assert "debug" in person.run(block("config"))
    port = free_port()
    person.serve("opencode-shim serve", SHIM_PORT=port)
    (person.home / "sessions.tar.gz").unlink(missing_ok=True)
    assert "Wrote" in person.run(block("backup"))
    assert "Restored" in person.run(block("restore"))
    assert "0 of 0 sessions" in person.run(block("prune"))
    person.serve("opencode-shim serve", SHIM_PORT=port)


@pytest.mark.nightly
@pytest.mark.skipif(bool(os.geteuid()), reason="a network namespace of one's own needs root")
@pytest.mark.parametrize("name", RECIPES)
def test_a_client_comes_in_by(person: Person, tmp_path: Path, name: str) -> None:
    program = {"caddy": "caddy", "nginx": "nginx", "ssh": "sshd"}[name]
    if shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin") is None:
        pytest.skip(f"{program} is not on this machine")
    environment = person.environment | {"HOME": str(tmp_path)}
    argv = ["unshare", "--net", sys.executable, "-m", "tests.e2e.support.recipes", name, str(tmp_path)]
    argv.append(str(person.home / ".local" / "bin" / "opencode-shim"))
    done = subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=COMMAND_S, check=False)
    assert done.stdout == f"{name} works\n", done.stderr[-3000:]


@pytest.mark.nightly
def test_the_server_is_announced(person: Person) -> None:
    """As far as the page goes without the extra: it says which package is missing, or listens on all addresses."""
    with pytest.raises(AssertionError, match=r"opencode-shim\[mdns\]"):
        person.serve(block("mdns"), SHIM_PORT=free_port())
    person.run("uv tool install --quiet --force 'opencode-shim[mdns]'")
    assert "http://0.0.0.0:" in person.serve(block("mdns"), SHIM_PORT=free_port())


@pytest.mark.nightly
@pytest.mark.skipif(bool(user_systemd.skip_reason()), reason=user_systemd.skip_reason())
def test_remote_control_from_the_first_command_to_the_last(person: Person) -> None:
    """A paired device gets in by the link alone, over HTTP and then over HTTPS, until it is revoked."""
    names = {name: value for name, value in person.environment.items() if name != "HOME"} | {"HOSTNAME": "localhost"}
    names["PATH"] = f"{ROOT / '.e2e' / 'node_modules' / '.bin'}:{names['PATH']}"
    home, port = person.home.with_name("remote"), free_port()
    home.mkdir()
    jar = home / "device.cookies"
    with user_systemd.user_systemd(home, **names) as manager:

        def run(text: str) -> str:
            return manager.run("bash", "-euo", "pipefail", "-c", text).stdout

        def status(path: str, scheme: str = "http", accept: str = "application/json") -> str:
            curl = f"curl -skL -H 'Accept: {accept}' -b {jar} -c {jar} -o /dev/null -w '%{{http_code}}'"
            return run(f"{curl} {scheme}://127.0.0.1:{port}{path}")

        run(f"opencode-shim config set port {port}")
        run("opencode-shim service install")  # at 127.0.0.1: the block below installs it again, at another address
        assert "active (running)" in run(block("remote-service"))
        assert run("systemctl --user is-active opencode-shim.socket").strip() == "active"
        assert status("/session") == "401"
        [link] = [line for line in run(block("remote-pair")).splitlines() if "/auth/connect/" in line]
        assert status(link.partition(f":{port}")[2], accept="text/html") == "200", "the web UI"
        assert status("/session") == "200"
        password = block("remote-pair").splitlines()[0]
        [device] = [line.split()[0] for line in run(f"{password}\n{block('remote-list')}").splitlines() if " 20" in line]
        said = run(block("remote-tls"))
        assert f"https://0.0.0.0:{port}" in said
        assert status("/session", "https") == "200"
        run(f"{password}\nopencode-shim pair revoke {device}")
        assert status("/session", "https") == "401"
        run(block("remote-end"))


@pytest.mark.nightly
@pytest.mark.skipif(bool(user_systemd.skip_reason()), reason=user_systemd.skip_reason())
def test_the_service_and_its_removal(person: Person) -> None:
    """The last one: nothing of it stays."""
    names = {name: value for name, value in person.environment.items() if name != "HOME"}
    with user_systemd.user_systemd(person.home, **names) as manager:
        port = free_port()
        manager.run("opencode-shim", "config", "set", "port", port)
        said = manager.run("bash", "-euo", "pipefail", "-c", block("service")).stdout
        assert f"http://127.0.0.1:{port}" in said
        assert "active (running)" in said
        manager.run("bash", "-euo", "pipefail", "-c", block("remove"))
    left = [path for path in person.home.rglob("*opencode-shim*") if ".cache" not in path.parts]
    assert [
        path for path in left if "completion" not in str(path) and path.name != "opencode-shim" and ".zfunc" not in str(path)
    ] == []
