"""The inspector's page: files of `shim/inspector`, read when they are asked for.

    /inspector/              the page (`/inspector` leads there: its addresses are relative, whatever stands before them)
    /inspector/files/NAME    scripts, styles, the icon

What the page shows it gets from `/v1` and `/inspector/api`. Passwords, names and origins are checked as for everything
(`shim.http.access`). The policy lets nothing run but these files and nothing be asked but this server; with
`require-trusted-types-for` the browser itself refuses any text that is put into the page as HTML.
"""

from __future__ import annotations

import asyncio
from hashlib import blake2b
from pathlib import Path

from aiohttp import web

from shim.errors import InspectorFileNotFound
from shim.faces.opencode1.endpoint import extra
from shim.http.operation import Ctx

FOLDER = Path(__file__).resolve().parents[1] / "inspector"
KINDS = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
"""What is served, and as what; everything else in the folder is not."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none';"
    " form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types lit-html"
)
HEADERS = {"Content-Security-Policy": POLICY, "Cache-Control": "no-cache", "Cross-Origin-Opener-Policy": "same-origin"}
"""`no-cache`: kept by the browser, and asked for each time whether it is still the same (ETag)."""


@extra("inspector.page", "GET", "/inspector")
async def page(ctx: Ctx) -> web.StreamResponse:
    """The page."""
    if not ctx.request.path.endswith("/"):
        query = f"?{ctx.request.query_string}" if ctx.request.query_string else ""
        return web.Response(status=308, headers={"Location": f"inspector/{query}"})
    return await _file(ctx.request, "index.html")


@extra("inspector.file", "GET", "/inspector/files/*")
async def file(ctx: Ctx) -> web.StreamResponse:
    """One of its files."""
    return await _file(ctx.request, ctx.request.match_info["tail"])


async def _file(request: web.Request, name: str) -> web.StreamResponse:
    """Raises InspectorFileNotFound. Symbolic links and `..` lead nowhere: the name must be one that the folder lists."""
    found = await asyncio.to_thread(_read, name)
    if found is None:
        raise InspectorFileNotFound(name)
    tag = blake2b(found, digest_size=12).hexdigest()
    headers = {**HEADERS, "ETag": f'"{tag}"'}
    if any(one.value in (tag, "*") for one in request.if_none_match or ()):
        return web.Response(status=304, headers=headers)
    kind = KINDS[Path(name).suffix]
    return web.Response(body=found, headers={**headers, "Content-Type": f"{kind}; charset=utf-8"})


def _read(name: str) -> bytes | None:
    path = FOLDER.joinpath(name)
    try:
        known = path.suffix in KINDS and path.is_relative_to(FOLDER) and path.is_file() and path.resolve() == path
    except (OSError, ValueError):  # a name that no file can have
        return None
    return path.read_bytes() if known else None
