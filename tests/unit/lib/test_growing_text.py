"""Runs of pieces of several texts: what they join to, and in which order."""

from __future__ import annotations

from universal.lib.growing_text import PartsRun, Run


def test_a_run_joins_the_pieces_of_each_text_in_the_order_of_last_pieces() -> None:
    run: Run[int] = Run()
    for number, (key, piece) in enumerate([("a", "1"), ("b", "x"), ("a", "2"), ("c", ""), ("b", "y")]):
        run.add(key, (piece,), number)
    assert run.take() == [(2, "12"), (3, ""), (4, "xy")]
    assert run.take() == []


def test_a_run_of_parts_leaves_the_first_piece_of_each_alone() -> None:
    run: PartsRun[int] = PartsRun()
    assert run.add("a", [1], ["1"]) == [(1, "1")]
    assert run.add("a", [2], ["2"]) == []
    assert run.add("a", [3], ["3"]) == []
    assert run.add("b", [4], ["x"]) == [(3, "23"), (4, "x")], "a part that begins stands after what came before it"
    assert run.add("a", [5], ["4"]) == []
    assert run.take() == [(5, "4")]
    assert run.add("b", [6, 7, 8], ["y", "z", "!"]) == [(6, "y")], "of pieces that come together, too"
    assert run.take() == [(8, "z!")]
    assert run.add("a", [9], ["5"]) == [(9, "5")], "after the end of a run each part begins anew"
