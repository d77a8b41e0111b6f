"""Tests of what all codecs share."""

from __future__ import annotations

from itertools import count

from universal.codec import IdFactory


def counting_ids() -> IdFactory:
    """Ids that tests can foretell: item_1, permission_2 ..."""
    numbers = count(1)
    return lambda kind: f"{kind}_{next(numbers)}"
