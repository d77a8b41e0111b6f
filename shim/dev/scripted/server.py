"""Serves the scripted model on loopback: four wire formats, a list of models, and 404 for other paths."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from aiohttp import web

from shim.dev.scripted import anthropic, chat, gemini, responses
from shim.dev.scripted.answers import Answer, answer, directory_of
from shim.dev.scripted.tools import Body
from shim.dev.scripted.wire import INPUT_TOKENS, error_kind, limit_headers
from universal.items import Json
from universal.lib.jsonvalue import obj

HANG_S = 600.0
"""Seconds that a hanging answer hangs. Tests abort long before."""
REQUEST_BYTES = 64 * 2**20
STOP_S = 0.5
"""Seconds for answers that still stream when the server stops."""


DROP_AFTER_S = 0.5
"""Seconds before a stream breaks. An agent that has read nothing of it takes the network to be gone, and Kilo waits for that."""


def _sse(data: Body, event: str = "") -> bytes:
    head = f"event: {event}\n" if event else ""
    return f"{head}data: {json.dumps(data)}\n\n".encode()


async def _send(request: web.Request, frames: list[bytes], reply: Answer) -> web.StreamResponse:
    headers = {"Content-Type": "text/event-stream", "Cache-Control": "no-cache"}
    response = web.StreamResponse(headers=headers | limit_headers(reply.used, reply.reset_s))
    await response.prepare(request)
    with suppress(ConnectionResetError):  # the agent has enough, or was aborted
        for frame in frames[: len(frames) // 2] if reply.drop else frames:
            await response.write(frame)
            await asyncio.sleep(reply.pause_s)
        if reply.drop and request.transport is not None:
            await asyncio.sleep(DROP_AFTER_S)
            request.transport.abort()
            return response
        if reply.hang:
            await asyncio.sleep(HANG_S)
        await response.write_eof()
    return response


class ScriptedModel:
    """The server's state: the log of requests (a file of JSON lines), and how often each overloaded prompt was tried."""

    def __init__(self, log: Path | None = None) -> None:
        self._log = log
        self._attempts: dict[str, int] = {}

    def _note(self, kind: str, body: Json) -> None:
        if self._log is not None:
            with self._log.open("a") as out:
                out.write(json.dumps({"kind": kind, "body": body}) + "\n")

    async def _anthropic(self, request: web.Request) -> web.StreamResponse:
        body = obj(await request.json())
        self._note("anthropic", body)
        reply = answer(anthropic.parse_request(body), self._attempts)
        if reply.status != 200:
            headers = limit_headers(reply.used, reply.reset_s)
            error = {"type": "rate_limit_error" if headers else error_kind(reply.status), "message": "scripted failure"}
            return web.json_response({"type": "error", "error": error}, status=reply.status, headers=headers)
        frames = anthropic.frames(reply, str(body.get("model", "claude")), directory_of(body))
        if not body.get("stream"):
            return web.json_response(anthropic.whole(frames))
        return await _send(request, [_sse(data, name) for name, data in frames], reply)

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = obj(await request.json())
        self._note("chat", body)
        reply = answer(chat.parse_request(body), self._attempts)
        if reply.status != 200:
            return _openai_error(reply)
        model = str(body.get("model", "m"))
        if not body.get("stream"):
            return web.json_response(chat.whole(reply, model))
        frames = [_sse(data) for data in chat.frames(reply, model, directory_of(body))]
        return await _send(request, frames if reply.hang else [*frames, b"data: [DONE]\n\n"], reply)

    async def _responses(self, request: web.Request) -> web.StreamResponse:
        body = obj(await request.json())
        self._note("responses", body)
        reply = answer(responses.parse_request(body), self._attempts)
        if reply.status != 200:
            return _openai_error(reply)
        frames = responses.frames(reply, body)
        if not body.get("stream"):
            return web.json_response(frames[-1]["response"])
        return await _send(request, [_sse(data, str(data["type"])) for data in frames], reply)

    async def _gemini(self, request: web.Request) -> web.StreamResponse:
        body = obj(await request.json())
        self._note("gemini", body)
        model, action = request.match_info["model"], request.match_info["action"]
        if action == "countTokens":
            return web.json_response({"totalTokens": INPUT_TOKENS})
        reply = gemini.in_schema(body) or answer(gemini.parse_request(body), self._attempts)
        if reply.status != 200:
            code, word = (503, "UNAVAILABLE") if reply.status == 529 else (reply.status, "INVALID_ARGUMENT")
            return web.json_response({"error": {"code": code, "message": "scripted failure", "status": word}}, status=code)
        if action == "generateContent":
            return web.json_response(gemini.whole(reply, model))
        return await _send(request, [_sse(data) for data in gemini.frames(reply, model)], reply)

    async def _models(self, _: web.Request) -> web.Response:
        row = {
            "id": "scripted",
            "type": "model",
            "object": "model",
            "display_name": "Scripted",
            "created_at": "2026-01-01T00:00:00Z",
        }
        return web.json_response({"object": "list", "data": [row], "has_more": False, "models": []})

    async def _tokens(self, _: web.Request) -> web.Response:
        return web.json_response({"input_tokens": 100})

    async def _unknown_path(self, request: web.Request) -> web.Response:
        self._note("other", {"method": request.method, "path": request.path_qs})
        return web.json_response({"error": {"type": "not_found_error", "message": request.path}}, status=404)

    def app(self) -> web.Application:
        """Build the application. Routes exist with and without `/v1`, because agents' base URLs differ."""
        app = web.Application(client_max_size=REQUEST_BYTES)
        for prefix in ("", "/v1"):
            app.router.add_post(f"{prefix}/messages", self._anthropic)
            app.router.add_post(f"{prefix}/messages/count_tokens", self._tokens)
            app.router.add_post(f"{prefix}/chat/completions", self._chat)
            app.router.add_post(f"{prefix}/responses", self._responses)
            app.router.add_get(f"{prefix}/models", self._models)
        actions = "{action:countTokens|generateContent|streamGenerateContent}"
        app.router.add_post(f"/v1beta/models/{{model:[^:]+}}:{actions}", self._gemini)
        app.router.add_route("*", "/{tail:.*}", self._unknown_path)
        return app


def _openai_error(reply: Answer) -> web.Response:
    kind, status, headers = error_kind(reply.status), reply.status, limit_headers(reply.used, reply.reset_s)
    error: Body = {"message": "scripted failure", "type": kind, "code": kind}
    if headers:
        error |= {"type": "usage_limit_reached", "plan_type": "plus", "resets_at": int(headers["x-codex-primary-reset-at"])}
    return web.json_response({"error": error}, status=503 if status == 529 else status, headers=headers)


@asynccontextmanager
async def serve(model: ScriptedModel, port: int = 0) -> AsyncGenerator[int]:
    """Serve on loopback until the block ends. Yields the port (0 picks a free one)."""
    runner = web.AppRunner(model.app(), access_log=None, shutdown_timeout=STOP_S)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()
