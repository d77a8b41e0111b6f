"""Python programs that others wrote and that attach to a server, each in a process of its own: prints what it saw as JSON.

python client_programs.py NAME DIRECTORY URL
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

PROMPT = "echo hello from Python"
MODEL = "mock/mock"
SESSIONS = 4


def talk_bridge(directory: Path, url: str) -> dict[str, Any]:
    """A foreign client that undoes and forks."""
    from opencode_talk_bridge.opencode import OpenCodeClient

    with OpenCodeClient(url, directory=str(directory), default_model=MODEL) as client:
        session = client.create_session("one")
        text = client.prompt(session, PROMPT).text
        client.rename_session(session, "two")
        first = client.session_messages(session)[0]["info"]["id"]
        client.prompt(session, "echo again")
        second = client.session_messages(session)[2]["info"]["id"]
        fork = client.fork(session, second)
        client.revert(session, second)
        reverted = next(one for one in client.list_sessions() if one["id"] == session)
        client.unrevert(session)
        whole = next(one for one in client.list_sessions() if one["id"] == session)
        return {
            "healthy": client.health(),
            "text": text,
            "title": whole["title"],
            "forked": len(client.session_messages(fork)),
            "reverted": reverted["revert"]["messageID"] == second != first,
            "unreverted": "revert" not in whole,
            "models": MODEL.partition("/")[2] in json.dumps(client.list_models()),
        }


def agent_hub(directory: Path, url: str) -> dict[str, Any]:
    """Many sessions at once, by the program's own functions. Its daemon finds sessions in OpenCode's database, not here."""
    os.environ["OPENCODE_PORT"] = str(urlsplit(url).port)
    import requests
    from opencode_agent_hub import hub_server, messaging

    def run(_: int) -> str:
        session = requests.post(f"{url}/session", json={}, params={"directory": str(directory)}, timeout=30).json()["id"]
        assert messaging.inject_context_sync(session, "you are one of several")
        assert messaging.inject_message_sync(session, PROMPT)
        return session

    with ThreadPoolExecutor(SESSIONS) as pool:
        return {"running": hub_server.is_hub_server_running(), "sessions": list(pool.map(run, range(SESSIONS)))}


def agent_sdk(directory: Path, url: str) -> dict[str, Any]:
    from opencode_agent_sdk import AgentOptions, AssistantMessage, ResultMessage, SDKClient, TextBlock

    async def run() -> dict[str, Any]:
        client = SDKClient(AgentOptions(cwd=str(directory), server_url=url, provider_id="mock", model="mock"))
        await client.connect()
        await client.query(PROMPT)
        seen = [message async for message in client.receive_response()]
        await client.disconnect()
        blocks = [block for message in seen if isinstance(message, AssistantMessage) for block in message.content]
        results = [message for message in seen if isinstance(message, ResultMessage)]
        texts = [block.text for block in blocks if isinstance(block, TextBlock)]
        return {"texts": texts, "results": len(results), "errors": [one.is_error for one in results]}

    return asyncio.run(run())


def launchdarkly(directory: Path, _url: str) -> dict[str, Any]:
    """A spawner: an `opencode serve` for each call, with a password, which is stopped after it."""
    from launchdarkly_ai_opencode_agents.process import serve_from
    from launchdarkly_ai_opencode_agents.server import session_events

    async def run() -> dict[str, Any]:
        config = directory.parent / "launchdarkly.json"
        config.write_text("{}")
        server = serve_from(cwd=directory, config=config, env=dict(os.environ), command="opencode")
        base = await server.start()
        try:
            kinds = [
                event["type"]
                async for event in session_events(
                    base_url=base, password=server.password, prompt=PROMPT, system=None,
                    provider_id="mock", model_id="mock", agent=None, session_ids=[],
                )
            ]  # fmt: skip
        finally:
            await server.stop()
        return {"idles": kinds.count("session.idle"), "last": kinds[-1], "deltas": "message.part.delta" in kinds}

    return asyncio.run(run())


PROGRAMS = {
    "opencode-talk-bridge": talk_bridge,
    "opencode-agent-hub": agent_hub,
    "opencode-agent-sdk": agent_sdk,
    "launchdarkly-ai-opencode-agents": launchdarkly,
}

if __name__ == "__main__":
    print(json.dumps(PROGRAMS[sys.argv[1]](Path(sys.argv[2]), sys.argv[3])))  # noqa: T201 - its answer
