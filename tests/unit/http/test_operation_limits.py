"""Bounds of a body, by the names of its fields."""

from __future__ import annotations

from typing import Any

import pytest

from shim.http import operation
from shim.http.operation import ARRAYS, TEXTS, VALUES_LIMIT, check
from shim.lib.errors import InvalidRequest, PayloadTooLarge
from shim.lib.ids import is_id


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_has_a_bound_that_the_refusal_names(name: str) -> None:
    check("session.update", {name: "x" * TEXTS[name]})
    for body in ({name: "x" * (TEXTS[name] + 1)}, {"parts": [{name: "x" * (TEXTS[name] + 1)}]}):
        with pytest.raises(InvalidRequest, match=f"at most {TEXTS[name]} characters") as raised:
            check("session.update", body)
        assert f'["{name}"]' in raised.value.message


@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_has_a_bound_that_the_refusal_names(name: str) -> None:
    check("session.prompt", {name: [1] * ARRAYS[name]})
    with pytest.raises(PayloadTooLarge, match=f"at most {ARRAYS[name]} items") as raised:
        check("session.prompt", {name: [1] * (ARRAYS[name] + 1)})
    assert (raised.value.limit, f'["{name}"]' in raised.value.message) == (ARRAYS[name], True)


@pytest.mark.parametrize(
    "body", [{"x": [0] * VALUES_LIMIT}, {"x": {str(n): 0 for n in range(VALUES_LIMIT)}}, [[0] * 1000] * (VALUES_LIMIT // 1000)]
)
def test_a_body_has_a_bound_of_values(body: Any) -> None:
    with pytest.raises(PayloadTooLarge, match=f"more than {VALUES_LIMIT} values") as raised:
        check("session.prompt", body)
    assert raised.value.limit == VALUES_LIMIT
    check("session.import", body)


def test_metadata_of_clients_has_no_limits_by_name() -> None:
    check("session.update", {"metadata": {"title": "x" * 10_000}})


@pytest.mark.parametrize(
    ("text", "right"), [("ses_1", True), ("ses_A-b_9", True), ("ses_../x", False), ("msg_1", False), (5, False)]
)
def test_ids(text: object, right: bool) -> None:
    assert is_id(text, "ses") is right


@pytest.mark.parametrize("unit", [b"[],", b"{},", b"1,", b"[", b'"a":{'])
def test_a_body_of_very_many_values_is_refused_before_it_is_parsed(unit: bytes) -> None:
    with pytest.raises(PayloadTooLarge):
        operation.check_unparsed("session.prompt", unit * (operation.UNPARSED_LIMIT + 1))
    operation.check_unparsed("session.prompt", unit * 1_000)
    operation.check_unparsed("session.import", unit * (operation.UNPARSED_LIMIT + 1))


def test_a_long_text_is_no_body_of_many_values() -> None:
    operation.check_unparsed("session.prompt", b'{"text":"' + b"x = f(a, b[0])\n" * 100_000 + b'"}')
