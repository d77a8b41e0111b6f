"""What the errors of a tool say of its sandbox, and what they do not."""

from __future__ import annotations

import pytest

from universal.permissions import rules_from_config
from universal.refusals import REFUSALS, View, refusals_in
from universal.sandbox import Bounds, bounds_of

RULES = {"edit": {"*": "allow", "db/*": "deny"}, "read": {"secrets/*": "deny"}, "external_directory": {"/data/*": "allow"}}
VIEW = View(("/link", "/p/sub"), "/p", ("/h/.claude", "/data"), ("/usr", "/h/.gitconfig"))


def kinds_in(output: str, call: str = "command x", config: object = RULES, view: View = VIEW) -> list[tuple[str, str]]:
    bounds = bounds_of("project", rules_from_config(config))
    assert bounds is not None
    return [(refusal.kind, refusal.sentence.split("`")[1]) for refusal in refusals_in(output, call, bounds, view)]


@pytest.mark.parametrize(
    ("line", "kind", "path"),
    [
        ("sh: 1: cannot create db/x: Read-only file system", "edit", "db/x"),
        ("touch: cannot touch 'db/a b': Read-only file system", "edit", "db/a b"),
        ("Error: EROFS: read-only file system, open '/p/sub/db/x'", "edit", "db/x"),
        ("OSError: [Errno 30] Read-only file system: '/link/db/x'", "edit", "db/x"),
        ("cat: secrets/key: No such file or directory", "read", "secrets"),
        ("cat: secrets/key: Permission denied", "read", "secrets/key"),
        ("bash: line 1: secrets/new: Read-only file system", "read", "secrets"),
        ("error: could not lock config file .git/config: Read-only file system", "protected", ".git/config"),
        ("cat: /h/.ssh/id: No such file or directory", "external_directory", "/h/.ssh/id"),
        ("sh: 1: cannot create /h/other/x: Directory nonexistent", "external_directory", "/h/other/x"),
        ("touch: cannot touch '/usr/x': Read-only file system", "external_directory", "/usr/x"),
    ],
)
def test_an_error_names_the_rule_that_forbade_it(line: str, kind: str, path: str) -> None:
    assert kinds_in(f"before\n{line}\nafter") == [(kind, path)]


@pytest.mark.parametrize(
    "line",
    [
        "cat: src/missing: No such file or directory",
        "cat: src/private: Permission denied",
        "touch: cannot touch 'src/x': Read-only file system",  # another mount of the person's own
        "cat: /tmp/missing: No such file or directory",
        "cat: /data/missing: No such file or directory",
        "cat: /usr/missing: No such file or directory",
        "cat: /h/.claude/missing: No such file or directory",
        "cat: /p/other: Permission denied",
        "secrets/key is fine",
        "No such file or directory",
    ],
)
def test_an_error_that_may_have_another_reason_gets_no_sentence(line: str) -> None:
    assert kinds_in(line) == []


@pytest.mark.parametrize(
    ("line", "kinds"),
    [
        ("sh: 1: cannot create db/x: Permission denied", [("edit", "db/x")]),
        ("cat: secrets/key: Permission denied", [("read", "secrets/key")]),
        ("touch: cannot touch 'new': Permission denied", [("edit", ".")]),
        ("touch: cannot touch 'src/new': Permission denied", []),
        ("cat: /h/.ssh/id: Permission denied", [("external_directory", "/h/.ssh/id")]),
        ("cat: /tmp/missing: Permission denied", [("external_directory", "/tmp/missing")]),
        ("touch: cannot touch '/usr/x': Permission denied", [("external_directory", "/usr/x")]),
        ("cat: /h/.ssh/id: No such file or directory", []),
        ("cat: secrets/missing: No such file or directory", []),
        ("touch: cannot touch '/usr/x': Read-only file system", []),
    ],
)
def test_without_mounts_the_kernel_says_permission_denied_of_all(line: str, kinds: list[tuple[str, str]]) -> None:
    assert kinds_in(line, view=VIEW._replace(temporary="/cache", has_mounts=False)) == kinds


def test_a_relative_path_counts_only_where_the_folder_is_certain() -> None:
    lines = "cat: secrets/key: No such file or directory\ncat: /p/sub/secrets/key: No such file or directory"
    assert len(kinds_in(lines, "command cat secrets/key")) == 1, "both are the same place"
    assert kinds_in(lines.splitlines()[0], "command cd src && cat secrets/key") == []
    assert kinds_in(lines.splitlines()[1], "command cd src && cat /p/sub/secrets/key") == [("read", "secrets")]


@pytest.mark.parametrize(
    ("error", "kinds"),
    [("No such file or directory", []), ("Permission denied", ["read"]), ("Read-only file system", ["edit"])],
)
def test_a_file_that_a_pattern_hides_is_there(error: str, kinds: list[str]) -> None:
    """bubblewrap puts a device in its place, which nobody may open. One that is not there may come later, and is not hidden."""
    rules = {"read": {"*": "allow", "*.env": "deny"}, "edit": "deny"}
    assert [kind for kind, _ in kinds_in(f"cat: new.env: {error}", config=rules)] == kinds


def test_the_rule_is_written_as_the_person_wrote_it() -> None:
    bounds = bounds_of("project", rules_from_config({"edit": {"*": "deny", "src/*": "allow"}}))
    assert bounds is not None
    [refusal] = refusals_in("sh: 1: cannot create x: Read-only file system", "", bounds, VIEW)
    assert refusal.sentence == "`x` is read-only in the sandbox: your rule `edit` denies `*`."
    assert refusals_in("sh: 1: cannot create src/x: Read-only file system", "", bounds, VIEW) == []


def test_the_sentences_of_one_output_are_bounded() -> None:
    lines = "\n".join(f"cat: /h/x{n}: No such file or directory" for n in range(100))
    assert len(refusals_in(lines, "", Bounds("project"), VIEW)) == REFUSALS
