"""A hostile agent does not get out of its sandbox: `support/hostile_agent.py`, an agent of the settings of our server."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from shim.processes import sandbox
from shim.processes.sandbox import Enclosure, enclose, find_tool
from universal.sandbox import bounds_of

from .support.bench import DATABASE, Bench, Watch, bench
from .support.children import wait_for
from .support.servers import configure
from .support.wire import Stream, texts

TOOL = find_tool(os.environ.get("PATH", os.defpath))
BLOCKED = Path(__file__).parent / "support" / "no_bubblewrap"
"""A folder for the front of PATH: its `bwrap` makes no sandbox, as where namespaces are forbidden."""
BY_LANDLOCK = find_tool(f"{BLOCKED}:/usr/bin:/bin")
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(200),
    pytest.mark.skipif(bool(TOOL.why), reason=f"no sandbox can be made here: {TOOL.why}"),
]
HOSTILE = Path(__file__).parent / "support" / "hostile_agent.py"
ABSTRACT = f"opencode-shim-test-{os.getpid()}"
KEY = f"opencode-shim-test-{os.getpid()}"
LIBC = ctypes.CDLL(None, use_errno=True)
ADD_KEY, KEYCTL = {"x86_64": (248, 250), "aarch64": (217, 219)}.get(os.uname().machine, (-1, -1))
JOIN_SESSION, SESSION_KEYRING = 1, ctypes.c_int(-3)
SECRET = "magenta-outside"
BYTES = 2 * sandbox.TEMPORARY_BYTES
RULES = {"read": {"denied/*": "deny"}, "edit": {"fixed/*": "deny"}}
NETWORK = {
    "the servers api",
    "an abstract socket",
    "a name server",
    "a packet",
    "the servers api by another protocol",
    "the servers api by fast open",
    "the servers api by the proxy",
    "a host by the proxy",
}
"""Attacks that only a network of its own holds. In `project` the agent has the machine's."""
OPEN_BY_LANDLOCK = {
    "names and times of a file outside",
    "rights of a file outside",
    "processes of others",
    "hooks written",
    "hooks remounted",
    "hooks moved aside",
    "settings of git",
    "settings of agents",
}
"""Attacks that Landlock does not hold, as docs/sandbox.md says. It refuses sockets of this machine also in `project`."""
HARMLESS = (
    "a link to a file outside",
    "dots to a file outside",
    "a file written outside",
    "the persons keys",
    "hooks written",
    "settings of git",
    "settings of agents",
    "names and times of a file outside",
    "rights of a file outside",
    "a fixed file cut short",
    "the servers api",
    "an abstract socket",
    "a socket of the system",
    "the servers database",
    "the servers environment",
)
"""Attacks that may be made without a sandbox, to see that it is the sandbox that holds them."""


@pytest.fixture(scope="module")
def harmless() -> tuple[str, ...]:
    """HARMLESS, and the theft of a key of the kernel, if it keeps one for this session, which servers inherit."""
    has_session = LIBC.syscall(KEYCTL, JOIN_SESSION, None) > 0
    has_key = has_session and LIBC.syscall(ADD_KEY, b"user", KEY.encode(), b"x", 1, SESSION_KEYRING) > 0
    return (*HARMLESS, *(["keys of the servers session"] if has_key else []))


@pytest.fixture(scope="module", params=["off", "project", "strict", "project by Landlock", "strict by Landlock"])
def case(request: pytest.FixtureRequest) -> str:
    if "Landlock" in request.param and BY_LANDLOCK.why:
        pytest.skip(f"no sandbox can be made here: {BY_LANDLOCK.why}")
    if request.param in ("project", "strict") and TOOL.kind != "bubblewrap":
        pytest.skip(f"bubblewrap does not work here: {TOOL.better}")
    return request.param


@pytest.fixture(scope="module")
def bed(case: str, harmless: tuple[str, ...]) -> Iterator[Bench]:
    """A server whose only other agent is the hostile one."""
    hidden = {"PATH": f"{BLOCKED}:/usr/local/bin:/usr/bin:/bin"} if "Landlock" in case else {}
    with bench("mock", config={"permission": RULES}, SHIM_SANDBOX=case.split()[0], SHIM_AGENTS="{}", **hidden) as made:
        tools = made.place.root / "tools"
        tools.mkdir()
        shutil.copy(HOSTILE, tools)
        python = os.path.realpath(sys.executable)
        row = {
            "command": [python, str(tools / HOSTILE.name)],
            "sandbox_paths": [str(tools), os.path.dirname(os.path.dirname(python))],
        }
        made.settings["SHIM_AGENTS"] = json.dumps({"hostile": row})
        made.restart()
        yield made


