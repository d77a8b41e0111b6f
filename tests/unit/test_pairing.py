"""Codes and tokens of pairing: good once, for so long, and of one password."""

from __future__ import annotations

import pytest

from shim.http.pairing import CODE_S, CODES, TOKEN_S, Pairing

NOW_S = 1_800_000_000.0


def token_of(pairing: Pairing) -> str:
    token = pairing.redeem(pairing.code(0.0), 1.0, NOW_S)
    assert token is not None
    return token


def test_a_token_outlives_the_server_and_ends_with_its_password() -> None:
    token = token_of(Pairing(b"one"))
    assert Pairing(b"one").admits(token, NOW_S)
    assert not Pairing(b"another").admits(token, NOW_S)


def test_a_token_ends_after_thirty_days() -> None:
    pairing = Pairing(b"one")
    token = token_of(pairing)
    assert pairing.admits(token, NOW_S + TOKEN_S - 1)
    assert not pairing.admits(token, NOW_S + TOKEN_S)


def test_nobody_can_make_a_token_last_longer() -> None:
    pairing = Pairing(b"one")
    _, end, seal = token_of(pairing).split("_")
    later = f"{int(end, 16) + 1:08x}"
    assert not pairing.admits(f"pair_{later}_{seal}", NOW_S)


@pytest.mark.parametrize("text", ["", "one", "pair_", "pair_ffffffff_", "pair_zz_00", "pair_ffffffff_" + "0" * 64])
def test_other_texts_are_no_tokens(text: str) -> None:
    assert not Pairing(b"one").admits(text, NOW_S)


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
    assert pairing.admits(token, NOW_S)
    assert not Pairing(b"").admits(token, NOW_S)
