"""What permission rules see of a request of an ACP agent: paths, commands, and what is known only by a title."""

from __future__ import annotations

from typing import Any

import pytest

from universal.agents.acp.tools import name_of, rule_metadata

PATCH = (
    "*** Begin Patch\n*** Update File: ./a\n@@\n-x\n+y\n*** Add File: b\n+z\n*** Update File: c\n*** Move to: ../d\n*** End Patch"
)


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        ({"kind": "execute", "title": "run_commands: ...", "rawInput": {"commands": ["a", "rm b"]}}, {"commands": ["a", "rm b"]}),
        ({"kind": "execute", "title": "rm x", "rawInput": {}}, {"opaque": True}),
        ({"kind": "execute", "title": "ls", "rawInput": {"command": "rm x"}}, {}),
        ({"kind": "other", "title": "apply_patch: {...", "rawInput": {"input": PATCH}}, {"paths": ["./a", "b", "c", "../d"]}),
        ({"kind": "read", "title": "read_files: ...", "rawInput": {"files": [{"path": "/p/a"}]}}, {"paths": ["/p/a"]}),
        ({"kind": "edit", "title": "edit", "rawInput": {}, "content": [{"type": "diff", "path": "/p/a"}]}, {"paths": ["/p/a"]}),
        ({"kind": "move", "title": "mv", "rawInput": {"path": "/p/a", "destination": "/q/b"}}, {"paths": ["/p/a", "/q/b"]}),
        ({"kind": "delete", "title": "rm", "rawInput": {}}, {"opaque": True}),
        ({"kind": "other", "title": "something", "rawInput": {}}, {"opaque": True}),
        ({"kind": "other", "title": "my_tool", "rawInput": {"a": 1}}, {}),
    ],
)
def test_metadata_of_a_request_for_the_rules(request_: dict[str, Any], expected: dict[str, Any]) -> None:
    assert rule_metadata(None, request_) == expected


def test_a_title_that_begins_with_a_name_gives_it() -> None:
    assert name_of({"kind": "other", "title": "apply_patch: {...", "rawInput": {"input": PATCH}}) == "apply_patch"


def test_opencodes_question_about_a_folder_is_no_edit() -> None:
    request = {"kind": "other", "title": "external_directory", "rawInput": {"filepath": "/etc/x", "parentDir": "/etc"}}
    asked = rule_metadata(None, request)["opencode"]
    assert (asked["permission"], asked["patterns"]) == ("external_directory", ["/etc/*"])
