"""docs/examples/cluster without containers: the programs of compose.yaml with its commands, variables and files, on ports of this
machine instead of names. A client works through the balancer, also after a server was killed.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from string import Template
from typing import Any

import pytest
import yaml

from tests.process.test_two_servers import Server, server
from tests.support.nats_server import NatsServer

from .support.children import wait_for
from .support.places import REPO, Place

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(240),
    pytest.mark.skipif(shutil.which("caddy") is None, reason="caddy is not installed"),
]
FOLDER = REPO / "docs" / "examples" / "cluster"
COMPOSE: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
PERSON = {"OPENCODE_SERVER_PASSWORD": "correct-horse", "NATS_PASSWORD": "12345", "SHIM_HOST": "localhost"}
"""What a person sets. NATS would take this password for a number."""
NATS, NODES = ("nats-1", "nats-2", "nats-3"), ("node-1", "node-2", "front")
PORT = re.compile(r"\b(nats-[123]|node-[12]|front):(\d+)")
STORE = 'store_dir: "/data"'
START_S, SEEN_S, CALL_S = 60.0, 40.0, 30.0


class Ports:
    """A free port of this machine for each HOST:PORT of the example."""

    def __init__(self) -> None:
        self._ports: dict[tuple[str, str], int] = {}

    def find(self, host: str, port: str) -> int:
        if (host, port) not in self._ports:
            with socket.create_server(("127.0.0.1", 0)) as free:
                self._ports[host, port] = free.getsockname()[1]
        return self._ports[host, port]

    def put(self, text: str) -> str:
        """A text of the example with addresses of this machine."""
        return PORT.sub(lambda found: f"127.0.0.1:{self.find(found[1], found[2])}", text)


def environment(name: str, ports: Ports) -> dict[str, str]:
    """The variables of a service, as compose makes them."""
    values: Mapping[str, str] = SERVICES[name]["environment"]
    texts = {key: re.sub(r"\$\{(\w+):[?-][^}]*\}", r"${\1}", value) for key, value in values.items()}
    found = {
        key: ports.put(Template(text).safe_substitute({"ANTHROPIC_API_KEY": "", "OPENAI_API_KEY": "", **PERSON}))
        for key, text in texts.items()
    }
    if "SHIM_CLUSTER" in found:
        found["SHIM_CLUSTER"] = "nats://" + ",".join(f"127.0.0.1:{ports.find(host, '4222')}" for host in NATS)
    return found


@contextmanager
def nats(name: str, place: Place, ports: Ports) -> Iterator[None]:
    client, route, monitor = (ports.find(name, port) for port in ("4222", "6222", "8222"))
    file, text = place.root / "nats.conf", (FOLDER / "nats.conf").read_text()
    assert text.count(STORE) == 1
    file.write_text(text.replace(STORE, ""))  # `NatsServer` chooses its folder
    command = [word if word != "/etc/nats/nats.conf" else str(file) for word in SERVICES[name]["command"]]
    here = ["--cluster_listen", f"nats://127.0.0.1:{route}", "--http_port", str(monitor)]
    running = NatsServer(place.root / name, *command, *here, port=client, environment=environment(name, ports))
    running.start()
    try:
        yield
    finally:
        running.stop()


@contextmanager
def node(name: str, place: Place, ports: Ports) -> Iterator[Server]:
    command = SERVICES[name].get("command", ["serve"])
    more = environment(name, ports) | {"SHIM_CLUSTER_NAME": SERVICES[name]["hostname"], "SHIM_DATA_DIR": str(place.root / name)}
    if "SHIM_ROOTS" in more:
        more["SHIM_ROOTS"] = str(place.home)
    if "--no-agents" in command:
        more["SHIM_NO_AGENTS"] = "true"
    with server(place.project, port=ports.find(name, "4096"), **more) as running:
        yield running


@contextmanager
def balancer(place: Place, ports: Ports) -> Iterator[str]:
    """Caddy with its file of the example, without HTTPS."""
    url = f"http://localhost:{ports.find('balancer', '80')}"
    file = place.root / "Caddyfile"
    file.write_text("{\n admin off\n}\n" + ports.put((FOLDER / "Caddyfile").read_text()))
    argv = ["caddy", "run", "--adapter", "caddyfile", "--config", str(file)]
    with place.log("caddy").open("w") as log:
        process = subprocess.Popen(argv, env=place.env(SHIM_HOST=url), stdout=log, stderr=log)
        try:
            yield url
        finally:
            process.terminate()
            process.wait(START_S)


class Client:
    """A client of the balancer."""

    def __init__(self, url: str) -> None:
        self.url = url
        login = base64.b64encode(f"opencode:{PERSON['OPENCODE_SERVER_PASSWORD']}".encode()).decode()
        self.headers = {"Content-Type": "application/json", "Authorization": f"Basic {login}"}

    def call(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Status and JSON of an answer; status 0 while nobody listens."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, self.headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=CALL_S) as answer:
                text = answer.read()
                return answer.status, json.loads(text) if text else None
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()
        except urllib.error.URLError:
            return 0, None

    def say(self, session: str, word: str) -> bool:
        """Whether a prompt was answered."""
        parts = {"parts": [{"type": "text", "text": f"echo {word}"}]}
        return self.call("POST", f"/session/{session}/message", parts)[0] == 200

    def texts(self, session: str) -> list[str]:
        messages = self.call("GET", f"/session/{session}/message")[1]
        return [part["text"] for message in messages for part in message["parts"] if part["type"] == "text"]


def test_a_client_of_the_balancer_goes_on_after_the_loss_of_a_server(place: Place) -> None:
    ports = Ports()
    with ExitStack() as running:
        for name in NATS:
            running.enter_context(nats(name, place, ports))
        nodes = {name: running.enter_context(node(name, place, ports)) for name in NODES}
        client = Client(running.enter_context(balancer(place, ports)))
        wait_for(lambda: client.call("GET", "/global/health")[0] == 200, START_S, place.log("caddy").read_text)

        def list_nodes() -> dict[str, Any]:
            answer = client.call("GET", "/v1/x-nodes")[1]
            return {row["name"]: row for row in answer["nodes"]}

        wait_for(lambda: list_nodes().keys() == set(NODES), SEEN_S, "not all servers are in the cluster")
        session = wait_for(lambda: client.call("POST", "/session", {})[1]["id"], SEEN_S, "no server takes a session")
        assert client.say(session, "one")
        assert all(client.texts(session) == ["echo one", "one"] for _ in NODES), "each server shows it"
        (owner,) = [name for name, row in list_nodes().items() if row["sessions"]]
        assert owner != "front"
        nodes[owner].kill()
        wait_for(lambda: client.say(session, "two"), SEEN_S, "no other server goes on with the session")
        assert client.texts(session) == ["echo one", "one", "echo two", "two"]
        assert client.call("GET", "/session")[0] == 200
        client.headers.pop("Authorization")
        assert client.call("GET", "/session")[0] == 401
