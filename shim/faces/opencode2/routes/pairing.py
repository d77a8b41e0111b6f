"""How another device comes in without the password (`shim.http.pairing`), and what a 2.x client's wish to stop us is answered.

`/api/service/stop` is the question of a client that found a server of another version in its registration file. We stand in no
such file and belong to nobody's service, so it is always declined: a client that is refused kills nothing.
"""

from __future__ import annotations

import asyncio

from aiohttp import web
from pydantic import BaseModel

from shim.errors import PairingTokenNotFound
from shim.faces.opencode2.endpoint import extra, operation
from shim.http.access import CONNECTION, access_of
from shim.http.operation import NO_CONTENT, Ctx
from shim.http.pairing import CODE_S, TOKEN_S


class CodePath(BaseModel):
    """A pairing code."""

    code: str


@operation("server.pair")
async def pair(ctx: Ctx) -> object:
    """A code for `/auth/connect/{code}`, good once. Only who has come in already gets one."""
    code = access_of(ctx.request).pairing.code(asyncio.get_running_loop().time())
    return {"code": code, "expires_in": int(CODE_S)}


INSPECTOR = "inspector/"
"""The page to which a browser is sent where OpenCode's web UI is not served."""


class TokenPath(BaseModel):
    """`{id}` of a token."""

    id: str


@extra("server.pair.list", "GET", "/api/pair")
async def tokens(ctx: Ctx) -> object:
    """The tokens that are good, the newest first: who got one, and until when. The tokens themselves are not told."""
    access = access_of(ctx.request)
    return [
        {"id": token.id, "name": token.name, "created": token.created * 1000, "expires": token.end * 1000}
        for token in access.pairing.tokens(access.epoch_s())
    ]


@extra("server.pair.revoke", "DELETE", "/api/pair/{id}")
async def revoke(ctx: Ctx, path: TokenPath) -> object:
    """Take a token back: its next request is refused, and its streams and terminals are closed. Raises NotFound."""
    if not access_of(ctx.request).pairing.revoke(path.id, ctx.request[CONNECTION]):
        raise PairingTokenNotFound(path.id)
    await ctx.services.store.flush()
    return NO_CONTENT


@operation("server.connect")
async def connect(ctx: Ctx, path: CodePath) -> object:
    """Browsers get a cookie and are sent to the web UI or the inspector, programs a token to use as the password."""
    if ctx.request.method == "HEAD":  # what previews links in a chat must not spend it
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
    """Declined."""
    return {"accepted": False}
