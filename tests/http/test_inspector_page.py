"""The inspector's page over HTTP: what is served, under which policy, to whom; and what its files may not contain."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest
from aiohttp import ClientResponse, encode_basic_auth
from pydantic import SecretStr

from shim.routes.inspector_api import FOLDER, KINDS
from tests.support.live import Live, live

SCRIPTS = sorted(path for path in FOLDER.rglob("*.js") if "vendor" not in path.parts)
VENDORED = {
    "lit-html/lit-html.js": "b878e7f95dec8a9b6e9b217faca6b6a11bad82ebc44c0caa77419ed83edd81f2",
    "lit-html/directive.js": "3344c4f41c69cd0701d3937e8f9ef90bd845614bf6456d0b8314b7c51d415b9d",
    "lit-html/directive-helpers.js": "f7fb1154b8f72ed2cc08b05eaeed71c99270e9ad2d48620ed24688a1af4c2b62",
    "lit-html/directives/repeat.js": "083140026ecd8665fedd15b17769f9d516252a9f1502f1e91e6967686ee82626",
    "lit-html/directives/live.js": "b305f9066319d838db797abd5a4d871537277e25f35332702bfce4452c020ecf",
    "marked/marked.esm.js": "5371fea86fd0656b4fc7bea7c94c663109d82789b69433eeee78d42895aa44de",
}
"""SHA-256 of the files as npm has them (shim/inspector/vendor/README.md)."""


async def get(server: Live, path: str, **headers: str) -> ClientResponse:
    response = await server.api.raw.get(path, headers=headers, allow_redirects=False)
    await response.read()
    return response


async def test_the_page_and_its_policy(server: Live) -> None:
    moved = await get(server, "/inspector?x=1")
    assert (moved.status, moved.headers["Location"]) == (308, "inspector/?x=1")
    inspector_page = await get(server, "/inspector/")
    assert (inspector_page.status, inspector_page.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    policy = dict(rule.strip().partition(" ")[::2] for rule in inspector_page.headers["Content-Security-Policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["form-action"] == policy["base-uri"] == "'none'"
    assert policy["require-trusted-types-for"] == "'script'"
    assert "unsafe" not in inspector_page.headers["Content-Security-Policy"]
    assert inspector_page.headers["X-Content-Type-Options"] == "nosniff"


async def test_the_page_has_nothing_inline_and_no_other_origin(server: Live) -> None:
    html = await (await server.api.raw.get("/inspector/")).text()
    assert not re.search(r"<style|\sstyle=|\son\w+=|https?://", html)
    assert re.findall(r"<script[^>]*>([^<]*)", html) == [""]
    for name in re.findall(r'(?:src|href)="([^"]+)"', html):
        assert (await get(server, f"/inspector/{name}")).status == 200, name


async def test_files_are_kept_and_asked_for_again(server: Live) -> None:
    first = await get(server, "/inspector/files/main.js")
    assert (first.status, first.headers["Content-Type"]) == (200, "text/javascript; charset=utf-8")
    assert first.headers["Cache-Control"] == "no-cache"
    again = await get(server, "/inspector/files/main.js", **{"If-None-Match": first.headers["ETag"]})
    assert (again.status, await again.read()) == (304, b"")
    assert again.headers["ETag"] == first.headers["ETag"]
    assert (await get(server, "/inspector/files/main.js", **{"If-None-Match": '"other"'})).status == 200


async def test_all_that_scripts_import_is_served(server: Live) -> None:
    for path in [*SCRIPTS, *(FOLDER / "vendor" / name for name in VENDORED)]:
        name = path.relative_to(FOLDER)
        assert (await get(server, f"/inspector/files/{name}")).status == 200
        for wanted in re.findall(r"(?:from|import)\s*\(?[\"'`](\.[^\"'`$]+)[\"'`]", path.read_text()):
            assert (path.parent / wanted).is_file(), f"{name} imports {wanted}"


@pytest.mark.parametrize(
    "name",
    [
        "nothing.js", "__init__.py", "vendor/README.md", "vendor/lit-html/LICENSE", "", "views", "/etc/hosts",
        "%2Fetc%2Fhostname.js", "main.js%00", "a%00.js", "x" * 5000 + ".js", "views%252F..%252Fmain.js",
    ],
    ids=lambda name: name[:30],
)  # fmt: skip
async def test_nothing_else_is_served(server: Live, name: str) -> None:
    answer = await get(server, f"/inspector/files/{name}")
    assert answer.status == 404
    assert (await answer.json())["name"] == "NotFoundError"


async def test_a_file_outside_is_not_reached_by_an_absolute_name(server: Live, tmp_path: Path) -> None:
    outside = tmp_path / "outside.js"
    outside.write_text("secret")
    assert (await get(server, f"/inspector/files/{outside}")).status == 404
    assert (await get(server, "/inspector/files/%2F" + str(outside)[1:].replace("/", "%2F"))).status == 404


async def test_the_password_holds_here_too(tmp_path: Path) -> None:
    async with live(tmp_path, password=SecretStr("pw")) as server:
        for path in ("/inspector", "/inspector/", "/inspector/files/main.js", "/inspector/api/counters"):
            refused = await get(server, path)
            assert (refused.status, refused.headers["WWW-Authenticate"][:5]) == (401, "Basic"), path
        header = encode_basic_auth("opencode", "pw")
        assert (await get(server, "/inspector/", Authorization=header)).status == 200


async def test_a_page_of_others_changes_nothing(server: Live) -> None:
    headers = {"Origin": "https://evil.example"}
    answer = await server.api.raw.post("/v1/sessions/x", json={"agent": "mock"}, headers=headers)
    assert answer.status == 403
    assert (await get(server, "/inspector/", Host="evil.example")).status == 403


async def test_below_a_base_path(tmp_path: Path) -> None:
    async with live(tmp_path, base_path="/shim") as server:
        assert (await get(server, "/shim/inspector")).headers["Location"] == "inspector/"
        assert (await get(server, "/shim/inspector/")).status == 200
        assert (await get(server, "/shim/inspector/files/main.js")).status == 200


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: str(path.relative_to(FOLDER)))
def test_no_text_becomes_html(path: Path) -> None:
    text = path.read_text()
    forbidden = (
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|unsafe-html|unsafeHTML|\beval\(|new Function|DOMParser|srcdoc"
    )
    assert not re.search(forbidden, text)
    assert not re.search(r"\sstyle=|https?://(?!127\.0\.0\.1)", text)
    assert len(text.splitlines()) < 250


@pytest.mark.parametrize("name", VENDORED)
def test_vendored_files_are_as_published(name: str) -> None:
    assert hashlib.sha256((FOLDER / "vendor" / name).read_bytes()).hexdigest() == VENDORED[name]


def test_vendored_files_are_all_known_and_have_their_licences() -> None:
    vendor = FOLDER / "vendor"
    assert {str(path.relative_to(vendor)) for path in vendor.rglob("*") if path.suffix in KINDS} == set(VENDORED)
    for package in ("lit-html", "marked"):
        assert (
            "Permission" in (vendor / package / "LICENSE").read_text()
            or "Redistribution" in (vendor / package / "LICENSE").read_text()
        )
