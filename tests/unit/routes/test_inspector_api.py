"""Exports: nothing that looks like a secret is left, though most lines are not looked through."""

from __future__ import annotations

import io
import json
import zipfile
from typing import Any

import pytest

from shim.inspector.trace import Row
from shim.lib.redaction import SECRET_NAME, clean
from shim.routes import inspector_api
from tests.unit.store.store_contract import event
from universal.events import ItemData, ItemDeltaData
from universal.items import Item, ItemKind, ItemStatus

SECRETS = (
    "sk-ant-0123456789",
    "rk-0123456789",
    "ghp_0123456789ab",
    "github_pat_0123456789",
    "glpat-0123456789",
    "xoxb-0123456789",
    "hf_0123456789",
    "sgp_0123456789",
    "AKIA0123456789AB",
    "AIza0123456789",
    "eyJhbGciOiJIUzI1.abc-def",
    "Authorization: Bearer abcdefgh",
    "Basic dXNlcjpwYXNz",
    "https://user:hunter22@example.org/",
    "token=hunter22hunter",
    "PASSWORD: hunter22hunter",
    "passwd=hunter22hunter",
    "secret=hunter22hunter",
    "api_key=hunter22hunter",
    "apikey=hunter22hunter",
    "input_value='hunter22', input_type=str",
)
NAMES = (
    "password",
    "passphrase",
    "clientSecret",
    "api-key",
    "accessKey",
    "private_key",
    "authorization",
    "Cookie",
    "credentials",
)
LINE = inspector_api._line  # pyright: ignore[reportPrivateUsage] - the shortcut is what is tested


@pytest.mark.parametrize("text", SECRETS)
def test_secrets_in_texts(text: str) -> None:
    assert clean(text) != text, "no secret by its looks"
    said = LINE({"a": [f"before {text} after"]}, {})
    assert json.loads(said)["a"][0] == clean(f"before {text} after")


@pytest.mark.parametrize("name", NAMES)
def test_secrets_by_name(name: str) -> None:
    assert SECRET_NAME.search(name)
    assert json.loads(LINE({"x": {name: "hunter22"}}, {})) == {"x": {name: "<redacted>"}}


@pytest.mark.parametrize("value", [{"tokens": {"input": 1}}, {"a": None, "b": [1, True, 2.5]}, "plain"])
def test_the_rest_stays(value: Any) -> None:
    assert json.loads(LINE(value, {"/home/me/project": "/project"})) == value


def test_paths_and_known_secrets() -> None:
    paths = inspector_api.cleaner("/home/me/project", "/home/me", ["very-known-value"])
    given = {"/home/me/project/a.py": "in /home/me/project and /home/me, very-known-value"}
    assert json.loads(LINE(given, paths)) == {"/project/a.py": "in /project and /home/user, <redacted>"}
    assert inspector_api.cleaner("/", "/a") == {}


def test_a_line_of_the_agent_is_there_once_and_equal_lines_as_often_as_they_came() -> None:
    """As it comes from the store: each event has a raw payload of its own."""

    def line(text: str) -> dict[str, str]:
        return {"delta": text}

    item = ItemData(item=Item(item_id="i", kind=ItemKind.MESSAGE, status=ItemStatus.IN_PROGRESS, content=()))
    delta = ItemDeltaData(item_id="i", delta="x")
    events = [
        event(1, data=item, raw=line("x")),  # one line, two events
        event(2, data=delta, raw=line("x")),
        event(3, data=delta, raw=line("x")),  # the same line again
        event(4, data=delta),
        event(5, data=delta, raw=line("y")),
        event(6, data=delta.model_copy(update={"item_id": "j"}), raw=line("y")),  # of the same line, about another item
    ]
    made = inspector_api.session_archive([Row(one, (), "running", 0, ()) for one in events], {}, {})
    with zipfile.ZipFile(io.BytesIO(made)) as archive:
        native = [json.loads(line) for line in archive.read("native.jsonl").splitlines()]
    assert [(one["sequence"], one["raw"]["delta"]) for one in native] == [(1, "x"), (3, "x"), (5, "y")]
