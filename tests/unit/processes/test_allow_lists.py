"""What is granted where no mounts can be made. What Landlock makes of it: `tests/process/test_landlock.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from shim.lib.errors import AgentStartFailed
from shim.processes import allow_lists
from shim.processes.allow_lists import grants, landlock_command, seatbelt_command, seatbelt_profile
from shim.processes.sandbox import Enclosure, Tool, enclose, places_of
from universal.permissions import rules_from_config
from universal.sandbox import Verdict, bounds_of


@pytest.fixture
def project(tmp_path: Path) -> Path:
    project = tmp_path / "home" / "project"
    for name in ("src/a.py", "b.py", "deep/er/key", "deep/c.py", ".git/hooks/x", ".git/config"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).touch()
    (project / "link").symlink_to(tmp_path)
    return project


def places(project: Path, config: object, *, is_guarded: bool = False) -> dict[str, Verdict]:
    bounds = bounds_of("project", rules_from_config(config))
    assert bounds is not None
    place = Enclosure(bounds, str(project), str(project), str(project.parent))
    return places_of(place, str(project), is_guarded=is_guarded)


def grants_of(project: Path, config: object) -> set[tuple[str, str]]:
    """The grants in the project, by their names in it."""
    found = grants(places(project, config))
    return {(word, path.removeprefix(str(project)).lstrip("/")) for word, path in found if path.startswith(str(project))}


def test_a_project_that_no_rule_divides_is_granted_whole(project: Path) -> None:
    assert grants_of(project, {}) == {("writable", "")}
    assert grants_of(project, {"edit": "deny"}) == {("fixed", "")}
    assert grants_of(project, {"read": "deny"}) == set()


def test_a_folder_in_a_stricter_one_gets_more(project: Path) -> None:
    assert grants_of(project, {"edit": {"*": "deny", "src/*": "allow"}}) == {("fixed", ""), ("writable", "src")}


def test_beside_a_denied_place_all_is_named_one_by_one(project: Path) -> None:
    names = {("writable", name) for name in ("src", "b.py", ".git")}
    on_the_way = {("listed", ""), ("listed", "deep"), ("writable", "deep/c.py")}
    assert grants_of(project, {"read": {"deep/er/*": "deny"}}) == names | on_the_way
    assert grants_of(project, {"edit": {"deep/er/*": "deny"}}) == names | on_the_way | {("fixed", "deep/er")}


def test_no_link_is_followed(project: Path, tmp_path: Path) -> None:
    """A grant is for what a link leads to, and a repository brings links."""
    assert not [path for _, path in grants(places(project, {"read": {"deep/*": "deny"}})) if path.endswith("link")]


def test_too_many_places_beside_a_denied_one_are_refused(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allow_lists, "GRANTS", 3)
    with pytest.raises(AgentStartFailed, match="all that lies beside a denied place must be named"):
        grants({str(project): "writable", str(project / "deep"): "hidden"})


def test_a_place_covers_earlier_places_in_it(project: Path) -> None:
    bounds = bounds_of("project", rules_from_config({"edit": "deny"}))
    assert bounds is not None
    place = Enclosure(bounds, str(project), str(project), str(project.parent), writable=[str(project / "src")])
    assert str(project / "src") not in places_of(place, str(project), is_guarded=False), "a rule is stronger than a state folder"


def test_only_a_process_without_a_network_is_held_to_ports(project: Path) -> None:
    assert "network=own" not in landlock_command({}, "/t", None, ["agent"])
    words = landlock_command({}, "/t", (3128, 80), ["agent", "--", "x"])
    assert words[words.index("network=own") + 1 :] == ["port=3128", "port=80", "--", "agent", "--", "x"]


def test_the_tool_decides_what_stands_before_the_agent(project: Path) -> None:
    bounds = bounds_of("strict", ())
    assert bounds is not None
    place = Enclosure(bounds, str(project), str(project), str(project.parent), "/t", ports=(99,))
    by_landlock = enclose(Tool(kind="Landlock"), place, ["agent"])
    assert f"writable={project}" in by_landlock and "port=99" in by_landlock and "temporary=/t" in by_landlock
    by_seatbelt = enclose(Tool("/usr/bin/sandbox-exec", kind="sandbox-exec"), place, ["agent"])
    assert by_seatbelt[:2] == ["/usr/bin/sandbox-exec", "-p"] and by_seatbelt[3:] == ["/usr/bin/env", "TMPDIR=/t", "agent"]


def test_a_profile_for_macos_names_the_deepest_place_last(project: Path) -> None:
    """A later rule beats an earlier one there, so a place in a writable one can be stricter."""
    found = places(project, {"read": {"deep/er/*": "deny"}, "edit": {"src/*": "deny"}}, is_guarded=True)
    lines = seatbelt_profile(found, "/t", (3128,)).splitlines()
    rows = [line for line in lines if f'"{project}' in line]
    project_row, hooks = f'(allow file-write* (subpath "{project}"))', f'(deny file-write* (subpath "{project}/.git/hooks"))'
    hidden, fixed = f'(deny file-read* (subpath "{project}/deep/er"))', f'(deny file-write* (subpath "{project}/src"))'
    for inner in (hooks, hidden, fixed):
        assert rows.index(project_row) < rows.index(inner)
    assert f'(allow file-read* (subpath "{project}/src"))' in rows
    assert lines[-1] == '(allow network-outbound (remote ip "localhost:3128"))' and "(deny default)" in lines
    assert seatbelt_profile(found, "/t", None).splitlines()[-1] == "(allow network*)"
    assert "(allow network" not in seatbelt_profile(found, "/t", ())


def test_a_name_with_quotes_ends_no_rule_of_a_profile() -> None:
    profile = seatbelt_command({'/a"b\\c': "fixed"}, "/t", None, ["agent"])[2]
    assert r'(allow file-read* (subpath "/a\"b\\c"))' in profile
