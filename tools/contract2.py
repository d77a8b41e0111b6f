"""Compares contracts of OpenCode 2 by the models of `opencode-python-sdk`, which has no document.

    python -m tools.contract2               compares our document with the installed SDK
    python -m tools.contract2 0.3.0         compares the installed SDK with another version on PyPI
    python -m tools.contract2 --surface     prints all operations, parameters, models and events of the installed SDK as JSON

Each difference is a line: `-` only the second has it, `+` only the first has it, `!` only one of them requires it. The first is
our document, or the installed SDK. `tests/conformance/test_opencode2_contract.py` holds our document to the installed SDK.
"""

from __future__ import annotations

import ast
import inspect
import json
import os
import pkgutil
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import pydantic
from opencode import API_VERSION, resources
from opencode.types import _generated as models

from shim.faces.opencode2._generated.operations import OPERATIONS
from tests.support.opencode2_oracle import opencode2_oracle

REPO = Path(__file__).resolve().parents[1]
PACKAGE = "opencode-python-sdk"
INSTALL_S = 180
SURFACE_S = 60
PLACEHOLDER = re.compile(r"\{\w+\}|:\w+")
OPERATION = re.compile(r"``(GET|POST|PUT|PATCH|DELETE) (/\S+?)``")
REST = "/*"


Parameters = frozenset[str]
"""`query NAME` and `body NAME` of an operation."""


def operations_of_sdk() -> dict[str, Parameters]:
    """`METHOD /path` of each method of the SDK's resources, from its docstring -> the parameters that it sends."""
    operations: dict[str, Parameters] = {}
    for module in pkgutil.iter_modules(resources.__path__):
        tree = ast.parse(inspect.getsource(import_module(f"opencode.resources.{module.name}")))
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        for function in functions:
            match = OPERATION.search(ast.get_docstring(function) or "")
            if match:
                operations[f"{match[1]} {PLACEHOLDER.sub('{}', match[2])}"] = _sent_parameters(function)
    return operations


def _sent_parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Parameters:
    """Keys of the `query` and the `body` that a method of the SDK passes to its client."""
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call) and ast.unparse(node.func) == "RequestOptions"]
    arguments = [(word.arg, word.value) for call in calls for word in call.keywords if word.arg in ("query", "body")]
    keys = [(where, key) for where, value in arguments if isinstance(value, ast.Dict) for key in value.keys]
    return frozenset(f"{where} {key.value}" for where, key in keys if isinstance(key, ast.Constant))


def operations_of_ours() -> dict[str, Parameters]:
    operations: dict[str, Parameters] = {}
    for row in OPERATIONS.values():
        operation = opencode2_oracle().document["paths"][row.path][row.method.lower()]
        query = {f"query {parameter['name']}" for parameter in operation["parameters"] if parameter["in"] == "query"}
        body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
        operations[f"{row.method} {PLACEHOLDER.sub('{}', row.path)}"] = frozenset(
            query | {f"body {name}" for name in _keys(body)}
        )
    return operations


def _keys(schema: dict[str, Any]) -> set[str]:
    """Names of the properties of a schema, including all its alternatives."""
    if "$ref" in schema:
        return _keys(opencode2_oracle().schemas[schema["$ref"].rsplit("/", 1)[-1]])
    parts = [*schema.get("allOf", ()), *schema.get("anyOf", ())]
    return set(schema.get("properties", {})).union(*(_keys(part) for part in parts))


def fields(model: type[pydantic.BaseModel]) -> dict[str, bool]:
    """Name on the wire -> whether the SDK's model requires it. The tag is left out, because it has a default there."""
    named = {field.serialization_alias or field.alias or name: field.is_required() for name, field in model.model_fields.items()}
    return {name: required for name, required in named.items() if name not in ("type", "_tag", "status")}


def properties(schema: dict[str, Any]) -> dict[str, bool]:
    """Name of a property -> whether our schema requires it."""
    if "$ref" in schema:
        return properties(opencode2_oracle().schemas[schema["$ref"].rsplit("/", 1)[-1]])
    fields_by_name: dict[str, bool] = {}
    for part in schema.get("allOf", ()):
        fields_by_name |= properties(part)
    required = schema.get("required", ())
    fields_by_name |= {name: name in required for name in schema.get("properties", {})}
    return {name: needed for name, needed in fields_by_name.items() if name not in ("type", "_tag", "status")}


