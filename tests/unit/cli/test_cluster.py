"""`opencode-shim cluster import` and `export`, with an embedded NATS."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from typer.testing import CliRunner

from shim.cli.commands import cli
from shim.lib.errors import StoreError
from shim.main.choose_store import DATABASE
from shim.store.sqlite import SqliteStore
from tests.unit.store.store_contract import journal, row


async def fill(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    store.save_session(row())
    store.append(journal(1, 3))
    await store.close()


async def count(path: Path) -> int:
    store = SqliteStore(path)
    await store.open()
    events = await store.events("ses_a")
    await store.close()
    return len(events)


def run(*arguments: str) -> str:
    result = CliRunner().invoke(cli, ["cluster", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_sessions_go_into_the_cluster_and_back(tmp_path: Path) -> None:
    database = tmp_path / DATABASE
    asyncio.run(fill(database))
    arguments = ("--cluster", "embedded", "--data-dir", str(tmp_path))
    done = run("import", *arguments)
    assert "1 sessions with 3 new events" in done
    assert f"from {database} to the cluster embedded (shim)" in done.replace("\n", "")
    assert "0 sessions with 0 new events" in run("import", *arguments)
    database.unlink()
    done = run("export", *arguments)
    assert "1 sessions with 3 new events" in done
    assert "Nothing was deleted" in done
    assert asyncio.run(count(database)) == 3


def test_a_missing_cluster_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="Name its NATS servers: --cluster nats://HOST"):
        CliRunner().invoke(cli, ["cluster", "import", "--data-dir", str(tmp_path)], catch_exceptions=False)
