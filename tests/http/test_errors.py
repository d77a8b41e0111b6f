"""Every error of the three faces: status, content type, headers and body, byte for byte as `compat_fixtures/errors` has them.

`SHIM_WRITE_GOLDENS=1 pytest tests/http/test_errors.py` writes the files anew; the difference is then to be read line by line.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast
from urllib.parse import quote

import pytest
import structlog
from aiohttp import web
from pydantic import BaseModel, SecretStr

from shim.faces.opencode1 import routes as opencode1
from shim.faces.opencode1.endpoint import extra
from shim.faces.opencode2 import routes as opencode2
from shim.faces.opencode2.endpoint import extra as extra2
from shim.faces.v1.routes.endpoint import v1
from shim.host.files.roots import require_blocking
from shim.http.access import Throttle
from shim.http.operation import Ctx
from shim.lib.errors import (
    AgentGone,
    AgentNotFound,
    Conflict,
    InvalidRequest,
    LimitReached,
    PermissionNotFound,
    QuestionNotFound,
    SessionBusy,
    ShimError,
    StoreError,
    UnsupportedOperation,
)
from shim.routes import application
from tests.fakes.agents_directory import FakeAgents, claude
from tests.http.conftest import services_for
from tests.http.doors import PASSWORD, Start, base64_text, with_throttle
from tests.support.api import ApiClient
from tests.support.live import Live, live

GOLDENS = Path(__file__).parents[2] / "compat_fixtures" / "errors"
HEADERS = ("Allow", "Retry-After", "WWW-Authenticate")
VARIABLE = (
    (re.compile(r"err_[0-9a-f]{8}"), "err_REFERENCE"),
    (re.compile(r"Try again in \d+ s"), "Try again in N s"),
    (re.compile(r"(rg: )?regex parse error:\\n    (\(\?:\(\)|\()\\n"), r"rg: regex parse error:\\n    (?:()\\n"),
    (re.compile(r"(Known|Available commands|Keys are taken for): [^.]*"), r"\1: NAMES"),
)
"""What differs from run to run, from one version of ripgrep to another, or when an agent or a command is added."""


class Case(NamedTuple):
    """One request that is refused. `{ses}`, `{msg}`, `{prt}`, `{dir}` stand for those of the test's session."""

    method: str
    path: str
    body: Any = None
    """Sent as JSON; bytes as they are."""
    headers: Mapping[str, str] = {}


TICKETS = {"x-opencode-ticket": "1"}
PART = {"id": "prt_x", "sessionID": "{ses}", "messageID": "{msg}", "type": "text", "text": "x"}
PROMPT = {"parts": [{"type": "text", "text": "x"}]}