def differences() -> Iterator[str]:
    """Yield a line for each difference between our document and the SDK."""
    ours, sdk = operations_of_ours(), operations_of_sdk()
    yield from (f"operation - {operation}" for operation in sorted(sdk.keys() - ours.keys()))
    yield from (f"operation + {operation}" for operation in sorted(ours.keys() - sdk.keys()))
    for name in sorted(sdk.keys() & ours.keys()):
        yield from (f"parameter - {name} {parameter}" for parameter in sorted(sdk[name] - ours[name]))
        yield from (f"parameter + {name} {parameter}" for parameter in sorted(ours[name] - sdk[name]))
    schemas = opencode2_oracle().schemas
    events: dict[str, str] = {}
    for name, model in vars(models).items():
        if not (isinstance(model, type) and issubclass(model, pydantic.BaseModel)):
            continue
        tag = model.model_fields["type"].default if "type" in model.model_fields else None
        if name.endswith("Event") and isinstance(tag, str):
            events[tag] = name
        elif name in schemas and "anyOf" not in schemas[name]:
            yield from _of(name, fields(model), properties(schemas[name]))
    event_types = {name.removeprefix("Event.") for name in schemas if name.startswith("Event.")}
    yield from (f"event - {type_}" for type_ in sorted(events.keys() - event_types))
    yield from (f"event + {type_}" for type_ in sorted(event_types - events.keys()))
    for type_ in sorted(events.keys() & event_types):
        envelope = schemas[f"Event.{type_}"]["properties"]
        data = getattr(models, f"{events[type_]}Data", None)
        if data is not None:
            yield from _of(f"Event.{type_}", fields(data), properties(envelope["data"]))
        durable = getattr(models, f"{events[type_]}Durable", None)
        if (durable is not None) != ("durable" in envelope):
            yield f"durable {type_}"
        elif durable is not None:
            version = envelope["durable"]["properties"]["version"]["enum"]
            yield from [f"version {type_}"] if version != [durable.model_fields["version"].default] else []


def _of(name: str, sdk: dict[str, bool], ours: dict[str, bool]) -> Iterator[str]:
    yield from (f"{name} - {field}" for field in sdk if field not in ours)
    yield from (f"{name} + {field}" for field in ours if field not in sdk)
    yield from (f"{name} ! {field}" for field in sdk if field in ours and sdk[field] != ours[field])


def surface() -> dict[str, Any]:
    """Return the contract of the installed SDK."""
    classes = {name: model for name, model in vars(models).items() if isinstance(model, type)}
    field_names = {name: fields(model) for name, model in classes.items() if issubclass(model, pydantic.BaseModel)}
    operations = {name: sorted(parameters) for name, parameters in operations_of_sdk().items()}
    return {"version": API_VERSION, "operations": operations, "models": field_names}


def drift(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each difference between an older and a newer contract."""
    if old["version"] != new["version"]:
        yield f"version {old['version']} -> {new['version']}"
    for kind in ("operations", "models"):
        word = kind.removesuffix("s")
        yield from (f"{word} - {name}" for name in sorted(new[kind].keys() - old[kind].keys()))
        yield from (f"{word} + {name}" for name in sorted(old[kind].keys() - new[kind].keys()))
    for name in sorted(new["operations"].keys() & old["operations"].keys()):
        before, after = set(old["operations"][name]), set(new["operations"][name])
        yield from (f"parameter - {name} {parameter}" for parameter in sorted(after - before))
        yield from (f"parameter + {name} {parameter}" for parameter in sorted(before - after))
    for name in sorted(new["models"].keys() & old["models"].keys()):
        yield from _of(name, new["models"][name], old["models"][name])


def surface_of(version: str) -> dict[str, Any]:
    """Return the contract of an SDK on PyPI, which is installed into a temporary folder."""
    uv = shutil.which("uv") or str(REPO / ".uv" / "bin" / "uv")
    with tempfile.TemporaryDirectory(prefix="contract-") as folder:
        requirement = f"{PACKAGE}=={version}"
        install = [uv, "pip", "install", "--quiet", "--python", sys.executable, "--target", folder, requirement]
        subprocess.run(install, check=True, timeout=INSTALL_S)
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([folder, str(REPO)])}
        argv = [sys.executable, "-m", "tools.contract2", "--surface"]
        return json.loads(subprocess.run(argv, check=True, capture_output=True, timeout=SURFACE_S, env=env, cwd=REPO).stdout)


def main(arguments: list[str]) -> None:
    """Run the command line."""
    if arguments == ["--surface"]:
        lines = [json.dumps(surface())]
    elif arguments:
        lines = list(drift(surface(), surface_of(arguments[0])))
    else:
        lines = list(differences())
    print("\n".join(lines) if lines else "no difference")  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1:])
