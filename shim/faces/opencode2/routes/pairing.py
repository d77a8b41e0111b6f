"""Routes for pairing another device without the password (`shim.http.pairing`), and `/api/service/stop`.

A client calls `/api/service/stop` if its registration file names a server of another version. This server is in no such file, so
it always refuses. A refused client does not kill the server.
"""

from __future__ import annotations

import asyncio

from aiohttp import web
from pydantic import BaseModel

from shim.faces.opencode2.endpoint import extra, operation
from shim.http.access import CONNECTION, access_of
from shim.http.operation import NO_CONTENT, Ctx
from shim.http.pairing import CODE_S, TOKEN_S
from shim.lib.errors import PairingTokenNotFound


class CodePath(BaseModel):
    """A pairing code."""

    code: str


@operation("server.pair")
async def pair(ctx: Ctx) -> object:
    """Create a code for `/auth/connect/{code}`, valid once. Only an authenticated client gets one."""
    code = access_of(ctx.request).pairing.code(asyncio.get_running_loop().time())
    return {"code": code, "expires_in": int(CODE_S)}


INSPECTOR = "inspector/"
"""The page to which a browser is redirected if OpenCode's web UI is not served."""


class TokenPath(BaseModel):
    """`{id}` of a token."""

    id: str


@extra("server.pair.list", "GET", "/api/pair")
async def tokens(ctx: Ctx) -> object:
    """Valid tokens, newest first: the device and the expiry of each. The tokens themselves are not shown."""
    access = access_of(ctx.request)
    return [
        {"id": token.id, "name": token.name, "created": token.created * 1000, "expires": token.end * 1000}
        for token in access.pairing.tokens(access.epoch_s())
    ]


@extra("server.pair.revoke", "DELETE", "/api/pair/{id}")
async def revoke(ctx: Ctx, path: TokenPath) -> object:
    """Revoke a token: its next request is refused, and its streams and terminals are closed. Raises NotFound."""
    if not access_of(ctx.request).pairing.revoke(path.id, ctx.request[CONNECTION]):
        raise PairingTokenNotFound(path.id)
    await ctx.services.store.flush()
    return NO_CONTENT


@operation("server.connect")
async def connect(ctx: Ctx, path: CodePath) -> object:
    """Exchange a code. A browser gets a cookie and is redirected to the web UI or the inspector; a program gets a token."""
    if ctx.request.method == "HEAD":  # a link preview in a chat must not use up the code
        return web.Response()
    access = access_of(ctx.request)
    token = access.redeem(ctx.request, path.code, asyncio.get_running_loop().time())
    if "text/html" not in ctx.request.headers.get("Accept", ""):
        return {"token": token}
    home = f"{access.base_path}/"
    page = home if ctx.services.settings.web_ui else f"{home}{INSPECTOR}"
    answer = web.Response(status=303, headers={"Location": page, "Referrer-Policy": "no-referrer"})
    answer.set_cookie(
        access.cookie_name(ctx.request),
        token,
        max_age=TOKEN_S,
        path=home,
        httponly=True,
        samesite="Lax",
        secure=access.secure(ctx.request),
    )
    return answer


@extra("server.service.stop", "POST", "/api/service/stop")
async def stop(ctx: Ctx) -> object:
    """Refuse to stop."""
    return {"accepted": False}
