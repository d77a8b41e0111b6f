"""Named tuples that come in thousands."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

TupleT = TypeVar("TupleT", bound=tuple[Any, ...])


def maker_of(kind: type[TupleT]) -> Callable[[tuple[Any, ...]], TupleT]:
    """Create a function that makes a value of all its fields, in their order, in half the time of the class itself.

    It checks neither their number nor their types.
    """
    new: Callable[[type[TupleT], tuple[Any, ...]], TupleT] = tuple[Any, ...].__new__
    return partial(new, kind)
