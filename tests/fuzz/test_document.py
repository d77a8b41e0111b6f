"""schemathesis reads the document that we serve and makes requests from it, right ones and wrong ones; OpenCode's own
document judges the answers (`tests/support/oracle.py`): no answer is a fault of the server, none breaks its schema.

A few for each operation in `make slow-all`, the same ones each time; `make fuzz` sets SHIM_API_REQUESTS.
What it found is in `FOUND`.
"""

from __future__ import annotations

import json
import os
from functools import cache
from importlib import resources
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from yarl import URL

from tests.fuzz.live_server import Server
from tests.support.api import Answer, check
from tests.support.live import prompt_body
from tests.support.oracle import oracle

STREAMS = frozenset({"event.subscribe", "global.event", "v2.event.subscribe", "v2.session.events"})
WAITS = frozenset({"tui.control.next"})
"""It answers when a client asks for something."""
HARMLESS: dict[str, dict[str, Any]] = {
    "session.shell": {"command": "echo x"},
    "pty.create": {"command": "/bin/echo", "args": ["x"], "cwd": None},
    "pty.update": {},
    "worktree.create": {"startCommand": None},
    "mcp.add": {"config": {"type": "local", "command": ["true"], "enabled": False}},
}
"""operation -> what its body has instead: nobody's command is run, as random as it may be. None: without it."""
CHOSEN = int(os.environ.get("SHIM_API_REQUESTS", "0"))
"""About how many requests; 0: `FEW` right ones and a wrong one for each operation."""
FEW = 2


@cache
def operations() -> dict[str, Any]:
    """operationId -> schemathesis' operation, of the document of GET /doc."""
    document = json.loads(resources.files("shim.faces.opencode1").joinpath("openapi.json").read_text())
    schema = schemathesis.openapi.from_dict(document)
    found = {one.ok().definition.raw["operationId"]: one.ok() for one in schema.get_all_operations()}
    return {name: found[name] for name in sorted(set(found) - STREAMS - WAITS)}


def request_count(mode: GenerationMode) -> int:
    """Requests for each operation and mode."""
    return max(CHOSEN // (2 * len(operations())), FEW if mode is GenerationMode.POSITIVE else 1)


def aim(case: Any, operation: str, server: Server) -> None:
    """At what exists: the session, its message, the server's own directory. Else most answers are that there is nothing."""
    known = {"sessionID": server.session, "messageID": server.message, "partID": server.part}
    case.path_parameters = {
        **(case.path_parameters or {}),
        **{k: v for k, v in known.items() if k in (case.path_parameters or {})},
    }
    case.query = {key: value for key, value in (case.query or {}).items() if key not in ("directory", "workspace")}


def disarm(case: Any, operation: str) -> None:
    """Takes the commands out of a body, whatever the body is."""
    if operation in HARMLESS and isinstance(case.body, dict):
        case.body = {k: v for k, v in {**case.body, **HARMLESS[operation]}.items() if v is not None}


def send(server: Server, method: str, url: str, headers: dict[str, str], body: bytes | None) -> None:
    """One request, its answer judged."""

    async def ask() -> tuple[Answer, str]:
        raw = server.live.api.raw
        async with raw.request(method, URL(url, encoded=True), headers=headers, data=body, allow_redirects=False) as answer:
            text = await answer.text(errors="replace")
            said = json.loads(text) if text and answer.content_type == "application/json" else text or None
            return Answer(answer.status, said, answer.headers), answer.content_type

    answer, kind = server.do(ask())
    what = f"{method} {url} {body!r}: {answer.status} {answer.body}"
    assert answer.status < 500 or answer.status == 501, what
    assert kind != "text/html", what
    if method != "HEAD":
        check(method, URL(url, encoded=True).path, answer, kind)


def request_of(case: Any) -> tuple[str, str, dict[str, str], bytes | None]:
    """As it goes over the wire: method, path with query, headers, body."""
    made = requests.Request(**case.as_transport_kwargs(base_url="http://x")).prepare()
    body = made.body.encode() if isinstance(made.body, str) else made.body
    headers = {name: value if isinstance(value, str) else value.decode("latin-1") for name, value in made.headers.items()}
    return str(made.method), made.path_url, {k: v for k, v in headers.items() if k.lower() != "content-length"}, body


@pytest.mark.nightly
@pytest.mark.timeout(0 if CHOSEN else 60)
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=lambda mode: mode.value)
@pytest.mark.parametrize("operation", operations())
def test_requests_of_the_document(server: Server, operation: str, mode: GenerationMode) -> None:
    @settings(
        max_examples=request_count(mode),
        deadline=None,
        derandomize=not CHOSEN,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink] if CHOSEN else [Phase.generate],
    )
    @given(case=operations()[operation].as_strategy(generation_mode=mode), real=st.booleans())
    def run(case: Any, real: bool) -> None:
        if real:
            aim(case, operation, server)
        disarm(case, operation)
        send(server, *request_of(case))

    try:
        run()
    except Unsatisfiable:
        assert mode is GenerationMode.NEGATIVE, "every operation can be asked rightly"


FOUND: tuple[tuple[str, str, Any], ...] = ()
"""(method, path, body) that were answered wrongly once, each with a word on what was wrong."""


@pytest.mark.parametrize(("method", "url", "body"), FOUND)
def test_earlier_findings_stay_fixed(server: Server, method: str, url: str, body: Any) -> None:
    path = url.replace("SESSION", server.session).replace("MESSAGE", server.message).replace("PART", server.part)
    raw = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    send(server, method, path, {"Content-Type": "application/json"}, raw)


def test_the_document_is_asked_whole() -> None:
    """Nothing is left out but what is named above."""
    assert operations().keys() | STREAMS | WAITS >= {
        item["operationId"]
        for row in document_paths().values()
        for item in row.values()
        if isinstance(item, dict) and "operationId" in item
    }
    assert STREAMS | WAITS | HARMLESS.keys() <= oracle().operations.keys()


def document_paths() -> dict[str, dict[str, Any]]:
    """The paths of GET /doc."""
    return json.loads(resources.files("shim.faces.opencode1").joinpath("openapi.json").read_text())["paths"]


def test_a_wrong_answer_is_seen(server: Server) -> None:
    """The judge itself: a status that the document does not have."""
    with pytest.raises(AssertionError):
        check("GET", "/path", Answer(200, {"home": 1}, {}), "application/json")
    send(server, "POST", f"/session/{server.session}/prompt_async", {}, json.dumps(prompt_body("echo hi")).encode())
