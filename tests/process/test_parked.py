"""A prompt that was accepted is never lost: after a SIGKILL of the server it waits in the inbox, and can be resumed."""

from __future__ import annotations

import json
import signal
import urllib.request
from pathlib import Path
from typing import Any

from tests.process.test_serve import START_S, run_server

PIXEL = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


class Api:
    """Calls of one server."""

    def __init__(self, url: str) -> None:
        self._url = url

    def call(self, method: str, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=START_S) as answer:
            said = answer.read()
        return json.loads(said)["data"] if said else None

    def prompt(self, session: str, text: str, **more: Any) -> str:
        return str(self.call("POST", f"/api/session/{session}/prompt", {"text": text, **more})["id"])


def test_prompts_that_wait_outlive_the_server(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with run_server(home) as (process, url):
        api = Api(url)
        body = {"location": {"directory": str(home)}, "model": {"providerID": "mock", "id": "mock"}}
        session = str(api.call("POST", "/api/session", body)["id"])
        base = f"/api/session/{session}"
        api.prompt(session, "slow 60")
        queued = api.prompt(session, "echo queued", delivery="queue", files=[{"uri": PIXEL, "name": "dot.png"}])
        steered = api.prompt(session, "echo steered")
        parked = api.prompt(session, "echo parked", resume=False)
        gone = api.prompt(session, "echo gone", resume=False)
        api.call("DELETE", f"{base}/inbox/{gone}")
        before = {one["id"]: one for one in api.call("GET", f"{base}/inbox") if one["id"] in (queued, steered, parked)}
        process.send_signal(signal.SIGKILL)
        process.wait(START_S)
    with run_server(home) as (_, url):
        api = Api(url)
        waiting = {one["id"]: one for one in api.call("GET", f"{base}/inbox")}
        assert {id_: waiting.get(id_) for id_ in before} == before
        assert gone not in waiting
        assert api.call("GET", "/api/session/active") == {}, "what waits is not run by itself"
        for other in waiting.keys() - before.keys():  # the first one, if it was not handed yet
            api.call("DELETE", f"{base}/inbox/{other}")
        api.call("PATCH", f"{base}/inbox/{parked}", {"delivery": "steer"})
        api.call("POST", f"{base}/resume")
        assert api.call("GET", f"{base}/inbox") == []
        messages = api.call("GET", f"{base}/message?order=asc&limit=200")
        answers = [one["content"] for one in messages if one["type"] == "assistant"]
        said = [part["text"] for content in answers for part in content if part["type"] == "text"]
        assert [words for words in said if words in ("steered", "parked", "queued")] == ["steered", "parked", "queued"]
        assert "image/png" in said[-2], "the file went along"
        [shown] = [one for one in messages if one["id"] == queued]
        assert shown["files"][0]["mime"] == "image/png"
