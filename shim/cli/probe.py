"""Sends a real prompt through the whole chain and times it: our server on a free port, a client, the agent and its model.

The agent works in an empty folder that is removed afterwards. Its permission requests and questions are rejected. A probe
costs one short answer.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import tempfile
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from aiohttp import ClientError, ClientSession, ClientTimeout, web
from pydantic import SecretStr

from shim.cli.diagnosis import Probe
from shim.lib.clock import Clock
from shim.lib.settings import Settings
from shim.main.app import SERVICES
from universal.lib.jsonvalue import arr, obj, text

PROMPT = "Answer with the single word: ready. Use no tools."
PROBE_S = 90.0
"""Seconds for one agent from the prompt to idle. A first answer takes 3 to 20 s; some agents retry a failing model for 60 s."""
REQUEST_S = 30.0
"""Timeout in seconds of each request except the stream."""
USER = "opencode"


def private(settings: Settings) -> Settings:
    """Return the person's settings, changed for a server that only this process can use."""
    password = SecretStr(secrets.token_urlsafe())
    changes = {"web_ui": False, "base_path": "", "username": USER, "password": password, "tls_cert": None, "tls_key": None}
    return settings.model_copy(update=changes)


async def probe(runner: web.AppRunner, settings: Settings, agent: str, model: str, clock: Clock) -> Probe:
    """Send one prompt to one agent. Bounded; a failure is reported in `Probe.error`."""
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[-1][:2]
    password = settings.password.get_secret_value() if settings.password is not None else ""
    headers = {"Authorization": f"Bearer {password}"}
    try:
        with tempfile.TemporaryDirectory(prefix="opencode-shim-doctor-") as folder:
            async with ClientSession(f"http://{host}:{port}", headers=headers, timeout=ClientTimeout(total=REQUEST_S)) as http:
                return await _Turn(http, runner.app, folder, clock).run(agent, model)
    finally:
        await site.stop()


class _Turn:
    """Runs one turn and measures its times."""

    def __init__(self, http: ClientSession, app: web.Application, folder: str, clock: Clock) -> None:
        self._http = http
        self._agents = app[SERVICES].agents
        self._query = {"directory": folder}
        self._clock = clock
        self._began = 0
        self._fields: dict[str, Any] = {}

    async def run(self, agent: str, model: str) -> Probe:
        """Create a session, open the stream, send the prompt, wait for idle, then read the answer over HTTP."""
        session = ""
        self._agents.on_spawned = lambda name: self._mark("started_ms") if name == agent else None
        try:
            async with asyncio.timeout(PROBE_S):
                session = text((await self._post("/session", {"title": "doctor"})).get("id"))
                await self._stream(session, {"providerID": agent, "modelID": model})
                self._fields["answer"] = await self._answer(session)
        except TimeoutError:
            self._fields.setdefault("error", f"It did not become idle within {PROBE_S:g} s.")
        except (ClientError, OSError, ValueError) as error:
            self._fields.setdefault("error", f"The server failed: {error}")
        finally:
            self._agents.on_spawned = None
            with suppress(ClientError, OSError, TimeoutError, ValueError):
                if session:
                    await self._delete(f"/session/{session}")
        return Probe(**self._fields)

    async def _stream(self, session: str, model: dict[str, str]) -> None:
        timeout = ClientTimeout(total=None, sock_read=PROBE_S)
        async with self._http.get("/event", params=self._query, timeout=timeout) as stream:
            events = _events(stream)
            await anext(events)  # `server.connected`: no later event is missed
            self._began = self._clock.now_ms()
            body = {"parts": [{"type": "text", "text": PROMPT}], "model": model}
            await self._post(f"/session/{session}/prompt_async", body)
            async for event in events:
                if await self._event(session, text(event.get("type")), obj(event.get("properties"))):
                    return

    async def _event(self, session: str, kind: str, properties: dict[str, Any]) -> bool:
        """Handle one event. Returns True if it ends the turn."""
        if properties.get("sessionID") != session:
            return False
        if kind == "message.updated" and obj(properties.get("info")).get("role") == "assistant":
            self._mark("event_ms")
        elif kind == "message.part.delta" and properties.get("field") == "text":
            self._mark("text_ms")
        elif kind == "permission.asked":
            await self._post(f"/permission/{properties.get('id')}/reply", {"reply": "reject"})
        elif kind == "question.asked":
            await self._post(f"/question/{properties.get('id')}/reject", {})
        elif kind == "session.error":
            self._fields["error"] = text(obj(obj(properties.get("error")).get("data")).get("message"), "It failed.")
        elif kind == "session.idle":
            self._mark("idle_ms")
            return True
        return False

    def _mark(self, name: str) -> None:
        self._fields.setdefault(name, self._clock.now_ms() - self._began)

    async def _answer(self, session: str) -> str:
        async with self._http.get(f"/session/{session}/message", params=self._query) as answer:
            messages = arr(await answer.json())
        texts = [
            text(obj(part).get("text"))
            for message in messages
            if obj(obj(message).get("info")).get("role") == "assistant"
            for part in arr(obj(message).get("parts"))
            if obj(part).get("type") == "text"
        ]
        return " ".join(texts).strip()

    async def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        async with self._http.post(path, params=self._query, json=body) as answer:
            body_text = await answer.text()
            if answer.status >= 400:
                raise ValueError(f"{path} answered {answer.status}: {body_text[:300]}")
            return obj(json.loads(body_text)) if body_text else {}

    async def _delete(self, path: str) -> None:
        async with self._http.delete(path, params=self._query):
            pass


async def _events(stream: Any) -> AsyncIterator[dict[str, Any]]:
    """Yield the events of an SSE response."""
    async for line in stream.content:
        if line.startswith(b"data:"):
            yield obj(json.loads(line[5:]))
