"""JSON with comments: read like JSON, and changed without touching anything else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shim.host.config.jsonc import JsoncError, edit, loads

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.text(max_size=4), JSON, max_size=4)
NOISE = st.sampled_from(["", " ", "\n", '// it\'s "a" comment {\n', "/* , ] } */", "\t\n  "])


@st.composite
def noisy(draw: st.DrawFn, value: Any) -> str:
    """The value as JSONC: comments and blanks between all tokens, and sometimes a trailing comma."""
    space = lambda: draw(NOISE)  # noqa: E731 - a name for a draw
    if isinstance(value, dict):
        rows = [f"{space()}{json.dumps(key)}{space()}:{space()}{draw(noisy(inner))}{space()}" for key, inner in value.items()]
    elif isinstance(value, list):
        rows = [f"{space()}{draw(noisy(inner))}{space()}" for inner in value]
    else:
        return json.dumps(value)
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    comma = draw(st.sampled_from(["", ","])) if rows else ""
    return f"{opening}{','.join(rows)}{comma}{space()}{closing}"


def merge(old: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """What an edit must amount to."""
    result = dict(old)
    for key, value in changes.items():
        inner = result.get(key)
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict) and isinstance(inner, dict):
            result[key] = merge(inner, value)
        elif isinstance(value, dict) and value:
            made = merge({}, value)
            # Only removals in something that is not there: nothing to make.
            if made or not _only_removals(value):
                result[key] = made
        else:
            result[key] = value
    return result


def _only_removals(value: dict[str, Any]) -> bool:
    return all(inner is None or (isinstance(inner, dict) and bool(inner) and _only_removals(inner)) for inner in value.values())


@given(st.data(), JSON)
def test_noise_changes_nothing(data: st.DataObject, value: Any) -> None:
    assert loads(data.draw(noisy(value))) == value


@given(JSON, st.sampled_from([None, 2]))
def test_plain_json_is_jsonc(value: Any, indent: int | None) -> None:
    assert loads(json.dumps(value, indent=indent)) == value


@given(st.data(), OBJECTS, OBJECTS)
def test_an_edit_is_a_merge(data: st.DataObject, old: dict[str, Any], changes: dict[str, Any]) -> None:
    assert loads(edit(data.draw(noisy(old)), changes)) == merge(old, changes)


@given(st.data(), OBJECTS, st.text(max_size=4), JSON)
def test_comments_of_others_stay(data: st.DataObject, old: dict[str, Any], key: str, value: Any) -> None:
    """Every comment but those within what is replaced or removed."""
    text = "{\n  // first\n" + data.draw(noisy(old))[1:]
    if key not in old and value is not None:
        assert edit(text, {key: value}).count("/*") >= text.count("/*")
    assert edit(text, {key: value}).startswith("{\n  // first\n") or not old


FILE = """{
  // why this model
  "model": "claude/opus", // the big one
  /* rules */
  "permission": {"bash": {"*": "ask", "git *": "allow"}, "edit": "deny"},
  "list": ["a.md",], // end
}
"""


@pytest.mark.parametrize(
    ("changes", "old", "new"),
    [
        ({"model": "claude/haiku"}, '"claude/opus"', '"claude/haiku"'),
        ({"permission": {"bash": {"*": "deny"}}}, '"*": "ask"', '"*": "deny"'),
        ({"permission": {"bash": {"*": None}}}, '"*": "ask", ', ""),
        ({"permission": {"edit": None}}, ', "edit": "deny"', " "),
        ({"share": "manual"}, "// end\n", '// end\n  "share": "manual",\n'),
        ({"model": None}, '\n  "model": "claude/opus", // the big one', ""),
        ({"list": None}, '\n  "list": ["a.md",], // end', ""),
        ({"nosuch": None}, "", ""),
        ({"permission": {}}, "", ""),
    ],
)
def test_edits_are_small(changes: dict[str, Any], old: str, new: str) -> None:
    assert edit(FILE, changes) == FILE.replace(old, new, 1)


@pytest.mark.parametrize("text", ["", "  \n", "{}", "{ }", "{\n}\n", "{ // c\n}"])
def test_an_edit_of_an_empty_file_creates_objects(text: str) -> None:
    made = edit(text, {"a": {"b": 1}})
    assert loads(made) == {"a": {"b": 1}}
    assert '\n  "a": {\n    "b": 1\n  }' in made and ("//" in made) == ("//" in text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{ "model": \n', "line 2, column 1: expected a value, the file ends"),
        ('{"a" 1}', "line 1, column 6: expected a colon, found '1}'"),
        ("[1 2]", "line 1, column 4: expected a comma or ], found '2]'"),
        ('{"a":1} x', "line 1, column 9: expected the end of the file, found 'x'"),
        ("", "line 1, column 1: expected a value, the file ends"),
        ("{'a': 1}", "line 1, column 2: expected a string, found \"'a': 1}\""),
        ('{"a": nope}', "line 1, column 7: expected a value, found 'nope}'"),
        ("/* open", "line 1, column 1: expected a value, found '/* open'"),
        ("[" * 1000, "line 1, column 202: expected less nesting, found '[[[[[[[[[[[[[[[[[[[['"),
    ],
)
def test_errors_say_where(text: str, message: str) -> None:
    with pytest.raises(JsoncError) as caught:
        loads(text)
    assert str(caught.value) == message


def test_an_edit_of_what_is_no_object() -> None:
    with pytest.raises(JsoncError, match="expected an object"):
        edit("[]", {"a": 1})
