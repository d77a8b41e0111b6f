"""The store of a server: SQLite, or a cluster, whose client is imported only then."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from shim.cluster.nats.store import JetStreamStore
from shim.lib.errors import StoreError
from shim.lib.settings import Settings, SettingsError
from shim.main.choose_store import DATABASE, store_of
from shim.store.sqlite import SqliteStore

IMPORT_S = 60


def test_without_a_cluster_the_sessions_are_in_the_data_directory(tmp_path: Path) -> None:
    store = store_of(Settings(data_dir=tmp_path))
    assert isinstance(store, SqliteStore)
    assert store.path == tmp_path / DATABASE


def test_a_server_without_a_cluster_imports_nothing_of_it() -> None:
    loaded = "sorted(n for n in sys.modules if n == 'nats' or n.startswith('shim.cluster'))"
    code = f"import sys, shim.main.app, shim.main.backend, shim.routes.table, shim.cli.serve_command; print({loaded})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=IMPORT_S, check=True)
    assert done.stdout.strip() == "[]"


def test_a_cluster_has_the_settings_of_its_nats(tmp_path: Path) -> None:
    for name in ("creds", "ca", "cert", "key"):
        (tmp_path / name).write_text("")
    settings = Settings(
        data_dir=tmp_path,
        cluster="a:4222, tls://b",
        cluster_prefix="team",
        cluster_replicas=3,
        cluster_credentials=tmp_path / "creds",
        cluster_password="user:secret",  # pyright: ignore[reportArgumentType]
        cluster_tls_ca=tmp_path / "ca",
        cluster_tls_cert=tmp_path / "cert",
        cluster_tls_key=tmp_path / "key",
    )
    store = store_of(settings)
    assert isinstance(store, JetStreamStore)
    options = store.options
    assert (options.servers, options.prefix, options.replicas) == (("nats://a:4222", "tls://b"), "team", 3)
    assert (options.credentials, options.secret) == (tmp_path / "creds", "user:secret")
    assert (options.tls_ca, options.tls_cert, options.tls_key) == (tmp_path / "ca", tmp_path / "cert", tmp_path / "key")
    assert options.address == "a:4222, b"
    assert "secret" not in repr(options)


def test_a_cluster_without_the_extra_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(StoreError, match=r"opencode-shim\[cluster\]"):
        store_of(Settings(data_dir=tmp_path, cluster="nats://a"))
    assert isinstance(store_of(Settings(data_dir=tmp_path)), SqliteStore)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("http://a", "use nats://HOST"),
        ("nats://", "use nats://HOST"),
        (" , ", "use nats://HOST"),
        ("nats://user:pw@a", "set it in cluster_password"),
        ("nats://a/path", "use nats://HOST"),
    ],
)
def test_a_wrong_address_is_refused(value: str, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHIM_CLUSTER", value)
    with pytest.raises(SettingsError, match=reason):
        Settings.load()
