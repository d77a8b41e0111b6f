"""A server alone takes all of its sessions, but for those that want a label that it has not."""

from __future__ import annotations

import pytest

from shim.lib.errors import InvalidRequest, NoServer, ServerStopping
from shim.lib.settings import parse_labels
from shim.sessions.placement import Need, Placement, labels_of


async def test_a_server_alone_tries_what_it_cannot() -> None:
    """A session of a removed directory can be deleted."""
    await Placement().need_new_here(Need("/missing", "codex"), is_final=False)
    await Placement(("gpu=yes",)).need_here(Need("/missing", labels=("gpu=yes",)))


async def test_a_label_that_a_server_alone_has_not_is_named() -> None:
    with pytest.raises(NoServer, match=r"This server has no label gpu=yes"):
        await Placement(("gpu=no",)).need_new_here(Need("/srv", labels=("gpu=yes",)), is_final=False)


async def test_a_server_alone_that_is_about_to_stop_takes_nothing() -> None:
    alone = Placement()
    alone.stop_taking()
    assert not alone.has_successors()
    with pytest.raises(ServerStopping, match="about to stop"):
        await alone.need_here(Need("/srv"))


@pytest.mark.parametrize(
    ("value", "labels"), [("gpu=yes", ("gpu=yes",)), (" zone=eu/1 , gpu=yes,", ("gpu=yes", "zone=eu/1")), ("", ())]
)
def test_labels_are_read_from_a_text(value: str, labels: tuple[str, ...]) -> None:
    assert parse_labels(value) == labels
    assert labels_of({"serverLabels": value}) == labels


@pytest.mark.parametrize(
    "value", ["gpu", "=yes", "gpu=", "a b=c", "gpu=yes,gpu=no", "x" * 64 + "=y", ["gpu=yes"], {"gpu": "yes"}]
)
def test_labels_of_another_form_are_refused(value: object) -> None:
    with pytest.raises(InvalidRequest, match=r"metadata\.serverLabels cannot be used"):
        labels_of({"serverLabels": value})


def test_too_many_labels_are_refused() -> None:
    with pytest.raises(ValueError, match="32 labels"):
        parse_labels(",".join(f"key{number}=x" for number in range(33)))
