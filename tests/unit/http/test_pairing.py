"""Codes and tokens of pairing: good once, for so long, and of one password."""

from __future__ import annotations

from typing import Any

import pytest

from shim.http.pairing import CODE_S, CODES, TOKEN_S, TOKENS, Pairing, decode_person
from shim.http.people import Person

NOW_S = 1_800_000_000.0


def restart_pairing(digest: bytes, kept: dict[str, Any]) -> Pairing:
    """A server's pairing after a start, with the records that earlier ones kept."""

    def save(id_: str, record: Any) -> None:
        kept.pop(id_, None)
        if record is not None:
            kept[id_] = record

    pairing = Pairing(digest)
    pairing.restore(dict(kept), save)
    return pairing


class Request:
    """An open request of a token."""

    is_cut_off = False

    def cut_off(self) -> None:
        self.is_cut_off = True


def token_of(pairing: Pairing) -> str:
    token = pairing.redeem(pairing.code(0.0), 1.0, NOW_S, "phone")
    assert token is not None
    return token


def test_a_token_outlives_the_server_and_ends_with_its_password() -> None:
    kept: dict[str, Any] = {}
    token = token_of(restart_pairing(b"one", kept))
    assert restart_pairing(b"one", kept).identify(token, NOW_S)
    assert restart_pairing(b"another", kept).identify(token, NOW_S) is None
    assert [known.name for known in restart_pairing(b"one", kept).tokens(NOW_S)] == ["phone"]
    assert restart_pairing(b"another", kept).tokens(NOW_S) == []


def test_a_token_that_was_taken_back_stays_so_after_a_restart() -> None:
    kept: dict[str, Any] = {}
    pairing = restart_pairing(b"one", kept)
    lost, other = token_of(pairing), token_of(pairing)
    assert pairing.revoke(lost.split("_")[2])
    assert not pairing.revoke("0" * 12)
    for now in (pairing, restart_pairing(b"one", kept)):
        assert (now.identify(lost, NOW_S) is None, now.identify(other, NOW_S) is None) == (True, False)
        assert [known.id for known in now.tokens(NOW_S)] == [other.split("_")[2]]


def test_the_oldest_token_gives_way() -> None:
    kept: dict[str, Any] = {}
    pairing = restart_pairing(b"one", kept)
    made = [token_of(pairing) for _ in range(TOKENS + 1)]
    assert (pairing.identify(made[0], NOW_S) is None, pairing.identify(made[1], NOW_S) is None, len(kept)) == (
        True,
        False,
        TOKENS,
    )


def test_a_token_ends_after_thirty_days() -> None:
    pairing = Pairing(b"one")
    token = token_of(pairing)
    assert pairing.identify(token, NOW_S + TOKEN_S - 1)
    assert pairing.identify(token, NOW_S + TOKEN_S) is None


def test_a_request_cannot_make_a_token_last_longer() -> None:
    pairing = Pairing(b"one")
    _, end, id_, seal = token_of(pairing).split("_")
    later = f"{int(end, 16) + 1:08x}"
    assert pairing.identify(f"pair_{later}_{id_}_{seal}", NOW_S) is None


@pytest.mark.parametrize(
    "text", ["", "one", "pair_", "pair_ffffffff_", "pair_zz_00", "pair_ffffffff_" + "0" * 64, f"pair_ffffffff_{0:012x}_{0:064x}"]
)
def test_other_texts_are_no_tokens(text: str) -> None:
    assert Pairing(b"one").identify(text, NOW_S) is None


def test_a_code_is_good_once_and_for_five_minutes() -> None:
    pairing = Pairing(b"one")
    code = pairing.code(0.0)
    assert pairing.redeem(code, 1.0, NOW_S) is not None
    assert pairing.redeem(code, 1.0, NOW_S) is None
    late = pairing.code(0.0)
    assert pairing.redeem(late, CODE_S + 0.1, NOW_S) is None


def test_the_oldest_code_gives_way() -> None:
    pairing = Pairing(b"one")
    first = pairing.code(0.0)
    others = [pairing.code(0.0) for _ in range(CODES)]
    assert pairing.redeem(first, 1.0, NOW_S) is None
    assert pairing.redeem(others[0], 1.0, NOW_S) is not None


def test_without_a_password_tokens_are_of_this_process() -> None:
    pairing = Pairing(b"")
    token = token_of(pairing)
    assert pairing.identify(token, NOW_S)
    assert Pairing(b"").identify(token, NOW_S) is None


def test_a_token_of_another_server_is_good_until_it_is_revoked_there() -> None:
    """Both have the same password, and the store tells each what the other has done."""
    here, there = Pairing(b"one"), Pairing(b"one")
    there.restore({}, here.note)
    token = token_of(there)
    id_ = here.identify(token, NOW_S)
    assert id_ is not None
    with here.used(id_, use := Request()):
        assert there.revoke(id_)
    assert here.identify(token, NOW_S) is None
    assert use.is_cut_off


def test_a_token_of_a_server_with_another_password_is_not_good() -> None:
    here, there = Pairing(b"one"), Pairing(b"two")
    there.restore({}, here.note)
    assert here.identify(token_of(there), NOW_S) is None


def test_a_device_has_the_role_of_the_person_that_paired_it() -> None:
    saved: dict[str, Any] = {}
    pairing = Pairing(b"digest")
    pairing.restore({}, saved.__setitem__)
    vera = Person("vera", "view", ("/srv/web",))
    pairing.add_person(vera, NOW_S)
    token = pairing.redeem(pairing.code(0.0, vera), 0.0, NOW_S)
    again = Pairing(b"digest")
    again.restore(saved, saved.__setitem__)
    id_ = again.identify(str(token), NOW_S)
    assert id_ is not None
    assert again.person(id_) == vera
    assert [(token.person, token.is_device) for token in again.tokens(NOW_S)] == [(vera, True), (vera, False)]


def test_the_token_of_a_person_gives_way_to_none() -> None:
    pairing = Pairing(b"digest")
    vera = pairing.add_person(Person("vera", "view"), NOW_S)
    for _ in range(TOKENS + 5):
        pairing.redeem(pairing.code(0.0), 0.0, NOW_S)
    assert pairing.identify(vera, NOW_S)
    assert len(pairing.tokens(NOW_S)) == TOKENS


def test_a_role_that_this_version_does_not_know_may_only_look() -> None:
    assert decode_person({"name": "x", "role": "emperor", "roots": ["/a"]}) == Person("x", "view", ("/a",))
