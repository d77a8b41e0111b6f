"""`@frozen`: `@dataclass(frozen=True, slots=True)` whose classes are made in a quarter of the time, and values in two thirds.

dataclasses compiles up to seven functions for each class: half a millisecond, and a start makes a hundred of them. Here only
`__init__` is compiled, and writes into the slots directly; the rest is shared by all values. `fields`, `replace`, `asdict`,
`copy`, `match` and type checkers see a dataclass. Fields may have a default or `field(default_factory=, repr=, compare=)`, and
`__post_init__` is called. Not here: order, keyword-only fields, `InitVar`, cached properties.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from operator import attrgetter
from typing import Any, NoReturn, TypeVar, cast, dataclass_transform

T = TypeVar("T")

_FACTORY = object()
"""Stands for a default that is made anew for each value."""


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[T]) -> type[T]:
    """The class with slots, `__init__`, equality, a hash and a repr by its fields; setting one raises FrozenInstanceError."""
    if cls.__doc__ is None:
        cls.__doc__ = cls.__name__  # dataclasses would write a signature, which takes as long as all the rest
    plain = dataclass(init=False, repr=False, eq=False)(cls)
    all_ = fields(cast(Any, plain))
    own = {name: what for name, what in vars(plain).items() if name not in ("__dict__", "__weakref__")}
    for one in all_:
        own.pop(one.name, None)  # a default in the place of its slot
    taken = {name for base in cls.__mro__[1:] for name in getattr(base, "__slots__", ())}
    own["__slots__"] = tuple(one.name for one in all_ if one.name not in taken)
    own["__qualname__"] = cls.__qualname__
    for name, shared in _SHARED.items():
        own.setdefault(name, shared)
    if "__eq__" not in vars(cls) and "__hash__" not in vars(cls):
        own["__hash__"] = _hash
    made = cast("type[T]", type(cls)(cls.__name__, cls.__bases__, own))
    for function in own.values():  # `super()` and `__class__` in a method mean the class with slots
        _point_to(function, cls, made)
    compared = [one.name for one in all_ if one.compare]
    typed = cast(Any, made)
    typed.__shown__ = tuple(one.name for one in all_ if one.repr)
    typed.__compared__ = _getter(compared)
    if "__init__" not in vars(cls):
        typed.__init__ = _init(made, all_)
    return made


def _init(cls: type[Any], all_: tuple[Field[Any], ...]) -> Callable[..., None]:
    """Compiled, since every value goes through it: `def __init__(self, a, b=default): set_a(self, a); set_b(self, b)`."""
    known: dict[str, Any] = {"_FACTORY": _FACTORY}
    heads, lines = ["self"], list[str]()
    for one in all_:
        name = one.name
        known[f"set_{name}"] = getattr(cls, name).__set__
        given = name
        if one.default is not MISSING:
            known[f"default_{name}"] = one.default
            heads.append(f"{name}=default_{name}")
        elif one.default_factory is not MISSING:
            known[f"make_{name}"] = one.default_factory
            heads.append(f"{name}=_FACTORY")
            given = f"make_{name}() if {name} is _FACTORY else {name}"
        else:
            heads.append(name)
        lines.append(f"    set_{name}(self, {given})")
    if hasattr(cls, "__post_init__"):
        lines.append("    self.__post_init__()")
    exec(f"def __init__({', '.join(heads)}):\n" + ("\n".join(lines) or "    pass"), known)  # noqa: S102 - as dataclasses does
    init = cast(Callable[..., None], known["__init__"])
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init


def _point_to(function: object, old: type[Any], new: type[Any]) -> None:
    for cell in getattr(getattr(function, "__wrapped__", function), "__closure__", None) or ():
        if cell.cell_contents is old:
            cell.cell_contents = new


def _getter(names: list[str]) -> Callable[[Any], object]:
    """A function that gives a tuple, or the one value that there is to compare."""
    if names:
        return staticmethod(attrgetter(*names))  # pyright: ignore[reportReturnType] - called through the class
    return staticmethod(_nothing)  # pyright: ignore[reportReturnType] - called through the class


def _nothing(_value: object) -> tuple[()]:
    return ()


# --- what all values share -------------------------------------------------------------------------------


def _eq(self: Any, other: Any) -> bool:
    if other.__class__ is not self.__class__:
        return NotImplemented
    return self is other or self.__compared__(self) == self.__compared__(other)


def _hash(self: Any) -> int:
    return hash((self.__class__, self.__compared__(self)))


def _repr(self: Any) -> str:
    shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__shown__)
    return f"{self.__class__.__qualname__}({shown})"


def _setattr(self: Any, name: str, _value: object) -> NoReturn:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _delattr(self: Any, name: str) -> NoReturn:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _getstate(self: Any) -> list[Any]:
    return [getattr(self, one.name) for one in fields(self)]


def _setstate(self: Any, state: list[Any]) -> None:
    for one, it in zip(fields(self), state, strict=True):
        object.__setattr__(self, one.name, it)


_SHARED: dict[str, Any] = {
    "__eq__": _eq,
    "__repr__": _repr,
    "__setattr__": _setattr,
    "__delattr__": _delattr,
    "__getstate__": _getstate,
    "__setstate__": _setstate,
}
