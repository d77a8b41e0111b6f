"""Our document of OpenCode 2's wire beside the contract of 2.1.2, as the models of `opencode-python-sdk` have it.

A difference without a row in `compat_fixtures/opencode2/contract_2.1.2.toml` fails, and so does a row that is no difference.
`python -m tools.contract2` prints what is different; run `python -m tools.contract2 VERSION` when the SDK has a new version.
"""

from __future__ import annotations

import copy
import tomllib

from opencode import API_VERSION

from shim.faces.opencode2._generated.operations import OPENCODE2_VERSION
from tools.contract2 import differences, drift, surface
from tools.generate_opencode2 import FIXTURES


def test_our_document_is_the_contract_of_the_typed_client() -> None:
    rows = tomllib.loads((FIXTURES / "contract_2.1.2.toml").read_text())["difference"]
    assert all(len(row["why"]) > 20 for row in rows)
    assert sorted(differences()) == sorted(row["is"] for row in rows)


def test_the_version_is_that_of_the_contract() -> None:
    """Clients are told it by `/api/info`."""
    assert OPENCODE2_VERSION == API_VERSION == "2.1.2"


def test_the_drift_of_a_newer_contract_is_printed() -> None:
    """A planted newer contract: each kind of difference is one line, and nothing else is."""
    old = surface()
    assert list(drift(old, old)) == []
    new = copy.deepcopy(old)
    new["version"] = "2.3.2"
    new["operations"]["GET /api/new"] = []
    del new["operations"]["POST /api/session"]
    new["operations"]["GET /api/session"].append("query fresh")
    new["models"]["NewEvent"] = {"id": True}
    new["models"]["SessionInfo"]["fresh"] = False
    assert list(drift(old, new)) == [
        "version 2.1.2 -> 2.3.2",
        "operation - GET /api/new",
        "operation + POST /api/session",
        "model - NewEvent",
        "parameter - GET /api/session query fresh",
        "SessionInfo - fresh",
    ]