OPENCODE1 = (
    # no route
    Case("GET", "/nosuch"),
    Case("POST", "/nosuch/thing"),
    Case("PUT", "/session"),
    Case("PATCH", "/session/status"),
    Case("GET", "/formatter/nosuch"),
    Case("POST", "/mcp/x/auth", {}),
    Case("POST", "/session", b"nope"),
    Case("POST", "/session", b"[1]"),
    Case("POST", "/session", b"null"),
    Case("POST", "/session", {"title": 5}),
    Case("POST", "/session", {"title": "x" * 3000}),
    Case("POST", "/session", {"parentID": "x"}),
    Case("POST", "/session", {"permission": [{}] * 2001}),
    Case("POST", "/session", {"metadata": {"a": [0] * 100_001}}),
    Case("GET", "/session?directory=%00"),
    Case("GET", "/session?directory=/" + "x" * 300),
    Case("GET", "/session?roots=x"),
    # sessions
    Case("GET", "/session/ses_none"),
    Case("PATCH", "/session/ses_none", {"title": "x"}),
    Case("DELETE", "/session/ses_none"),
    Case("GET", "/session/ses_none/message"),
    Case("POST", "/session/ses_none/message", PROMPT),
    Case("GET", "/session/{ses}/message?before=nonsense&limit=1"),
    Case("GET", "/session/{ses}/message/msg_none"),
    Case("DELETE", "/session/{ses}/message/msg_none"),
    Case("DELETE", "/session/{ses}/message/{msg}/part/prt_none"),
    Case("DELETE", "/session/{ses}/message/msg_none/part/prt_none"),
    Case("PATCH", "/session/{ses}/message/{msg}/part/prt_none", PART),
    Case("PATCH", "/session/{ses}/message/{msg}/part/{prt}", PART),
    Case("PATCH", "/session/{ses}/message/{msg}/part/{prt}", {**PART, "id": "{prt}", "type": "reasoning", "time": {"start": 1}}),
    Case("POST", "/session/{ses}/fork", {"messageID": "msg_none"}),
    Case("POST", "/session/{ses}/revert", {"messageID": "msg_none"}),
    Case("POST", "/session/{ses}/revert", {"messageID": "{msg}", "partID": "prt_none"}),
    Case("GET", "/session/{ses}/diff?messageID=msg_none"),
    Case("POST", "/session/{ses}/message", {**PROMPT, "messageID": "x"}),
    Case("POST", "/session/{ses}/message", {**PROMPT, "messageID": "msg_ x"}),
    Case("POST", "/session/{ses}/message", {**PROMPT, "messageID": "{msg}"}),
    Case("POST", "/session/{ses}/message", {"parts": [{"type": "text", "text": "x", "id": "y"}]}),
    Case("POST", "/session/{ses}/message", {"parts": [{"type": "text", "text": "x", "id": "prt y"}]}),
    Case("POST", "/session/{ses}/message", {**PROMPT, "format": {"type": "json_schema", "schema": {"type": 5}}}),
    Case("POST", "/session/{ses}/message", {**PROMPT, "agent": "nobody"}),
    Case("POST", "/session/{ses}/message", {**PROMPT, "model": {"providerID": "nobody", "modelID": "x"}}),
    Case("POST", "/session/{ses}/command", {"command": "nosuch", "arguments": ""}),
    Case("POST", "/session/{new}/summarize", {"providerID": "mock", "modelID": "mock"}),
    Case("POST", "/session/{ses}/permissions/per_none", {"response": "once"}),
    Case("POST", "/permission/per_none/reply", {"reply": "once"}),
    Case("POST", "/permission/per_none/reply", {"reply": "perhaps"}),
    Case("POST", "/question/que_none/reply", {"answers": [["a"]]}),
    Case("POST", "/question/que_none/reject"),
    Case("POST", "/session/import", {}),
    Case("POST", "/session/import", {"info": {"id": "x"}, "messages": []}),
    Case("GET", "/share/none"),
    # the host
    Case("PATCH", "/project/none", {"name": "x"}),
    Case("GET", "/pty/pty_none"),
    Case("PUT", "/pty/pty_none", {"title": "x"}),
    Case("DELETE", "/pty/pty_none"),
    Case("POST", "/pty/pty_none/connect-token"),
    Case("POST", "/pty/pty_none/connect-token", None, TICKETS),
    Case("GET", "/pty/pty_none/connect"),
    Case("POST", "/pty", {"cwd": "/none"}),
    Case("POST", "/pty", {"command": "nosuchprogram"}),
    Case("GET", "/file?path=../.."),
    Case("GET", "/file?path=%00"),
    Case("GET", "/file?path=none"),
    Case("GET", "/file/content?path="),
    Case("GET", "/file/content?path=."),
    Case("GET", "/find?pattern=("),
    Case("GET", "/find"),
    Case("GET", "/find?pattern=x&directory=/none"),
    Case("POST", "/vcs/apply", {"patch": "x"}),
    Case("POST", "/experimental/worktree", {"name": "x"}),
    Case("POST", "/experimental/worktree", {"startCommand": "\0"}),
    Case("POST", "/experimental/worktree/reset", {"directory": "{dir}"}),
    Case("POST", "/experimental/worktree/reset", {"directory": "/none"}),
    Case("DELETE", "/experimental/worktree", {"directory": "{dir}"}),
    Case("POST", "/experimental/control-plane/move-session", {"sessionID": "ses_none", "destination": {"directory": "{dir}"}}),
    Case("POST", "/experimental/control-plane/move-session", {"sessionID": "{ses}", "destination": {"directory": "/none"}}),
    Case(
        "POST",
        "/experimental/control-plane/move-session",
        {"sessionID": "{ses}", "destination": {"directory": "{dir}"}, "moveChanges": True},
    ),
    Case("POST", "/experimental/project/none/copy", {"strategy": "git_worktree", "directory": "/none"}),
    Case("DELETE", "/experimental/project/none/copy", {"directory": "/none", "force": False}),
    Case("GET", "/experimental/tool?provider=none&model=x"),
    Case("PUT", "/auth/mock", {"type": "oauth", "refresh": "r", "access": "a", "expires": 1}),
    Case("PUT", "/auth/nobody", {"type": "api", "key": "k"}),
    Case("PATCH", "/config", {"share": 5}),
    Case("GET", "/inspector/files/none"),
    Case("GET", "/event?wire=none"),
    Case("GET", "/openapi.json/none"),
)

