"""What a cluster takes of memory and disk: `python -m tests.bench.cluster_size`. It prints its figures and writes nothing.

owner    bytes of a server for each session that it has, after one short turn (of the mock, which runs inside of the server)
listed   bytes of another server for each of them that it lists
read     bytes of another server for each of them that it has read
nats     bytes of memory of NATS for each session, and bytes on its disk for 1,000 events: of short turns, and of streamed text
"""

from __future__ import annotations

import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from shim.sessions.stored_sessions import KEPT
from tests.process.test_two_servers import Server, server, until
from tests.support.nats_server import NatsServer

SESSIONS = 300
AT_ONCE = 8
BURST = 20_000
"""Pieces of text of one turn."""


def resident(pid: int) -> int:
    """Bytes of memory of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))


def on_disk(folder: Path) -> int:
    """Bytes of all files in a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def events_of(node: Server) -> int:
    return sum(row["eventCount"] for row in node.get("/v1/sessions")["sessions"])


def kib(count: float) -> str:
    return f"{count / 1024:,.1f} KiB"


def measure(home: Path, nats: NatsServer) -> None:
    def settings(name: str) -> dict[str, str]:
        return {
            "SHIM_CLUSTER": nats.url,
            "SHIM_DATA_DIR": str(home / name),
            "SHIM_CLUSTER_NAME": name,
            "SHIM_MAX_SESSIONS": "9999",
        }

    with server(home, **settings("owner")) as owner, server(home, **settings("other")) as other:
        pids = {"owner": owner.process.pid, "other": other.process.pid, "nats": nats.pid}

        def sizes() -> dict[str, int]:
            return {name: resident(pid) for name, pid in pids.items()}

        def turn(_: int) -> str:
            session = owner.session()
            owner.prompt(session, "echo " + "a few words of an answer " * 8)
            return session

        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(turn, range(KEPT)))  # what every server has, once it has worked
            until(lambda: len(other.titles()) == KEPT)
            for session in other.titles():
                other.texts(session)
            base, disk, events = sizes(), on_disk(nats.folder), events_of(owner)
            print(f"servers at work: owner {kib(base['owner'])}, other {kib(base['other'])}, NATS {kib(base['nats'])}")
            sessions = list(pool.map(turn, range(SESSIONS)))
        until(lambda: len(other.get("/session?limit=9999")) == KEPT + SESSIONS)
        now = sizes()
        print(f"owner   {kib((now['owner'] - base['owner']) / SESSIONS)} a session")
        print(f"listed  {kib((now['other'] - base['other']) / SESSIONS)} a session of another server")
        print(f"nats    {kib((now['nats'] - base['nats']) / SESSIONS)} of memory a session")
        count = events_of(owner) - events
        print(f"        {kib((on_disk(nats.folder) - disk) / count * 1000)} of disk for 1,000 events of short turns")
        for session in sessions[:KEPT]:
            other.texts(session)
        print(f"read    {kib((resident(pids['other']) - now['other']) / KEPT)} a session ({KEPT} are kept)")
        disk, events = on_disk(nats.folder), events_of(owner)
        long = owner.session()
        owner.prompt(long, f"burst {BURST}")
        count = events_of(owner) - events
        print(f"        {kib((on_disk(nats.folder) - disk) / count * 1000)} of disk for 1,000 events of streamed text")
        print(f"NATS has {kib(resident(pids['nats']))} of memory and {kib(on_disk(nats.folder))} of disk at the end")


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        nats = NatsServer(home / "nats")
        nats.start()
        try:
            measure(home, nats)
        finally:
            nats.stop()


if __name__ == "__main__":
    main()
