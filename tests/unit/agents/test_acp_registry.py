"""Agents of a registry: what is added, and what is not since nobody could say later what it was."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from shim.agents import acp_registry
from shim.agents.acp_registry import RegistryRefusal, find_entry, make_ready, names, read_registry
from shim.cli.commands import cli
from universal.registry import agents

PROGRAM = b"#!/bin/sh\necho here\n"


def registry(**distribution: Any) -> dict[str, Any]:
    return {"agents": [{"id": "one", "name": "One", "version": "1.2.3", "distribution": distribution}]}


def archive(member: str = "one") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        row = tarfile.TarInfo(member)
        row.size = len(PROGRAM)
        tar.addfile(row, io.BytesIO(PROGRAM))
    return out.getvalue()


def binary(content: bytes, **more: Any) -> dict[str, Any]:
    row = {"archive": "https://example.com/one.tar.gz", "cmd": "./one", "args": ["acp"], **more}
    row.setdefault("sha256", hashlib.sha256(content).hexdigest())
    return registry(binary={f"linux-{machine}": row for machine in ("x86_64", "aarch64")})


def download_of(content: bytes) -> Callable[[str, int], bytes]:
    """A download that gives this content."""
    return lambda _url, _most: content


@pytest.fixture(autouse=True)
def _linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.system", lambda: "Linux")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")


def test_all_of_the_copy_but_what_other_systems_have_can_be_added() -> None:
    copy = read_registry()
    assert len(copy["date"]) == 10
    for name in names(copy):
        entry = find_entry(copy, name)
        assert entry.sha256 or any(entry.version in word for word in entry.command), name


def test_the_version_is_an_exact_one() -> None:
    assert find_entry(registry(npx={"package": "one"}), "one").command == ("npx", "--yes", "one@1.2.3")
    found = find_entry(registry(uvx={"package": "one==1.2.4", "cmd": "one-acp", "args": ["-x"]}), "one")
    assert found.command == ("uvx", "--from", "one==1.2.4", "one-acp", "-x")
    for package in ("one@latest", "one@^1.0.0", "git+https://example.com/one", ""):
        with pytest.raises(RegistryRefusal, match="no exact version"):
            find_entry(registry(npx={"package": package}), "one")


@pytest.mark.parametrize("way", [{"package": "--call=x@1.0.0"}, {"package": "one@1.0.0", "cmd": "--call=x"}])
def test_no_option_takes_the_place_of_a_package(way: dict[str, Any]) -> None:
    for name in ("npx", "uvx"):
        with pytest.raises(RegistryRefusal, match="an option in the place"):
            find_entry(registry(**{name: way}), "one")


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(RegistryRefusal, match=r"no agent two\. It has: one"):
        find_entry(registry(npx={"package": "one"}), "two")


def test_an_archive_needs_a_checksum_and_this_machine() -> None:
    with pytest.raises(RegistryRefusal, match="no checksum"):
        find_entry(binary(b"", sha256=""), "one")
    with pytest.raises(RegistryRefusal, match="no checksum"):
        find_entry(binary(b"", archive="http://example.com/one.tar.gz"), "one")
    with pytest.raises(RegistryRefusal, match="for this machine"):
        find_entry(registry(binary={"windows-x86_64": {}}), "one")


def test_an_archive_is_unpacked_if_it_is_what_the_registry_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = archive()
    monkeypatch.setattr(acp_registry, "_fetch", download_of(content))
    command = make_ready(find_entry(binary(content), "one"), tmp_path, lambda _: None)
    assert command == (str(tmp_path / "agents" / "one-1.2.3" / "one"), "acp")
    assert Path(command[0]).read_bytes() == PROGRAM
    assert Path(command[0]).stat().st_mode & 0o111
    with pytest.raises(RegistryRefusal, match="another checksum"):
        make_ready(find_entry(binary(b"other"), "one"), tmp_path / "new", lambda _: None)
    assert not (tmp_path / "new").exists()


def test_an_archive_writes_nothing_outside_of_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = archive("../../escaped")
    monkeypatch.setattr(acp_registry, "_fetch", download_of(content))
    with pytest.raises(RegistryRefusal, match="cannot be fetched and unpacked"):
        make_ready(find_entry(binary(content), "one"), tmp_path, lambda _: None)
    with pytest.raises(RegistryRefusal, match="outside of the archive"):
        make_ready(find_entry(binary(content, cmd="../../bin/sh"), "one"), tmp_path, lambda _: None)
    assert not list(tmp_path.rglob("escaped"))
    outside = binary(content)
    outside["agents"][0]["version"] = "1/../../../escaped"
    with pytest.raises(RegistryRefusal, match="no exact version"):
        find_entry(outside, "one")


def test_a_registry_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text("[")
    for source in (str(tmp_path / "none.json"), str(tmp_path / "bad.json"), "http://127.0.0.1:9/registry.json"):
        with pytest.raises(RegistryRefusal, match="cannot be read"):
            read_registry(source)


def test_add_asks_and_writes_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "npx").write_text("#!/bin/sh\n")
    (tmp_path / "npx").chmod(0o755)
    file, source = tmp_path / "opencode-shim" / "config.toml", tmp_path / "registry.json"
    source.write_text(json.dumps(registry(npx={"package": "one@1.2.3", "args": ["--acp"], "env": {"ONE_UPDATE": "0"}})))
    arguments = ["agents", "add", "one", "--from", str(source)]
    declined = CliRunner().invoke(cli, arguments, input="n\n")
    assert declined.exit_code == 1
    assert "npx --yes one@1.2.3 --acp" in declined.output and "ONE_UPDATE=0" in declined.output, "all that would run"
    assert not file.exists()
    file.parent.mkdir()
    file.write_text("# mine\nport = 4097\n\n[agents.other]\ncommand = ['other']\n")
    assert CliRunner().invoke(cli, arguments, input="y\n").exit_code == 0
    command = ["npx", "--yes", "one@1.2.3", "--acp"]
    assert tomllib.loads(file.read_text())["agents"] == {
        "other": {"command": ["other"]},
        "one": {"command": command, "title": "One", "env": {"ONE_UPDATE": "0"}},
    }
    assert file.read_text().startswith("# mine\nport = 4097\n")
    again = CliRunner().invoke(cli, arguments, input="y\n")
    assert "sets agents.one already" in str(again.exception)


@pytest.mark.parametrize("asked", ["qwen", "qwen-code"])
def test_an_agent_that_is_known_here_is_added_under_its_name_here(asked: str) -> None:
    """Under another name it would have no modes, and its files in a project would not be left out where that is not trusted."""
    copy = read_registry()
    entry = find_entry(copy, asked)
    assert (entry.name, entry.command[-1]) == ("qwen", "--acp")
    assert {"claude-agent-acp", "copilot", "opencode-acp", "vibe"} <= set(names(copy))
    assert not {spec.program.registry for spec in agents().values() if spec.program.registry} & set(names(copy))