OPENCODE2 = (
    Case("GET", "/api/nosuch"),
    Case("PUT", "/api/session"),
    Case("GET", "/auth/connect/none"),
    Case("POST", "/auth/connect/none"),
    Case("GET", "/api"),
    Case("POST", "/api/session", b"nope"),
    Case("POST", "/api/session", {"title": 5}),
    Case("POST", "/api/session", {"title": "x" * 3000}),
    Case("POST", "/api/session", {"permissions": [{}] * 2001}),
    Case("POST", "/api/session", {"location": {"directory": "x"}}),
    Case("POST", "/api/session", {"parentID": "ses_none"}),
    Case("POST", "/api/session", {"parentID": "x"}),
    Case("GET", "/api/session?directory=%00"),
    Case("GET", "/api/session?limit=x"),
    Case("GET", "/api/session?limit=0"),
    Case("GET", "/api/session?cursor=x"),
    Case("GET", "/api/session?dialect=none"),
    Case("GET", "/api/session/x"),
    Case("GET", "/api/session/ses_none"),
    Case("PATCH", "/api/session/ses_none", {"title": "x"}),
    Case("DELETE", "/api/session/ses_none"),
    Case("GET", "/api/session/ses_none/message"),
    Case("GET", "/api/session/{ses}/message?cursor=x"),
    Case("GET", "/api/session/{ses}/message?cursor=x&order=asc"),
    Case("GET", "/api/session/{ses}/message/msg_none"),
    Case("GET", "/api/session/{ses}/message/x"),
    Case("GET", "/api/session/ses_none/message/msg_none"),
    Case("POST", "/api/session/{ses}/fork", {"before": "msg_none"}),
    Case("POST", "/api/session/{ses}/revert/stage", {"messageID": "msg_none"}),
    Case("POST", "/api/session/{ses}/revert/stage", {"before": "msg_none"}),
    Case("POST", "/api/session/ses_none/prompt", {"text": "x"}),
    Case("POST", "/api/session/{ses}/prompt", {"text": 5}),
    Case("POST", "/api/session/{ses}/prompt", {"text": "x", "id": "{msg}"}),
    Case("POST", "/api/session/{ses}/prompt", {"text": "x", "id": "x"}),
    Case("POST", "/api/session/{ses}/prompt", {"text": "x", "skills": [{"id": "none"}]}),
    Case("POST", "/api/session/{ses}/prompt", {"text": "x", "files": [{"uri": "file:///none"}]}),
    Case("POST", "/api/experimental/session/{ses}/skill", {"id": "none"}),
    Case("POST", "/experimental/session/{ses}/skill", {"id": "none"}),
    Case("POST", "/api/session/{ses}/command", {"name": "none", "text": ""}),
    Case("POST", "/api/session/{new}/compact", {}),
    Case("POST", "/api/session/{ses}/compact", {"id": "{msg}"}),
    Case("PUT", "/api/session/{ses}/environment", {"variables": {"A": "\0"}}),
    Case("GET", "/api/session/{ses}/permission/per_none"),
    Case("POST", "/api/session/{ses}/permission/per_none/reply", {"decision": "once"}),
    Case("POST", "/api/session/{ses}/permission/per_none/reply", {"decision": "x"}),
    Case("POST", "/api/session/{ses}/question/que_none/reply", {"answers": [["a"]]}),
    Case("POST", "/api/session/{ses}/question/que_none/reject"),
    Case("GET", "/api/session/{ses}/form/frm_none"),
    Case("POST", "/api/session/{ses}/form/frm_none/reply", {"answer": {}}),
    Case("POST", "/api/session/{ses}/form", {"title": "x", "fields": []}),
    Case("POST", "/api/session/{ses}/form", {"title": "x", "fields": [{"type": "nothing", "key": "a", "label": "b"}]}),
    Case("PATCH", "/api/permission/saved/none", {"action": "x"}),
    Case("GET", "/api/agent/none"),
    Case("GET", "/api/provider/none"),
    Case("GET", "/api/integration/none"),
    Case("POST", "/api/integration/mock/connect/key", {"key": ""}),
    Case("POST", "/api/credential/none/activate"),
    Case("DELETE", "/api/pair/none"),
    Case("PATCH", "/api/project/none", {"name": "x"}),
    Case("GET", "/api/pty/pty_none"),
    Case("PUT", "/api/pty/pty_none", {"title": "x"}),
    Case("POST", "/api/pty/pty_none/connect-token"),
    Case("POST", "/api/pty/pty_none/connect-token", None, TICKETS),
    Case("GET", "/api/pty/pty_none/connect"),
    Case("POST", "/api/pty", {"cwd": "/none"}),
    Case("GET", "/api/shell/sh_none"),
    Case("POST", "/api/shell", {"command": "\0"}),
    Case("POST", "/api/shell", {"command": "true", "cwd": "/none"}),
    Case("GET", "/api/fs/list?path=none"),
    Case("GET", "/api/fs/list?path=%00"),
    Case("GET", "/api/fs/read/none"),
    Case("GET", "/api/fs/read/..%2F..%2Fx"),
    Case("GET", "/api/fs/list?location[directory]=/none"),
    Case("POST", "/api/vcs/init?provider=hg"),
    Case("GET", "/api/vcs/diff?mode=working&base=none"),
    Case("GET", "/api/experimental/session/stats?timezone=none"),
    Case("POST", "/api/experimental/session/import", {"info": {}}),
    Case("POST", "/api/rpc/none/none", {}),
    Case("PATCH", "/api/session/{ses}/inbox/msg_none", {"delivery": "steer"}),
    Case("PUT", "/api/experimental/session/{ses}/instructions/entries/a", {"value": "x" * 100_000}),
    Case("GET", "/api/worktree?projectID=none"),
    Case("POST", "/api/worktree", {"projectID": "global", "name": "x"}),
    Case("POST", "/api/worktree", {"projectID": "global", "directory": "x", "branch": "b"}),
    Case("POST", "/api/worktree", {"projectID": "global", "directory": "{dir}/x"}),
    Case("DELETE", "/api/worktree", {"projectID": "global", "directory": "/none", "force": False}),
    Case("POST", "/api/worktree/refresh", {"projectID": "global"}),
    Case("POST", "/api/experimental/generate", {"prompt": "x", "model": {"providerID": "none", "id": "x"}}),
    Case("POST", "/api/session/{ses}/move", {"directory": "/none"}),
    Case("POST", "/api/mcp", {}),
)

