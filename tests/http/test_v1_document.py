"""The document of `/v1`: it has all that the peers' has, and differs only where it says so."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.universal import ROOT, Document, divergences, diverges, our_document, peers_document

SUCCESS = ("200", "204")


def test_every_operation_of_the_peers_is_served() -> None:
    assert len(peers_document().operations()) == 23
    for name, (method, path, operation) in peers_document().operations().items():
        found = our_document().operations()[name]
        assert found[:2] == (method, path)
        assert found[2]["tags"] == operation["tags"]


def test_operations_beyond_the_universal_document_are_marked() -> None:
    extra = {name for name, row in our_document().operations().items() if row[2].get("x-extension")}
    assert extra == set(our_document().operations()) - set(peers_document().operations())


@pytest.mark.parametrize("name", peers_document().operations())
def test_parameters_and_answers(name: str) -> None:
    peer, own = peers_document().operations()[name][2], our_document().operations()[name][2]
    given = {(p["in"], p["name"]): p for p in own["parameters"]}
    for parameter in peer.get("parameters", ()):
        found = given[parameter["in"], parameter["name"]]
        assert found["required"] <= parameter["required"], parameter["name"]
    undeclared = {s for s in own["responses"] if s not in peer["responses"] and s != "default"}
    assert not {s for s in undeclared if not diverges("status", name, status=int(s))}
    assert {s for s in SUCCESS if s in own["responses"]} == {s for s in SUCCESS if s in peer["responses"]}
    assert ("requestBody" in own) == ("requestBody" in peer)


def _fields(document: Document, schema: str) -> dict[str, Any]:
    return dict(document.schemas.get(schema, {}).get("properties", {}))


BODIES = sorted(
    name
    for name in peers_document().schemas
    if name.endswith(("Request", "Response", "Info", "Entry", "Stat", "Capabilities", "Details", "Attachment"))
)


@pytest.mark.parametrize("schema", BODIES)
def test_bodies_have_the_same_fields(schema: str) -> None:
    peer, own = peers_document().schemas[schema], our_document().schemas[schema]
    missing = set(_fields(peers_document(), schema)) - set(_fields(our_document(), schema))
    assert not missing - {"mcp", "skills"}, missing  # of SessionInfo; for requests see below
    if schema.endswith("Request"):
        assert not missing
        assert set(own.get("required", ())) == set(peer.get("required", ()))
    else:
        assert set(peer.get("required", ())) <= set(own.get("required", ()))


def test_every_divergence_is_one() -> None:
    for row in divergences():
        names = [name for name in peers_document().operations() if diverges(row["kind"], name, **_key(row))]
        assert names, row
        if row["kind"] == "status":
            real = [
                name
                for name in names
                if str(row["status"]) in our_document().operations()[name][2]["responses"]
                and str(row["status"]) not in peers_document().operations()[name][2]["responses"]
            ]
            assert real, f"no difference any more: {row}"


def _key(row: Any) -> dict[str, Any]:
    return {key: row[key] for key in ("status", "field") if key in row}


def test_the_peers_union_of_payloads_is_ambiguous() -> None:
    raw = Document.of(ROOT / "compat_fixtures" / "universal" / "openapi.json", old=True)
    assert diverges("schema", "get_events", schema="UniversalEventData")
    assert raw.faults({"$ref": "#/components/schemas/UniversalEventData"}, {"message": "an error"})
