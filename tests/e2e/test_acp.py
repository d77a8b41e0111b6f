"""`/acp` and `opencode-shim acp` with clients that nobody here wrote: the protocol's own SDKs, on the mock and on real Claude."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.acp import allow, editor_of

from .support.bench import CLAUDE, MOCK, Bench, bench, nightly, open_watch, turn
from .support.children import wait_for
from .support.places import MODULES, NODE, REPO
from .support.tui import tui

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]
PYTHON_SDK = MODULES.parent / "python" / "agent-client-protocol"
RUN_S = 200
JUPYTER_PACKAGE = "jupyter-ai-acp-client==0.3.3"
JUPYTER = MODULES.parent / "python" / JUPYTER_PACKAGE.replace("==", "-")
PROGRAM = str(REPO / ".venv" / "bin" / "opencode-shim")


def run_client(server: Bench, sdk: str, kind: str) -> dict[str, Any]:
    """What an SDK's client sees of five turns."""
    scenes = {
        "text": server.say("[scene:text] say hello", "echo You said: say hello"),
        "permission": server.say("[scene:bash:touch made.txt] make it", "permission"),
        "question": server.say("[scene:question] ask", "question"),
        "hang": server.say("[scene:hang] think", "hang"),
        "model": "claude/default" if server.real else "mock/mock",
    }
    url = server.url if kind == "http" else server.url.replace("http", "ws")
    target = json.dumps([PROGRAM, "acp", server.url]) if kind == "stdio" else f"{url}/acp"
    folder = Path(__file__).parent
    if sdk == "python":
        argv, more = [sys.executable, str(folder / "acp_sdk.py")], {"PYTHONPATH": str(PYTHON_SDK)}
    else:
        argv, more = [str(NODE / "node"), str(folder / "acp_sdk.mjs"), str(MODULES)], {}
    done = subprocess.run(
        [*argv, kind, target, str(server.place.project), json.dumps(scenes)],
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
        env=server.place.env(**more),
        cwd=server.place.project,
    )
    assert done.returncode == 0, done.stderr + server.shim.child.log()[-2000:]
    assert "rror" not in done.stderr, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize(
    ("sdk", "kind"),
    [
        ("python", "stdio"),
        ("typescript", "http"),
        *(
            pytest.param(sdk, kind, marks=pytest.mark.nightly)
            for sdk, kind in (("python", "ws"), ("python", "http"), ("typescript", "stdio"), ("typescript", "ws"))
        ),
    ],
)
@pytest.mark.parametrize("server", [*nightly(MOCK), CLAUDE], indirect=True)
def test_the_clients_of_the_protocols_sdks(server: Bench, sdk: str, kind: str) -> None:
    seen = run_client(server, sdk, kind)
    assert seen["agent"] == "opencode-shim"
    assert "plan" in seen["modes"]
    assert seen["text"] == ["end_turn", "You said: say hello"]
    reason, permissions = seen["permission"]
    assert (reason, len(permissions), seen["calls"]) == ("end_turn", 1, "completed")
    assert (server.place.project / "made.txt").exists() == server.real
    assert seen["question"][1] == 1
    assert seen["hang"] == "cancelled"
    assert seen["listed"]
    assert "agent_message_chunk" in seen["kinds"]
    words = ("say hello", "make it", "ask", "think") if server.real else ("say hello", "permission", "question", "hang")
    assert all(word in seen["history"] for word in words)
    (server.place.project / "made.txt").unlink(missing_ok=True)


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("server", [CLAUDE], indirect=True)
def test_the_client_of_jupyter_ai(server: Bench) -> None:
    """It is large (100 MB), so that it is installed here and not by `scripts/e2e-setup`."""
    if not JUPYTER.exists():
        uv = shutil.which("uv") or str(REPO / ".uv" / "bin" / "uv")
        place = ["--python", sys.executable, "--target", str(JUPYTER)]
        subprocess.run([uv, "pip", "install", "-q", *place, JUPYTER_PACKAGE], check=True, timeout=RUN_S)
    scenes = {"text": "[scene:text] say hello", "permission": "[scene:bash:touch made.txt] make it", "hang": "[scene:hang] think"}
    script, command = str(Path(__file__).parent / "acp_jupyter.py"), json.dumps([PROGRAM, "acp", server.url])
    done = subprocess.run(
        [sys.executable, script, command, str(server.place.project), json.dumps(scenes)],
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
        env=server.place.env(PYTHONPATH=str(JUPYTER)),
        cwd=server.place.project,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert (seen["text"], seen["permission"], seen["hang"], seen["exit"]) == ("end_turn", "end_turn", "cancelled", 0)
    assert seen["options"] == ["once", "always", "reject"]
    assert seen["is_shown"]
    assert (server.place.project / "made.txt").exists()


@pytest.mark.parametrize("server", [*nightly(MOCK), CLAUDE], indirect=True)
async def test_a_permission_while_a_tui_looks_on(server: Bench) -> None:
    """Either of them answers, and the other sees that it is closed."""
    async with editor_of(server.url, server.place.project) as editor:
        session = await editor.open()
        model = "claude/default" if server.real else "mock/mock"
        await editor.call("session/set_config_option", sessionId=session, configId="model", value=model)
        screen = await asyncio.to_thread(tui, server.place, server.url, session=session)
        server.later(screen.close)
        for number in range(2):
            running = await editor.begin_prompt(session, server.say(f"[scene:bash:touch made{number}] make it", "permission"))
            asked = await editor.request("session/request_permission")
            await asyncio.to_thread(screen.wait, "Permission required", 30)
            if number:
                await asyncio.to_thread(screen.key, "Enter")
                closed = await editor.request("$/cancel_request")
                assert closed["params"]["requestId"] == asked["id"]
            else:
                await editor.answer_with(asked["id"], allow(asked))
            assert (await editor.answer(running))["result"] == {"stopReason": "end_turn"}
            await asyncio.to_thread(screen.wait, "Permission required", 30, gone=True)
            assert (server.place.project / f"made{number}").exists() == server.real


@pytest.fixture(scope="module")
def chain() -> Iterator[tuple[Bench, Bench]]:
    """A server whose agent is another server, by our own codec for ACP agents: front, back."""
    with bench(MOCK, config={}) as back:
        agents = {"shim": {"command": [PROGRAM, "acp", back.url]}}
        with bench(MOCK, config={}, SHIM_AGENTS=json.dumps(agents)) as front:
            yield front, back


WORK = {
    "echo through both": ("through both", []),
    "think": ("", []),
    "tool": ("", ["completed"]),
    "failtool": ("", ["error"]),
    "parallel": ("", ["completed", "completed"]),
    "permission": ("Pushed.", ["completed"]),
    "edit": ("", ["completed"]),
    "todo": ("", None),
    "burst 200": ("", []),
}
"""Scene of the mock behind two servers -> a text of its answer, and the states of its calls."""


def test_the_laws_of_a_turn_hold_through_two_servers(chain: tuple[Bench, Bench]) -> None:
    """Each turn has one idle, what streamed is what is read, and both servers have the same words."""
    front, back = chain
    [model] = [name for name in front.models("shim") if name.startswith("mock/")]
    watch = open_watch(front)
    for scene, (words, states) in WORK.items():
        calls = turn(front, watch, scene, model={"providerID": "shim", "modelID": model})
        assert states is None or [call["state"]["status"] for call in calls] == states, (scene, calls)
        assert words in texts_of(front, watch.session)[-1], scene
    [behind] = [row["id"] for row in back.api.get("/session")]
    assert texts_of(back, behind) == texts_of(front, watch.session)
    assert front.unparsed_messages() == []
    at = watch.prompt("hang", model={"providerID": "shim", "modelID": model})
    wait_for(lambda: behind in back.api.status(), 20, "the turn does not begin behind")
    front.api.post(f"/session/{watch.session}/abort", {})
    watch.wait_for_end(at)
    wait_for(lambda: behind not in back.api.status(), 20, "the abort does not reach the server behind")


def texts_of(server: Bench, session: str) -> list[str]:
    """The words of each turn's answers."""
    rows: list[str] = []
    for message in server.api.messages(session):
        if message["info"]["role"] == "user":
            rows.append("")
        else:
            rows[-1] += "".join(part["text"] for part in message["parts"] if part["type"] == "text")
    return rows
