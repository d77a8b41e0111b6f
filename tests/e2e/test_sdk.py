"""The official JS SDK, v1 and v2 client: prompts, the event stream, permission and question replies, abort, messages."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from .support.bench import CLAUDE, MOCK, Bench, nightly
from .support.places import MODULES, tool

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(150)]
SCRIPT = Path(__file__).with_name("sdk.mjs")


@pytest.mark.parametrize("version", [*nightly("v1"), "v2"])
@pytest.mark.parametrize("server", [*nightly(MOCK), CLAUDE], indirect=True)
def test_sdk(server: Bench, version: str) -> None:
    scenes = {
        "text": server.say("[scene:text] say hello", "echo You said: say hello"),
        "permission": server.say("[scene:bash:touch made.txt] make it", "permission"),
        "question": server.say("[scene:question] ask", "question"),
        "hang": server.say("[scene:hang] think", "hang"),
        "model": {"providerID": "claude", "modelID": "default"} if server.real else {"providerID": "mock", "modelID": "mock"},
    }
    argv = [tool("node"), str(SCRIPT), str(MODULES), server.url, str(server.place.project), version, json.dumps(scenes)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=140, check=False, env=server.place.env())
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["text"] == ["You said: say hello"]
    assert seen["deltas"] == "You said: say hello"
    assert seen["same"], "GET message gives what the blocking prompt answered"
    assert (seen["permission"], seen["tools"]) == ("bash", ["completed"])
    assert seen["question"] >= 1
    assert (seen["aborted"], seen["idles"]) == ("MessageAbortedError", 1)
