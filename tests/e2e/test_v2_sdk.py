"""The `v2.*` operations of the official JS SDK (1.19.3): whole turns, and each answer and event as OpenCode's document says."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.support import oracle

from .support.bench import CLAUDE, MOCK, Bench, nightly
from .support.places import MODULES, tool

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(150)]
SCRIPT = Path(__file__).with_name("sdk_v2.mjs")


@pytest.mark.parametrize("sign", ["directory", *nightly("header")])
@pytest.mark.parametrize("server", [*nightly(MOCK), CLAUDE], indirect=True)
def test_the_previews_operations(server: Bench, sign: str) -> None:
    scenes = {
        "text": server.say("[scene:text] say hello", "echo You said: say hello"),
        "permission": server.say("[scene:bash:touch made.txt] make it", "permission"),
        "question": server.say("[scene:question] ask", "question"),
        "hang": server.say("[scene:hang] think", "hang"),
    }
    argv = [tool("node"), str(SCRIPT), str(MODULES), server.url, str(server.place.project), sign, json.dumps(scenes)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=140, check=False, env=server.place.env())
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["text"] == ["You said: say hello"]
    assert seen["deltas"] == "You said: say hello"
    assert seen["permission"] == "bash"
    assert seen["answered"]
    assert seen["interrupted"] == "unknown"
    for event in seen["events"]:
        oracle.check_preview_event(event)
    for operation, answer in seen["answers"].items():
        oracle.check_response(operation, 200, answer)
