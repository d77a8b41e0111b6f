"""Names of subjects: any id becomes one token, and no two ids become the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shim.cluster.nats.layout import (
    TOKEN_CHARS,
    Layout,
    Manifest,
    SessionRecord,
    decode_manifest,
    decode_record,
    encode_manifest,
    encode_record,
    token,
)
from shim.lib.errors import StoreError
from tests.unit.store.store_contract import row


@given(st.lists(st.text(max_size=300), max_size=20))
def test_a_token_is_legal_and_unique(ids: list[str]) -> None:
    tokens = [token(id_) for id_ in ids]
    assert all(len(one) in range(1, TOKEN_CHARS + 1) and one.isascii() and not set(one) & set(" .*>$\r\n\t") for one in tokens)
    assert len(set(tokens)) == len(set(ids))


def test_ids_of_sessions_are_their_own_tokens() -> None:
    assert token("ses_01aB-c") == "ses_01aB-c"
    assert token("a.b c") == "a=2Eb=20c"


def test_two_prefixes_have_no_subject_in_common() -> None:
    one, other = Layout("a", 1), Layout("a_b", 1)
    assert {stream.subjects for stream in one.streams}.isdisjoint(stream.subjects for stream in other.streams)
    assert {stream.name for stream in one.streams}.isdisjoint(stream.name for stream in other.streams)


@pytest.mark.parametrize("record", [SessionRecord("ses_a", "srv", 3, 7, row(directory="/\udcff")), SessionRecord("s", "", 1)])
def test_an_entry_of_a_session_comes_back(record: SessionRecord) -> None:
    assert decode_record(encode_record(record)) == record


def test_an_entry_of_a_checkpoint_comes_back() -> None:
    manifest = Manifest(7, (5, 90), (1, 2), {1: (3,), 4: (5, 6)})
    assert decode_manifest(encode_manifest(manifest)) == manifest


@pytest.mark.parametrize("damaged", [b"", b"[]", b"{}", b'{"start":1,"pages":[]}', b"\xff"])
def test_damaged_entries_are_named(damaged: bytes) -> None:
    for decode in (decode_record, decode_manifest):
        with pytest.raises(StoreError, match=r"entry of a (session|checkpoint)"):
            decode(damaged)
