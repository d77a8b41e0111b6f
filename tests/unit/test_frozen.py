"""`@frozen` is `@dataclass(frozen=True, slots=True)` in all that anybody does with it."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, asdict, dataclass, field, fields, is_dataclass, replace
from typing import Any, ClassVar

import pytest
from pydantic import TypeAdapter, ValidationError

from universal.frozen import frozen


@frozen
class Ours:
    a: int
    b: str = "x"
    c: list[int] = field(default_factory=list, compare=False)
    d: str = field(default="hidden", repr=False)
    LIMIT: ClassVar[int] = 3

    @property
    def double(self) -> int:
        return self.a * 2


@dataclass(frozen=True, slots=True)
class Theirs:
    a: int
    b: str = "x"
    c: list[int] = field(default_factory=list, compare=False)
    d: str = field(default="hidden", repr=False)
    LIMIT: ClassVar[int] = 3

    @property
    def double(self) -> int:
        return self.a * 2


@frozen
class Base:
    call: str


@frozen
class Below(Base):
    path: str
    line: int | None = None

    def __str__(self) -> str:
        return f"{super().__repr__()}!"


@frozen
class Empty:
    pass


@frozen
class Checked:
    at: int

    def __post_init__(self) -> None:
        if self.at < 0:
            raise ValueError("at is negative")


@pytest.mark.parametrize(
    "look",
    [
        lambda one: repr(one).replace("Ours", "").replace("Theirs", ""),
        asdict,
        lambda one: [(f.name, f.type) for f in fields(one)],
        lambda one: one.double,
        lambda one: asdict(replace(one, a=7)),
        lambda one: asdict(copy.copy(one)),
        lambda one: asdict(copy.deepcopy(one)),
        lambda one: asdict(pickle.loads(pickle.dumps(one))),
        lambda one: type(one).__match_args__,
        lambda one: type(one).__slots__,
        lambda one: hasattr(one, "__dict__"),
        lambda one: TypeAdapter(type(one)).dump_python(one, mode="json"),
        lambda one: asdict(TypeAdapter(type(one)).validate_python({"a": 5, "c": [1]})),
        lambda one: (is_dataclass(one), one.LIMIT),
    ],
)
def test_as_dataclasses(look: Callable[[Any], object]) -> None:
    assert look(Ours(1, c=[4])) == look(Theirs(1, c=[4]))


@pytest.mark.parametrize("kind", [Ours, Theirs])
def test_equality_and_hash(kind: Any) -> None:
    assert kind(1) == kind(1, c=[9])
    assert kind(1) != kind(2)
    assert hash(kind(1)) == hash(kind(1))
    assert kind(1) != (1, "x")
    assert Empty() == Empty()
    assert Ours(1) != Theirs(1)
    assert bool(Empty())


def test_defaults_are_made_anew() -> None:
    assert Ours(1).c is not Ours(1).c


@pytest.mark.parametrize("kind", [Ours, Theirs])
def test_nothing_can_be_set(kind: Any) -> None:
    one = kind(1)
    for name in ("a", "new"):
        with pytest.raises((FrozenInstanceError, TypeError)):  # dataclasses' own says TypeError for `new`
            setattr(one, name, 2)
    with pytest.raises(FrozenInstanceError):
        del one.a
    assert one.a == 1


def test_below_another() -> None:
    one = Below("c", "p")
    assert (one.call, one.path, one.line) == ("c", "p", None)
    assert one == Below("c", "p") != Base("c")
    assert str(one) == "Below(call='c', path='p', line=None)!"
    match one:
        case Below(call, path):
            assert (call, path) == ("c", "p")


def test_post_init() -> None:
    assert Checked(1).at == 1
    with pytest.raises(ValueError, match="negative"):
        Checked(-1)


def test_arguments_are_checked_as_by_any_function() -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'a'"):
        Ours()  # type: ignore[call-arg] - that is what is tested
    with pytest.raises(ValidationError):
        TypeAdapter(Ours).validate_python({"a": "no"})