V1 = (
    Case("GET", "/v1/nosuch"),
    Case("GET", "/v1"),
    Case("GET", "/inspector/api/nosuch"),
    Case("PUT", "/v1/sessions"),
    Case("POST", "/v1/sessions/s", b"nope"),
    Case("POST", "/v1/sessions/s", {}),
    Case("POST", "/v1/sessions/s", {"agent": 5}),
    Case("POST", "/v1/sessions/s", {"agent": "nobody"}),
    Case("POST", "/v1/sessions/s", {"agent": "claude"}),
    Case("POST", "/v1/sessions/s", {"agent": "mock", "agentVersion": "0"}),
    Case("POST", "/v1/sessions/s", {"agent": "mock", "model": "gpt"}),
    Case("POST", "/v1/sessions/s", {"agent": "mock", "variant": "huge"}),
    Case("POST", "/v1/sessions/s", {"agent": "mock", "agentMode": "fly"}),
    Case("POST", "/v1/sessions/s", {"agent": "mock", "permissionMode": "fly"}),
    Case("POST", "/v1/sessions/s", {"agent": "mock", "directory": "not/there"}),
    Case("POST", "/v1/sessions/s", {"agent": "mock", "skills": {"sources": []}}),
    Case("POST", "/v1/sessions/s", {"agent": "mock", "unattended": "perhaps"}),
    Case("POST", "/v1/sessions/s", {"agent": "mock", "title": "x" * 3000}),
    Case("POST", "/v1/sessions/s?directory=%00", {"agent": "mock"}),
    Case("POST", "/v1/sessions/{ses}", {"agent": "mock"}),
    Case("POST", "/v1/sessions/" + "x" * 300, {"agent": "mock"}),
    Case("GET", "/v1/sessions/none/events"),
    Case("GET", "/v1/sessions/{ses}/events?offset=x"),
    Case("GET", "/v1/sessions/{ses}/events?limit=-1"),
    Case("POST", "/v1/sessions/none/messages", {"message": "x"}),
    Case("POST", "/v1/sessions/{ses}/messages", {"message": 5}),
    Case("POST", "/v1/sessions/{ses}/messages", {"message": "x", "attachments": [{"path": "\0"}]}),
    Case("POST", "/v1/sessions/{ended}/messages", {"message": "x"}),
    Case("POST", "/v1/sessions/none/terminate"),
    Case("POST", "/v1/sessions/{ses}/permissions/none/reply", {"reply": "once"}),
    Case("POST", "/v1/sessions/{ses}/questions/none/reply", {"answers": [["a"]]}),
    Case("POST", "/v1/sessions/{ses}/questions/none/reject"),
    Case("GET", "/v1/agents/none/models"),
    Case("POST", "/v1/agents/none/install", {}),
    Case("GET", "/v1/fs/entries?path=none"),
    Case("GET", "/v1/fs/entries?path=../.."),
    Case("GET", "/v1/fs/stat?path=none"),
    Case("GET", "/v1/fs/stat?path=%00"),
    Case("GET", "/v1/fs/stat"),
    Case("GET", "/v1/fs/file?path=."),
    Case("GET", "/v1/fs/stat?path=x&session_id=none"),
    Case("PUT", "/v1/fs/file?path=.", b"x"),
    Case("DELETE", "/v1/fs/entry?path=."),
    Case("POST", "/v1/fs/mkdir?path=taken"),
    Case("POST", "/v1/fs/move", {"from": "none", "to": "x"}),
    Case("POST", "/v1/fs/move", {"from": "taken", "to": "taken"}),
    Case("GET", "/inspector/api/sessions/none/trace"),
    Case("GET", "/inspector/api/sessions/{ses}/trace?limit=x"),
)