@pytest.fixture(scope="module")
def results(bed: Bench, case: str, harmless: tuple[str, ...]) -> Iterator[dict[str, str]]:
    """What the attacks say, all in one turn."""
    project, outside = bed.place.project, bed.place.root / "outside"
    for folder in (outside, project / "denied", project / "fixed", project / "sub", bed.place.home / ".ssh"):
        folder.mkdir(exist_ok=True)
    (outside / "secret").write_text(SECRET)
    (project / "denied" / "key").write_text(SECRET)
    (project / "fixed" / "file").write_text("as it was")
    (bed.place.home / ".ssh" / "id_test").write_text(SECRET)
    (project / "opencode.json").write_text('{"permission": {}}')
    configure(bed.place, {"permission": RULES})
    path = str(outside / "socket")
    with closing(socket.socket(socket.AF_UNIX)) as abstract, closing(socket.socket(socket.AF_UNIX)) as named:
        abstract.bind("\0" + ABSTRACT)
        abstract.listen()
        named.bind(path)
        named.listen()
        aim = {
            "server": bed.shim.child.pid,
            "server_words": "opencode-shim",
            "secret": str(outside / "secret"),
            "outside": str(outside),
            "api": f"{bed.url}/session",
            "abstract": ABSTRACT,
            "socket": path,
            "bytes": BYTES,
            "database": str(bed.place.home / "data" / DATABASE),
            "key": KEY,
            **({"only": harmless} if case == "off" else {}),
        }
        stream = Stream(bed.api)
        watch = Watch.on(bed.api, stream)
        at = watch.prompt(f"ATTACKS {json.dumps(aim)}", model={"providerID": "hostile", "modelID": "default"})
        stream.idle(watch.session, since=at, timeout_s=100)
        answers = texts(bed.api.messages(watch.session)[-1:])
        stream.close()
        yield json.loads(answers[-1])


def test_nothing_gets_out(results: dict[str, str], case: str, harmless: tuple[str, ...]) -> None:
    out = {name for name, said in results.items() if said.startswith("OUT")}
    if case == "off":
        assert out == set(harmless), "each succeeds without a sandbox: else that it is held would show nothing"
        return
    assert len(results) > 41, "all attacks were made"
    assert SECRET not in json.dumps(results)
    network = NETWORK if case.startswith("project") else set[str]()
    if "Landlock" in case:
        assert out - network == OPEN_BY_LANDLOCK, results
        assert "an abstract socket" not in out
    else:
        assert out <= network, results


def test_the_project_is_as_it_was_where_it_is_protected(results: dict[str, str], bed: Bench, case: str) -> None:
    if case == "off":
        pytest.skip("nothing is protected without a sandbox")
    assert (bed.place.project / "denied" / "key").read_text() == SECRET
    assert (bed.place.project / "fixed" / "file").read_text() == "as it was"
    assert not (bed.place.root / "outside" / "planted").exists()
    if "Landlock" in case:
        return
    git = bed.place.project / ".git"
    assert not (git / "hooks" / "pre-commit").exists()
    assert "fsmonitor" not in (git / "config").read_text()
    assert (bed.place.project / "opencode.json").read_text() == '{"permission": {}}'
    assert not list(bed.place.project.glob(".git-*")), "the repository could be moved aside"


def test_the_server_lives_and_shows_what_was_tried(results: dict[str, str], bed: Bench, case: str) -> None:
    assert bed.api.get("/session")
    if case.startswith("strict"):
        assert "sandbox.host_refused" in bed.shim.child.log()


def test_the_number_of_processes_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shown with an account that is not root, which the kernel does not limit."""
    if not TOOL.has_mounts:
        pytest.skip(f"{TOOL.kind} has no limit of its own: {TOOL.better}")
    user = {"user": 54321, "group": 54321} if os.geteuid() == 0 else {}
    place = Path("/tmp", tmp_path.name + "-fork")
    project = place / "project"
    project.mkdir(parents=True)
    for folder in (place, project):
        if user:
            os.chown(folder, 54321, 54321)
    bounds = bounds_of("project", ())
    assert bounds is not None
    monkeypatch.setattr(sandbox.os, "geteuid", lambda: 54321)
    monkeypatch.setattr(sandbox, "LIMITED", sandbox.LIMITED.replace(str(sandbox.PROCESSES), "40"))
    bomb = "for i in $(seq 200); do sleep 5 & done; echo all"
    argv = enclose(TOOL, Enclosure(bounds, str(project), str(project), str(place)), ["/bin/sh", "-c", bomb])
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, env={"PATH": "/usr/bin:/bin"}, **user)
    finally:
        shutil.rmtree(place)
    assert "fork" in done.stderr.lower(), done
    assert done.stdout == "" or "retry" in done.stderr, "dash gives up, and bash waits until others have ended"


def test_lines_and_terminals_of_a_person_are_held_in_an_untrusted_project() -> None:
    """Without settings that run something there is nothing to trust, and nothing is held."""
    with bench("mock") as bed:
        outside, project = bed.place.root / "outside", bed.place.project
        outside.mkdir()
        (outside / "secret").write_text(SECRET)

        def outputs_of(name: str) -> tuple[str, str]:
            """What `!command` and a terminal show of a file outside."""
            session = bed.api.session()
            line = f"cat {outside}/secret; touch {name}"
            bed.api.post(f"/session/{session}/shell", {"agent": "build", "command": line})
            args = ["-c", f"(cat {outside}/secret; tty) > {name}.txt 2>&1; touch {name}.done"]
            bed.api.post("/pty", {"command": "/bin/sh", "args": args})
            wait_for(lambda: (project / f"{name}.done").exists(), 20, "the terminal does not end")
            return str(bed.api.messages(session)), (project / f"{name}.txt").read_text()

        line, terminal = outputs_of("free")
        assert SECRET in line and SECRET in terminal
        (project / ".mcp.json").write_text(json.dumps({"mcpServers": {"planted": {"command": "sh"}}}))
        line, terminal = outputs_of("held")
        assert SECRET not in line and SECRET not in terminal
        assert terminal.splitlines()[-1].startswith("/dev/"), "it is a terminal all the same"
        assert (project / "held").exists(), "work in the project goes on"
