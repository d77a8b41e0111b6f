"""Serves the inspector's page from the files of `shim/inspector`.

    /inspector/              the page (`/inspector` redirects there, because its URLs are relative to any base path)
    /inspector/files/NAME    scripts, styles, the icon

The page reads its data from `/v1` and `/inspector/api`. `shim.http.access` checks its requests like all others. The policy allows
only these files to run, and only requests to this server. With `require-trusted-types-for`, the browser refuses any text that
a script inserts as HTML.
"""

from __future__ import annotations

import asyncio
from hashlib import blake2b
from pathlib import Path

from aiohttp import web

from shim.faces.opencode1.endpoint import extra
from shim.http.operation import Ctx
from shim.lib.errors import InspectorFileNotFound

FOLDER = Path(__file__).resolve().parents[1] / "inspector"
KINDS = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
"""File extensions that are served, and their media types. Other files in the folder are not served."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none';"
    " form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types lit-html"
)
HEADERS = {"Content-Security-Policy": POLICY, "Cache-Control": "no-cache", "Cross-Origin-Opener-Policy": "same-origin"}
"""`no-cache` makes the browser revalidate its copy each time (ETag)."""


@extra("inspector.page", "GET", "/inspector")
async def page(ctx: Ctx) -> web.StreamResponse:
    """Return the page."""
    if not ctx.request.path.endswith("/"):
        query = f"?{ctx.request.query_string}" if ctx.request.query_string else ""
        return web.Response(status=308, headers={"Location": f"inspector/{query}"})
    return await _file(ctx.request, "index.html")


@extra("inspector.file", "GET", "/inspector/files/*")
async def file(ctx: Ctx) -> web.StreamResponse:
    """Return a file of the page."""
    return await _file(ctx.request, ctx.request.match_info["tail"])


async def _file(request: web.Request, name: str) -> web.StreamResponse:
    """Return a file. Raises InspectorFileNotFound, also for symbolic links and `..`."""
    content = await asyncio.to_thread(_read, name)
    if content is None:
        raise InspectorFileNotFound(name)
    tag = blake2b(content, digest_size=12).hexdigest()
    headers = {**HEADERS, "ETag": f'"{tag}"'}
    if any(etag.value in (tag, "*") for etag in request.if_none_match or ()):
        return web.Response(status=304, headers=headers)
    kind = KINDS[Path(name).suffix]
    return web.Response(body=content, headers={**headers, "Content-Type": f"{kind}; charset=utf-8"})


def _read(name: str) -> bytes | None:
    path = FOLDER.joinpath(name)
    try:
        is_served = path.suffix in KINDS and path.is_relative_to(FOLDER) and path.is_file() and path.resolve() == path
    except (OSError, ValueError):  # the name is invalid for a file
        return None
    return path.read_bytes() if is_served else None
