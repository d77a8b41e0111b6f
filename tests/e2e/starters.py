"""Python programs that start `opencode` themselves, each in a process with its own packages: prints what it saw as one JSON line.

python starters.py NAME DIRECTORY
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

PROMPT = "echo hello from Python"
CONFIG = {"username": "embedder"}


def opencode_py(directory: Path) -> dict[str, Any]:
    from opencode import Opencode

    # With a model: without one it prompts by the preview in 1.18, and waits for `session.next.*` on `/event`.
    with Opencode(directory=str(directory), model="mock/mock", config=CONFIG) as client:
        config = client.client.config_get()
        username = config["username"] if isinstance(config, dict) else config.username
        return {"username": username, "text": client.ask(PROMPT), "streamed": "".join(client.ask_stream(PROMPT))}


def opencode_runtime(directory: Path) -> dict[str, Any]:
    from opencode_runtime import OpenCodeRuntime

    async def run() -> dict[str, Any]:
        async with OpenCodeRuntime(project_dir=directory, runtime_dir=directory.parent / "runtime", config=CONFIG) as runtime:
            session = await runtime.session(workspace="acme", user_id="u_1")
            answer = await session.ask(PROMPT)
            config = await session.raw_client.get("/config")
            messages = await session.raw_client.get(f"/session/{session.session_id}/message")
            stored = [part["text"] for part in messages[-1]["parts"] if part["type"] == "text"]
            # It subscribes only after the prompt was accepted, so the first words of a quick answer may be missing in `text`.
            seen = {"told": bool(answer.text) and stored[0].endswith(answer.text), "stored": stored[0]}
            return {**seen, "idle": answer.raw[-1]["type"], "username": config["username"]}

    return asyncio.run(run())


def opencode_python_sdk(directory: Path) -> dict[str, Any]:
    from opencode import OpencodeServer

    with OpencodeServer(cwd=directory, config=CONFIG, isolated=True) as server, server.client(directory=directory) as client:
        result = client.session.run(PROMPT, timeout=60)
        seen = {"version": client.server.info().version, "outcome": result.outcome, "text": result.text}
        process = server.process
    assert process is not None
    return seen | {"exit": process.returncode}


def workspace_bridge(directory: Path) -> dict[str, Any]:
    from workspace_bridge.claude_host_adapter import AdapterFailure
    from workspace_bridge.opencode_host_adapter import OpenCodeHostAdapter

    adapter = OpenCodeHostAdapter(directory.parent / "adapter", directory, environment=dict(os.environ))
    try:
        models = [model["selector"] for model in adapter.models()["models"]]
        version = adapter.descriptor()["runtime"]["nativeVersion"]
        try:
            adapter._activate(str(directory))
        except AdapterFailure as error:
            refusal = str(error)
        else:
            refusal = ""
        process = adapter.native.process
    finally:
        adapter.close()
    assert process is not None
    return {"version": version, "models": models, "refusal": refusal, "exit": process.returncode}


STARTERS = {
    "opencode-py": opencode_py,
    "opencode-runtime": opencode_runtime,
    "opencode-python-sdk": opencode_python_sdk,
    "workspace-bridge": workspace_bridge,
}

if __name__ == "__main__":
    sys.stdout.write(json.dumps(STARTERS[sys.argv[1]](Path(sys.argv[2]))) + "\n")
