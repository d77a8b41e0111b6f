"""Sharing: a read-only page of this server."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlsplit

from shim.store.memory import MemoryStore
from tests.support.live import Live, live

HOSTILE = "</pre></section><script>alert(1)</script><img src=x onerror=alert(2)>\"'&"


class Tags(HTMLParser):
    """Names of tags and their attributes; the text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words += data


async def share_path(server: Live, session: str) -> str:
    info = (await server.api.post(f"/session/{session}/share", status=200)).body
    assert info["id"] == session
    return urlsplit(info["share"]["url"]).path


async def page(server: Live, path: str) -> Tags:
    async with server.api.raw.get(path) as answer:
        assert answer.status == 200
        assert answer.content_type == "text/html"
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        return Tags(await answer.text())


async def test_the_page_shows_the_session_as_it_goes_on(server: Live) -> None:
    (server.directory / "notes.md").write_text("# Notes\n")
    session = await server.session()
    await server.ask(session, "edit notes.md")
    path = await share_path(server, session)
    shown = await page(server, path)
    assert ("span", {"class": "a"}) in shown.tags
    before = shown.words
    await server.ask(session, "echo something new")
    assert "something new" not in before
    assert "something new" in (await page(server, path)).words


async def test_nothing_of_a_session_becomes_markup(server: Live) -> None:
    session = await server.session(title=HOSTILE)
    await server.ask(session, f"echo {HOSTILE}")
    await server.ask(session, f"echo ```{HOSTILE}\n{HOSTILE}```\n`{HOSTILE}` **{HOSTILE}**")
    await server.api.post(f"/session/{session}/shell", {"agent": "build", "command": f"echo '{HOSTILE}'"}, status=200)
    shown = await page(server, await share_path(server, session))
    assert not {name for name, _ in shown.tags} & {"img", "iframe", "link", "object", "form", "a"}
    assert [attributes["src"] for name, attributes in shown.tags if name == "script"] == ["../inspector/files/share.js"]
    assert not [attributes for _, attributes in shown.tags if any(name.startswith("on") for name in attributes)]
    assert shown.words.count("alert(1)") >= 4


async def test_the_script_of_the_page_is_served_and_no_other_runs(server: Live) -> None:
    path = await share_path(server, await server.session())
    async with server.api.raw.get(path) as answer:
        policy = dict(rule.strip().partition(" ")[::2] for rule in answer.headers["Content-Security-Policy"].split(";"))
    assert (policy["script-src"], policy["require-trusted-types-for"]) == ("'self'", "'script'")
    async with server.api.raw.get("/inspector/files/share.js") as script:
        assert (script.status, script.content_type) == (200, "text/javascript")


async def test_the_page_of_a_busy_session_reloads_only_for_who_follows_it(server: Live) -> None:
    session = await server.session()
    path = await share_path(server, session)
    await server.prompt(session, "hang")

    async def look(path: str) -> tuple[bool, list[str | None]]:
        shown = await page(server, path)
        reloads = any(attributes.get("http-equiv") == "refresh" for name, attributes in shown.tags if name == "meta")
        return reloads, [attributes["href"] for name, attributes in shown.tags if name == "a"]

    assert await look(path) == (False, ["?follow"])
    assert await look(f"{path}?follow") == (True, ["?"])
    await server.api.post(f"/session/{session}/abort", status=200)
    assert await look(f"{path}?follow") == (False, [])


async def test_subagents_are_in_it(server: Live) -> None:
    session = await server.session()
    await server.ask(session, "subagent")
    path = await share_path(server, session)
    assert "What the subagent did" in (await page(server, path)).words
    child = (await server.api.get(f"/session/{session}/children", status=200)).body[0]["id"]
    await server.api.post(f"/session/{child}/share", status=400)


async def test_unshare_removes_it_and_share_makes_another_address(server: Live) -> None:
    session = await server.session()
    path = await share_path(server, session)
    assert await share_path(server, session) == path
    info = (await server.api.delete(f"/session/{session}/share", status=200)).body
    assert "share" not in info
    assert "share" not in (await server.api.get(f"/session/{session}", status=200)).body
    await server.api.get(path, status=404)
    await server.api.delete(f"/session/{session}/share", status=200)
    assert await share_path(server, session) != path
    await server.api.get("/share/", status=404)
    await server.api.get("/share/ses_guess", status=404)


async def test_a_share_outlives_a_restart_and_a_fork_is_not_shared(tmp_path: Path) -> None:
    store = MemoryStore()
    async with live(tmp_path, store=store) as first:
        session = await first.session()
        await first.ask(session, "echo one")
        path = await share_path(first, session)
        fork = (await first.api.post(f"/session/{session}/fork", {}, status=200)).body
        assert "share" not in fork
    async with live(tmp_path, store=store) as second:
        await page(second, path)
        assert "share" not in (await second.api.get(f"/session/{fork['id']}", status=200)).body


async def test_the_configuration_can_switch_it_off(server: Live) -> None:
    (server.directory / "opencode.json").write_text('{"share": "disabled"}')
    session = await server.session()
    answer = await server.api.post(f"/session/{session}/share", status=400)
    assert "switched off" in answer.body["data"]["message"]
