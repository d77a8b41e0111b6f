"""Counting and joining unified diffs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from universal.lib.diffs import FileChange, count, text_before, turn_diff, unified_diff, with_index_header

DIFF = "--- a\n+++ a\n@@ -1,1 +1,2 @@\n Hello\n+Added line\n"


TEXTS = st.lists(st.sampled_from(["a", "b", "", "-c", "+d", "\\", "@@ x", "e\u2028f\r"]), max_size=14).flatmap(
    lambda rows: st.sampled_from(["\n".join(rows), "".join(f"{row}\n" for row in rows)])
)


@given(TEXTS, TEXTS)
def test_a_diff_leads_back_to_the_text_that_it_was_made_from(before: str, after: str) -> None:
    assert text_before(after, unified_diff("f", before, after)) == before


def test_a_diff_of_another_text_leads_nowhere() -> None:
    assert text_before("other\n", DIFF) is None
    assert text_before("", DIFF) is None


def test_header_lines_do_not_count() -> None:
    assert count(DIFF) == (1, 0)
    assert count("--- a\n+++ b\n") == (0, 0)
    assert count("@@ -1 +1 @@\n---- x\n++++ y\n") == (1, 1)


def test_the_form_of_opencodes_tools() -> None:
    # as recorded: opencode 1.18.33, scene read_edit
    assert with_index_header("/p/README.md", DIFF) == (
        "Index: /p/README.md\n===================================================================\n"
        "--- /p/README.md\n+++ /p/README.md\n@@ -1,1 +1,2 @@\n Hello\n+Added line\n"
    )


def test_several_changes_of_a_file_are_one_entry() -> None:
    changes = [
        FileChange("/p/a", DIFF, created=False),
        FileChange("/p/b", DIFF, created=True),
        FileChange("/p/a", DIFF, created=False),
    ]
    entries = turn_diff(changes, "/p")
    assert [(e.file, e.additions, e.deletions, e.status) for e in entries] == [
        ("a", 2, 0, "modified"),
        ("b", 1, 0, "added"),
    ]
    assert entries[0].patch.count("@@ -1,1") == 2