FACES = {"opencode1": OPENCODE1, "opencode2": OPENCODE2, "v1": V1}

DOORS = ("/session", "/api/session", "/v1/sessions", "/nosuch", "/api/nosuch", "/v1/nosuch", "/auth/connect/none")
"""A path of each face, served and not."""


def fill(value: Any, names: Mapping[str, str]) -> Any:
    """The value with placeholders replaced."""
    if isinstance(value, str):
        for name, text in names.items():
            value = value.replace(f"{{{name}}}", text)
        return value
    if isinstance(value, list):
        return [fill(inner, names) for inner in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {key: fill(inner, names) for key, inner in cast("dict[str, Any]", value).items()}
    return value


async def answer(client: ApiClient, case: Case, names: Mapping[str, str]) -> dict[str, Any]:
    """What the server says, as a golden has it."""
    body = case.body if case.body is None or isinstance(case.body, bytes) else json.dumps(fill(case.body, names)).encode()
    async with client.raw.request(case.method, fill(case.path, names), data=body, headers=case.headers) as response:
        text = await response.text()
    for name, value in names.items():
        text = text.replace(value, f"{{{name}}}")
    for pattern, stands in VARIABLE:
        text = pattern.sub(stands, text)
    headers = {name: response.headers[name] for name in HEADERS if name in response.headers}
    if headers.get("Retry-After", "").isdecimal():
        headers["Retry-After"] = "N"
    said = {"status": response.status, "type": response.headers.get("Content-Type", ""), **headers}
    return {**said, "body": text if response.status >= 400 else "no error"}


def title(case: Case) -> str:
    """The golden's name for a request."""
    body = "" if case.body is None else case.body.decode() if isinstance(case.body, bytes) else json.dumps(case.body)
    headers = " ".join(f"{name}: {value}" for name, value in case.headers.items())
    return " ".join(word[:200] for word in (case.method, case.path, body, headers) if word)


def compare(name: str, answers: Mapping[str, Any]) -> None:
    """Hold the answers against the golden of this name."""
    golden = GOLDENS / f"{name}.json"
    if os.environ.get("SHIM_WRITE_GOLDENS"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(json.dumps(answers, indent=1, ensure_ascii=False) + "\n")
    wanted = json.loads(golden.read_text())
    assert list(wanted) == list(answers)
    for case, said in answers.items():
        assert said == wanted[case], case


# --- errors of any handler --------------------------------------------------------------------------------


RAISED: Mapping[str, Callable[[], Exception]] = {
    "a bug": lambda: ZeroDivisionError("secret detail"),
    "an agent that is not there": lambda: AgentNotFound("claude is not installed: npm i -g @anthropic-ai/claude-code"),
    "an agent that is gone": lambda: AgentGone("The agent's process has ended; the next prompt starts it again."),
    "a store that is full": lambda: StoreError("The journal cannot be written: no space left on device."),
    "a busy session": lambda: SessionBusy("ses_1"),
    "a bound": lambda: LimitReached("max_streams", 5, "Too many event streams are open: close some."),
    "an unknown permission": lambda: PermissionNotFound("per_1"),
    "an unknown question": lambda: QuestionNotFound("que_1"),
    "a fault without a place": lambda: InvalidRequest("That is not how it works."),
    "a conflict": lambda: Conflict("It is there already."),
    "something outside of the roots": lambda: outside("/etc"),
    "an unsupported operation": lambda: UnsupportedOperation("lsp.status", "this server runs no language servers"),
    "aiohttp's bad request": lambda: web.HTTPBadRequest(),
    "aiohttp's precondition": lambda: web.HTTPPreconditionFailed(),
}
"""What happens in a handler -> the exception that it raises."""


def outside(directory: str) -> Exception:
    """What `require_blocking` raises for a directory outside of the roots."""
    with pytest.raises(ShimError) as raised:
        require_blocking(directory, ["/home"])
    return raised.value


class NamePath(BaseModel):
    """`{name}`."""

    name: str


class SmallBody(BaseModel):
    """Anything."""

    title: str = ""


@extra("test.raise.opencode1", "POST", "/raise/{name}")
async def raise_on_opencode1(ctx: Ctx, path: NamePath, body: SmallBody) -> object:
    raise RAISED[path.name]()


@extra2("test.raise.opencode2", "POST", "/api/raise/{name}")
async def raise_on_opencode2(ctx: Ctx, path: NamePath, body: SmallBody) -> object:
    raise RAISED[path.name]()


@v1("POST", "/v1/raise/{name}", tag="test", form="none")
async def raise_on_v1(ctx: Ctx, path: NamePath, body: SmallBody) -> object:
    raise RAISED[path.name]()


async def test_errors_of_handlers_are_as_the_golden_says(tmp_path: Path) -> None:
    services, _ = services_for(tmp_path, tmp_path, FakeAgents(claude()), tmp_path / "data")
    app = application(services, [sys.modules[__name__]], body_limit_bytes=1000)
    found: dict[str, Any] = {}
    with structlog.testing.capture_logs():  # drawing the tracebacks takes seconds
        async with ApiClient(app) as client:
            for folder in ("", "/api", "/v1"):
                for name in RAISED:
                    found[f"{name}: {folder}"] = await answer(client, Case("POST", f"{folder}/raise/{quote(name)}"), {})
                large = Case("POST", f"{folder}/raise/x", {"title": "x" * 2000})
                found[f"too large a body: {folder}"] = await answer(client, large, {})
    compare("raised", found)


# --- whole servers --------------------------------------------------------------------------------------


async def names_of(server: Live) -> dict[str, str]:
    """A session with a turn, a new one, and one that was terminated."""
    session, new, ended = [await server.session() for _ in range(3)]
    said = await server.ask(session, "hello")
    user = (await server.messages(session))[0]["info"]["id"]
    async with server.api.raw.post(f"/v1/sessions/{ended}/terminate") as terminated:
        assert (terminated.status, bool(said["parts"])) == (204, True)
    part = (await server.messages(session))[0]["parts"][0]["id"]
    folders = {"dir": str(server.directory), "home": str(server.directory.parent)}
    return {"ses": session, "new": new, "ended": ended, "msg": user, "prt": part, **folders}


@pytest.mark.parametrize("face", FACES)
async def test_errors_of_a_face_are_as_the_golden_says(tmp_path: Path, face: str) -> None:
    async with live(tmp_path) as server:
        (server.directory / "taken").touch()
        names = await names_of(server)
        compare(face, {title(case): await answer(server.api, case, names) for case in FACES[face]})


async def doors(client: ApiClient, paths: Iterable[str], label: str, **headers: str) -> dict[str, Any]:
    """Each path, asked with these headers."""
    shown = {name.replace("_", "-"): value for name, value in headers.items()}
    return {f"{label}: {path}": await answer(client, Case("GET", path, headers=shown), {}) for path in paths}


async def test_refusals_at_the_door_are_as_the_golden_says(start: Start) -> None:
    modules = (*opencode1.MODULES, *opencode2.MODULES)
    client = await start(password=SecretStr(PASSWORD), modules=modules, extend=with_throttle(Throttle(burst=4 + len(DOORS))))
    found = await doors(client, DOORS, "a foreign host", Host="evil.example")
    found |= await doors(client, DOORS, "a foreign page", Origin="http://evil.example")
    found |= await doors(client, DOORS, "an embedded picture", Sec_Fetch_Site="cross-site")
    found |= await doors(client, DOORS, "no password")
    found |= await doors(client, DOORS, "a wrong password", Authorization=f"Basic {base64_text('opencode:wrong')}")
    for guess in range(30):
        wrong = f"Basic {base64_text(f'opencode:{guess}')}"
        found |= await doors(client, (), "", Authorization=wrong)
        await answer(client, Case("GET", "/session", headers={"Authorization": wrong}), {})
    found |= await doors(client, DOORS, "too many wrong passwords", Authorization=f"Basic {base64_text('opencode:last')}")
    compare("doors", found)
