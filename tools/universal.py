"""Writes the published documents of the universal API. `--check` lists the outdated ones (exit 1).

    shim/faces/v1/openapi.json                  the OpenAPI 3.1 document that `GET /v1/openapi.json` answers
    docs/schema/universal-event.schema.json     JSON Schema of one event, as on streams and in pages

Source: the handlers of shim/faces/v1/routes and the models of shim/faces/v1 and universal.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tools.generated_files import ROOT, settle


def files() -> dict[Path, str]:
    """The text of each generated file."""
    from shim.faces.v1.routes import MODULES
    from shim.faces.v1.routes.document import document
    from shim.faces.v1.routes.document import event_document as event_schema
    from shim.routes import inspector_api

    return {
        ROOT / "shim" / "faces" / "v1" / "openapi.json": _lines(document((*MODULES[:-1], inspector_api, MODULES[-1]))),
        ROOT / "docs" / "schema" / "universal-event.schema.json": json.dumps(event_schema(), indent=1, ensure_ascii=False) + "\n",
    }


def _lines(document: dict[str, Any]) -> str:
    """The document as JSON with one path or schema on a line, so that a change can be read in a diff."""
    head = {name: value for name, value in document.items() if name not in ("paths", "components")}
    paths = ",\n".join(f"{json.dumps(path)}:{_compact(item)}" for path, item in document["paths"].items())
    schemas = ",\n".join(f"{json.dumps(name)}:{_compact(item)}" for name, item in document["components"]["schemas"].items())
    rest = _compact({name: value for name, value in document["components"].items() if name != "schemas"})[1:-1]
    return f'{_compact(head)[:-1]},\n"paths":{{\n{paths}\n}},\n"components":{{{rest},"schemas":{{\n{schemas}\n}}}}}}\n'


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def main(arguments: list[str]) -> int:
    """Write, or with `--check` compare. Returns the exit code."""
    return settle(files(), check="--check" in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
