"""What the person's configuration hides or shares, over HTTP: providers, modes, new sessions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.live import live

MODEL = {"providerID": "mock", "modelID": "mock"}


def plant(folder: Path, config: Mapping[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "opencode.json").write_text(json.dumps(config))


async def test_a_disabled_provider_is_in_no_list_and_takes_no_prompt(tmp_path: Path) -> None:
    async with live(tmp_path) as server:
        [listed] = (await server.api.get("/provider", status=200)).body["all"]
        assert listed["id"] == "mock"
        plant(server.directory, {"disabled_providers": ["mock"]})
        assert (await server.api.get("/provider", status=200)).body["connected"] == []
        assert (await server.api.get("/config/providers", status=200)).body["providers"] == []
        session = await server.session()
        body = {"model": MODEL, "parts": [{"type": "text", "text": "hi"}]}
        refused = (await server.api.post(f"/session/{session}/prompt_async", body, status=400)).body
        assert '"disabled_providers" of opencode.json has it' in refused["data"]["message"]


async def test_a_project_switches_on_no_provider(tmp_path: Path) -> None:
    plant(tmp_path / "home" / ".config" / "opencode", {"disabled_providers": ["mock"]})
    plant(tmp_path / "project", {"disabled_providers": []})
    async with live(tmp_path) as server:
        assert (await server.api.get("/provider", status=200)).body["connected"] == []


async def test_a_disabled_mode_is_in_no_list_and_takes_no_prompt(tmp_path: Path) -> None:
    async with live(tmp_path) as server:
        names = [row["name"] for row in (await server.api.get("/agent", status=200)).body]
        assert {"plan", "general"} <= set(names)
        plant(server.directory, {"agent": {"plan": {"disable": True}, "general": {"disable": True}}})
        left = [row["name"] for row in (await server.api.get("/agent", status=200)).body]
        assert left == [name for name in names if name not in ("plan", "general")]
        session = await server.session()
        body = {"agent": "plan", "parts": [{"type": "text", "text": "hi"}]}
        refused = (await server.api.post(f"/session/{session}/prompt_async", body, status=400)).body
        assert refused["data"]["message"].startswith('Agent not found: "plan"')


@pytest.mark.parametrize(
    ("personal", "project", "is_shared"),
    [
        ({}, {}, False),
        ({"share": "auto"}, {}, True),
        ({"share": "manual"}, {"share": "auto"}, False),
        ({"share": "auto"}, {"share": "disabled"}, False),
    ],
)
async def test_new_sessions_are_shared_if_the_person_says_so(
    tmp_path: Path, personal: Mapping[str, Any], project: Mapping[str, Any], is_shared: bool
) -> None:
    plant(tmp_path / "home/.config/opencode", personal)
    async with live(tmp_path) as server:
        plant(server.directory, project)
        info = (await server.api.post("/session", {}, status=200)).body
        assert ("share" in info) == is_shared
        if is_shared:
            async with server.api.raw.get(
                info["share"]["url"].partition("/share/")[1] + info["share"]["url"].rpartition("/")[2]
            ) as page:
                assert page.status == 200
        child = (await server.api.post("/session", {"parentID": info["id"]}, status=200)).body
        assert "share" not in child
