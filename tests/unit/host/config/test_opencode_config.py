"""What a configuration cannot do: stop or swell the server, lead out of its project, or be read on the event loop."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO

import pytest

from shim.host.config import config_reader, jsonc, opencode_config
from shim.host.config.config_reader import LOAD_LIMIT_FILES, PROBLEMS_LIMIT
from shim.host.config.opencode_config import ConfigFiles, describe
from shim.lib import disk
from universal.permissions import decide

BOUND_S = 5.0
"""Of processor time, where unbounded work would take minutes or gigabytes."""


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    person = tmp_path / "home"
    write(person / ".config" / "opencode" / "opencode.json", '{"permission": {"bash": "deny"}}')
    write(person / ".config" / "opencode" / "command" / "mine.md", "my command")
    return person


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project" / ".git").mkdir(parents=True)
    return tmp_path / "project"


def long_plugin_lists(project: Path) -> None:
    for name in ("opencode.jsonc", "opencode.json"):
        plugins = [f"{name}-{number}" for number in range(jsonc.VALUES_LIMIT - 10)]
        write(project / name, json.dumps({"plugin": plugins}))


def too_many_values(project: Path) -> None:
    write(project / "opencode.json", '{"instructions": [' + "1," * 400_000 + "1]}")


def many_faults(project: Path) -> None:
    write(project / "opencode.json", json.dumps({"command": {f"c{number}": 1 for number in range(jsonc.VALUES_LIMIT - 10)}}))


def itself_many_times(project: Path) -> None:
    write(project / "opencode.json", json.dumps({"instructions": ["{file:opencode.json}"] * 10_000}))


def many_command_files(project: Path) -> None:
    for number in range(LOAD_LIMIT_FILES + 500):
        write(project / ".opencode" / "command" / f"c{number}.md", "x")


def large_files(project: Path) -> None:
    for number in range(8):
        write(project / ".opencode" / "command" / f"c{number}.md", "x" * (2**20 - 1))


def a_loop_of_folders(project: Path) -> None:
    write(project / ".opencode" / "command" / "a" / "x.md", "x")
    (project / ".opencode" / "command" / "a" / "loop").symlink_to(project / ".opencode" / "command")


HOSTILE: list[Callable[[Path], None]] = [
    long_plugin_lists,
    too_many_values,
    many_faults,
    itself_many_times,
    many_command_files,
    large_files,
    a_loop_of_folders,
]


@pytest.mark.parametrize("plant", HOSTILE)
def test_a_project_takes_bounded_time_and_the_persons_rules_hold(
    home: Path, project: Path, plant: Callable[[Path], None]
) -> None:
    plant(project)
    began = os.times().user
    config = ConfigFiles(home, {}).load(str(project))
    assert os.times().user - began < BOUND_S
    assert config.permission == {"bash": "deny"}
    assert "mine" in {command.name for command in config.commands}
    assert len(json.dumps(config.values)) < 2 * config_reader.LOAD_LIMIT_BYTES
    assert len(config.problems) <= PROBLEMS_LIMIT + 1


@pytest.mark.parametrize(
    ("plant", "message"),
    [
        (itself_many_times, "This project has more than 4194304 bytes of configuration: make it smaller."),
        (large_files, "This project has more than 4194304 bytes of configuration: make it smaller."),
        (many_command_files, "This project has more than 1000 configuration files: make it smaller."),
        (too_many_values, f"expected at most {jsonc.VALUES_LIMIT} values"),
        (many_faults, "more faults"),
    ],
)
def test_a_configuration_beyond_a_bound_is_reported(
    home: Path, project: Path, plant: Callable[[Path], None], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config_reader, "LOAD_LIMIT_S", 60.0)  # another bound, which a busy machine reaches first
    plant(project)
    lines = list(describe(ConfigFiles(home, {}).load(str(project)).problems))
    assert any(message in line for line in lines), lines


def test_a_load_ends_when_its_time_is_used_up(home: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_reader._Budget, "take", _late)  # pyright: ignore[reportPrivateUsage] - a clock cannot be injected
    write(project / "opencode.json", '{"username": "x"}')
    assert ConfigFiles(home, {"USER": "me"}).load(str(project)).values["username"] == "me"


def _late(_budget: object, **_work: int) -> None:
    raise config_reader._LimitError("configuration that takes too long")  # pyright: ignore[reportPrivateUsage]


def test_json_files_are_read_before_command_files_use_up_the_bounds(home: Path, project: Path) -> None:
    many_command_files(project)
    write(project / ".opencode" / "opencode.json", '{"permission": {"edit": "deny"}}')
    (project / "sub").mkdir()
    write(project / "sub" / ".opencode" / "opencode.json", '{"permission": {"webfetch": "deny"}}')
    config = ConfigFiles(home, {}).load(str(project / "sub"))
    assert config.project_values["permission"] == {"edit": "deny", "webfetch": "deny"}


@pytest.mark.parametrize("text", ["{file:../secret}", "{file:link}", "{file:~/secret}", "{file:/dev/zero}", "{file:pipe}"])
def test_a_project_cannot_put_a_file_from_outside_into_a_text(home: Path, project: Path, text: str) -> None:
    write(project.parent / "secret", "hunter2")
    write(home / "secret", "hunter2")
    (project / "link").symlink_to(project.parent / "secret")
    os.mkfifo(project / "pipe")
    write(project / "opencode.json", json.dumps({"command": {"x": {"template": f"say {text}"}}}))
    config = ConfigFiles(home, {"HOME": str(home)}).load(str(project))
    assert config.values["command"]["x"]["template"] == "say "
    assert any(f"{text} cannot be read" in line for line in describe(config.problems))


def test_the_persons_own_files_may_name_any_file(home: Path, project: Path) -> None:
    write(project.parent / "secret", "key")
    write(project.parent / "dotfiles" / "opencode.jsonc", '{"username": "{file:~/../secret}"}')
    (home / ".config" / "opencode" / "opencode.jsonc").symlink_to(project.parent / "dotfiles" / "opencode.jsonc")
    assert ConfigFiles(home, {"HOME": str(home)}).load(str(project)).values["username"] == "key"


@pytest.mark.parametrize(
    "name", ["opencode.json", ".opencode/opencode.json", ".opencode/command/x.md", ".opencode/command", ".opencode"]
)
def test_links_of_a_project_do_not_lead_out(home: Path, project: Path, name: str) -> None:
    elsewhere = project.parent / "elsewhere"
    for place in ("opencode.json", ".opencode/opencode.json", ".opencode/command/x.md"):
        write(elsewhere / place, '{"username": "stranger"}')
    (project / name).parent.mkdir(parents=True, exist_ok=True)
    (project / name).symlink_to(elsewhere / name)
    config = ConfigFiles(home, {"USER": "me"}).load(str(project))
    assert config.values["username"] == "me"
    assert {command.name for command in config.commands} == {"mine"}
    assert any("leads out of the project" in line for line in describe(config.problems))


def test_links_inside_of_a_project_are_followed(home: Path, project: Path) -> None:
    write(project / "shared" / "commands" / "x.md", "text")
    (project / ".opencode").mkdir()
    (project / ".opencode" / "command").symlink_to(project / "shared" / "commands")
    assert {command.name for command in ConfigFiles(home, {}).load(str(project)).commands} == {"mine", "x"}


def test_files_above_the_roots_are_not_read(home: Path, project: Path) -> None:
    write(project / "opencode.json", '{"username": "above"}')
    write(project / "part" / "opencode.json", '{"model": "a/b"}')
    config = ConfigFiles(home, {"USER": "me"}, (str(project / "part"),)).load(str(project / "part"))
    assert (config.values["username"], config.model) == ("me", "a/b")


def test_a_link_that_leads_out_is_not_written_through(home: Path, project: Path) -> None:
    write(project.parent / "other.json", "{}")
    (project / "opencode.json").symlink_to(project.parent / "other.json")
    with pytest.raises(OSError, match="leads out of the project"):
        ConfigFiles(home, {}).update(str(project), {"username": "x"})
    assert (project.parent / "other.json").read_text() == "{}"


def test_values_of_the_person_and_of_the_project_are_distinguished(home: Path, project: Path) -> None:
    write(project / "opencode.json", '{"permission": {"bash": {"*": "allow"}, "edit": "allow"}, "plugin": ["p"]}')
    content = {"OPENCODE_CONFIG_CONTENT": '{"permission": {"edit": "ask"}}'}
    config = ConfigFiles(home, content).load(str(project))
    assert config.personal_values["permission"] == {"bash": "deny", "edit": "ask"}
    assert config.project_values["permission"] == {"bash": {"*": "allow"}, "edit": "allow"}
    assert config.permission == {"bash": {"*": "allow"}, "edit": "ask"}
    assert [(Path(source.path).name, source.origin) for source in config.sources] == [
        ("opencode.json", "personal"),
        ("opencode.json", "project"),
        ("opencode", "personal"),
        ("OPENCODE_CONFIG_CONTENT", "personal"),
    ]


# --- what is kept


@pytest.fixture
def no_settling_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files count as settled at once: tests write them just before they are read."""
    monkeypatch.setattr(opencode_config, "SETTLING_NS", -(10**12))


@pytest.mark.usefixtures("no_settling_time")
def test_files_are_read_again_only_when_one_has_changed(home: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(project / "opencode.json", '{"username": "a"}')
    write(project / ".opencode" / "command" / "x.md", "x")
    reader, opened = ConfigFiles(home, {}), list[str]()
    confined = disk.open_confined

    def count_read(path: Path, folders: Sequence[str]) -> AbstractContextManager[tuple[BinaryIO, os.stat_result]]:
        opened.append(str(path))
        return confined(path, folders)

    monkeypatch.setattr(disk, "open_confined", count_read)
    first = reader.load(str(project))
    assert len(opened) == 4
    assert reader.load(str(project)) is first
    assert len(opened) == 4


CHANGES: dict[str, Callable[[Path], object]] = {
    "an edit of the same length": lambda project: write(project / "opencode.json", '{"username": "b"}'),
    "a file that is gone": lambda project: (project / "opencode.json").unlink(),
    "a file that was not there": lambda project: write(project / "opencode.jsonc", '{"model": "a/b"}'),
    "a new command": lambda project: write(project / ".opencode" / "command" / "deep" / "y.md", "y"),
    "a first command": lambda project: write(project / ".opencode" / "commands" / "y.md", "y"),
    "a file that a text names": lambda project: write(project / "key", "b"),
    "no repository any more": lambda project: (project / ".git").rmdir(),
}


@pytest.mark.usefixtures("no_settling_time")
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_seen_at_the_next_look(home: Path, project: Path, name: str) -> None:
    write(project / "opencode.json", '{"username": "a"}')
    write(project / ".opencode" / "opencode.json", '{"shell": "{file:../key}"}')
    write(project / "key", "a")
    write(project / ".opencode" / "command" / "x.md", "x")
    (project / "sub").mkdir()
    reader = ConfigFiles(home, {})
    before = reader.load(str(project / "sub"))
    CHANGES[name](project)
    after = reader.load(str(project / "sub"))
    assert after.values != before.values


async def test_nothing_is_read_on_the_event_loop(home: Path, project: Path) -> None:
    reader = ConfigFiles(home, {})
    with pytest.raises(RuntimeError, match="in a thread"):
        reader.load(str(project))
    assert (await reader.fresh(str(project))).permission == {"bash": "deny"}
    assert reader.current(str(project)).permission == {"bash": "deny"}


def test_before_the_files_were_read_everything_is_asked(home: Path, project: Path) -> None:
    assert ConfigFiles(home, {}).current(str(project)).permission == "ask"


async def test_directories_in_use_are_kept_current_and_others_forgotten(
    home: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opencode_config, "REFRESH_S", 0.001)
    monkeypatch.setattr(opencode_config, "CACHED_DIRECTORIES", 1)
    reader = ConfigFiles(home, {})
    for directory in (home, project / ".git", project):
        await reader.fresh(str(directory))
    task = asyncio.create_task(reader.keep_current(lambda: {str(project)}))
    try:
        write(project / "opencode.json", '{"permission": {"edit": "deny"}}')
        async with asyncio.timeout(10):
            while reader.current(str(project)).permission != {"bash": "deny", "edit": "deny"}:
                await asyncio.sleep(0)
            while reader.current(str(home)).permission != "ask":
                await asyncio.sleep(0)
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_a_disk_that_hangs_leaves_what_was_read_last(home: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = ConfigFiles(home, {})
    await reader.fresh(str(project))
    never = asyncio.get_running_loop().create_future()

    async def hang(*_arguments: object) -> object:
        return await never

    monkeypatch.setattr(asyncio, "to_thread", hang)
    monkeypatch.setattr(opencode_config, "LOOK_LIMIT_S", 0.01)
    assert (await reader.fresh(str(project))).permission == {"bash": "deny"}
    never.set_result(reader.current(str(project)))


FAULTY = {
    "an extra comma": b'{"permission":{"bash":"deny"},,}',
    "an unknown action": b'{"permission":{"bash":"denied"}}',
    "false": b'{"permission":{"bash":false}}',
    "an unknown action of a pattern": b'{"permission":{"bash":{"*":"denny"}}}',
    "UTF-16": '{"permission":{"bash":"deny"}}'.encode("utf-16"),
    "another encoding in a pattern": '{"permission":{"bash":{"é *":"deny"}}}'.encode("latin-1"),
    "no object": b"[]",
    "a list of rules": b'{"permission":[]}',
    "agent is a text": b'{"agent":"build"}',
    "an unknown action of an agent": b'{"agent":{"build":{"permission":{"bash":"no"}}}}',
    "tools with a text": b'{"tools":{"bash":"no"}}',
}


@pytest.mark.parametrize("name", FAULTY)
@pytest.mark.parametrize("place", ["opencode.json", ".opencode/opencode.jsonc"])
def test_rules_that_cannot_be_read_are_noticed(tmp_path: Path, project: Path, name: str, place: str) -> None:
    (project / place).parent.mkdir(exist_ok=True)
    (project / place).write_bytes(FAULTY[name])
    config = ConfigFiles(tmp_path / "nobody", {}).load(str(project))
    assert config.has_unread_rules
    assert any(place in line for line in describe(config.problems))


FAULTY_HEADS = {
    "an unknown action": b"---\npermission:\n  bash: denied\n---\n",
    "a tool with a text": b"---\ntools:\n  bash: maybe\n---\n",
    "no YAML": b"---\npermission: {bash: deny\n---\n",
    "no end": b"---\npermission:\n  bash: deny\n",
    "a tag": b"---\npermission: !!python/name:os.system deny\n---\n",
    "an alias": b"---\nx: &a deny\npermission:\n  bash: *a\n---\n",
    "UTF-16": "---\npermission:\n  bash: deny\n---\n".encode("utf-16"),
    "a long head": b"---\nx: " + b"y" * 70_000 + b"\npermission: deny\n---\n",
}


@pytest.mark.parametrize("name", FAULTY_HEADS)
@pytest.mark.parametrize("place", [".opencode/agent/build.md", ".opencode/modes/plan.md"])
def test_an_agent_that_cannot_be_read_is_noticed(tmp_path: Path, project: Path, name: str, place: str) -> None:
    (project / place).parent.mkdir(parents=True)
    (project / place).write_bytes(FAULTY_HEADS[name])
    config = ConfigFiles(tmp_path / "nobody", {}).load(str(project))
    denies = any(rule.action == "deny" for rule in (*config.project_rules(), *config.project_rules("plan")))
    assert config.has_unread_rules or denies, name
    assert denies or any(place in line for line in describe(config.problems))


def test_a_link_in_the_place_of_a_rule_file_that_leads_nowhere_or_out_is_noticed(tmp_path: Path, project: Path) -> None:
    for target in (tmp_path / "nothing", Path("/etc/hostname")):
        (project / "opencode.json").unlink(missing_ok=True)
        (project / "opencode.json").symlink_to(target)
        assert ConfigFiles(tmp_path / "nobody", {}).load(str(project)).has_unread_rules, target


@pytest.mark.parametrize("target", ["out", "nothing"])
def test_a_link_in_the_place_of_a_folder_of_agents_that_leads_nowhere_or_out_is_noticed(
    tmp_path: Path, project: Path, target: str
) -> None:
    """OpenCode follows it: a `deny` in there counts."""
    write(tmp_path / "out" / "build.md", "---\npermission:\n  bash: deny\n---\n")
    (project / ".opencode").mkdir()
    (project / ".opencode" / "agent").symlink_to(tmp_path / target)
    config = ConfigFiles(tmp_path / "nobody", {}).load(str(project))
    assert config.has_unread_rules
    assert any(".opencode/agent" in line for line in describe(config.problems))


@pytest.mark.parametrize(
    "hidden", [".opencode/opencode.json", ".opencode/agent/build.md", "nobody/.config/opencode/opencode.json"]
)
def test_a_folder_that_must_not_be_read_is_noticed(
    tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch, hidden: str
) -> None:
    """Its rules are there, and this process has no right to see them. Tests may run as root, so the disk is asked for it."""
    path = str((tmp_path if hidden.startswith("nobody") else project) / hidden)
    folder, stat, scandir = os.path.dirname(path), os.stat, os.scandir
    write(Path(path), '{"permission":{"bash":"deny"}}')

    def refuse(name: str | Path, *, at: str) -> None:
        if str(name).startswith(at):
            raise PermissionError(13, "Permission denied", str(name))

    def guarded_stat(name: str | Path, **options: bool) -> os.stat_result:
        refuse(name, at=folder + "/")
        return stat(name, **options)

    def guarded_scandir(name: str | Path) -> AbstractContextManager[Iterator[os.DirEntry[str]]]:
        refuse(name, at=folder)
        return scandir(str(name))

    monkeypatch.setattr(config_reader.os, "stat", guarded_stat)
    monkeypatch.setattr(config_reader.os, "scandir", guarded_scandir)
    config = ConfigFiles(tmp_path / "nobody", {}).load(str(project))
    assert config.has_unread_rules
    assert any(line.startswith(folder + " ") for line in describe(config.problems))


def test_plan_has_its_own_rules_and_an_allow_of_build_counts_in_build_alone(tmp_path: Path, project: Path) -> None:
    agents = {"plan": {"permission": {"bash": "deny"}}, "build": {"permission": {"edit": "allow", "read": "deny"}}}
    write(project / "opencode.json", json.dumps({"agent": agents}))
    config = ConfigFiles(tmp_path / "nobody", {}).load(str(project))
    table = {
        mode: [decide(key, ("x",), config.project_rules(mode)) for key in ("bash", "edit", "read")]
        for mode in ("", "build", "accept-edits", "bypass", "plan")
    }
    assert table == {
        "": [None, "allow", "deny"],
        "build": [None, "allow", "deny"],
        "accept-edits": [None, None, "deny"],
        "bypass": [None, None, "deny"],
        "plan": ["deny", None, None],
    }


def test_a_folder_in_the_place_of_a_rule_file_is_noticed(tmp_path: Path, project: Path) -> None:
    (project / "opencode.json").mkdir()
    assert ConfigFiles(tmp_path / "nobody", {}).load(str(project)).has_unread_rules


@pytest.mark.parametrize(
    "text", ["", "{}", '\ufeff{"permission":{"bash":"deny"}} // why', '{"permission":{"bash":null}}', '{"agent":{"x":null}}']
)
def test_rules_that_can_be_read_are_not_faulty(tmp_path: Path, project: Path, text: str) -> None:
    write(project / "opencode.json", text)
    assert not ConfigFiles(tmp_path / "nobody", {}).load(str(project)).has_unread_rules


@pytest.mark.parametrize(
    "values",
    [
        {"permission": {"bash": "deny"}},
        {"tools": {"bash": False}},
        {"agent": {"build": {"permission": {"bash": "deny"}}}},
        {"agent": {"build": {"tools": {"bash": False}}}},
        {"mode": {"build": {"permission": {"bash": "deny"}}}},
        {"mode": {"build": {"tools": {"bash": False}}}},
        {"permission": {"bash": "allow"}, "agent": {"build": {"permission": {"bash": "deny"}}}},
        {"permissions": [{"action": "shell", "resource": "*", "effect": "deny"}]},
        {
            "permissions": [
                {"action": "*", "resource": "*", "effect": "deny"},
                {"action": "read", "resource": "*", "effect": "allow"},
            ]
        },
        {"permissions": [{"action": "shell", "resource": "*", "effect": "deny"}], "permission": {"bash": "allow"}},
        {"agents": {"build": {"permissions": [{"action": "shell", "resource": "*", "effect": "deny"}]}}},
        {"agent": {"build": {"permissions": [{"action": "bash", "resource": "l*", "effect": "deny"}]}}},
    ],
)
def test_each_form_of_a_denial_counts(tmp_path: Path, project: Path, values: dict[str, object]) -> None:
    write(project / "opencode.json", json.dumps(values))
    rules = ConfigFiles(tmp_path / "nobody", {}).load(str(project)).project_rules()
    assert decide("bash", ("ls",), rules) == "deny"


def rows(*texts: str) -> list[dict[str, str]]:
    return [dict(zip(("action", "resource", "effect"), line.split(), strict=True)) for line in texts]


def test_the_order_of_opencode_2s_rules_counts_over_all_sources(tmp_path: Path, project: Path) -> None:
    """The form of OpenCode's present documentation: a list, in which the last match decides."""
    write(project / "opencode.json", json.dumps({"permissions": rows("shell * ask", "shell ls allow", "* secret deny")}))
    write(project / ".opencode" / "opencode.json", json.dumps({"permissions": rows("shell secret allow", "subagent x deny")}))
    head = "permissions:\n  - action: edit\n    resource: 'a*'\n    effect: deny\n"
    write(project / ".opencode" / "agents" / "careful.md", f"---\n{head}---\nBe careful.\n")
    config = ConfigFiles(tmp_path / "nobody", {}).load(str(project))
    rules, careful = config.project_rules(), config.project_rules("careful")
    assert not config.has_unread_rules
    assert [decide("bash", (line,), rules) for line in ("rm", "ls", "secret")] == ["ask", "allow", "allow"]
    assert (decide("read", ("secret",), rules), decide("task", ("x",), rules)) == ("deny", "deny")
    assert (decide("edit", ("a",), careful), decide("edit", ("a",), rules)) == ("deny", None)


@pytest.mark.parametrize("older", ["allow", "deny", "ask"])
@pytest.mark.parametrize("newer", ["allow", "deny", "ask"])
def test_the_stricter_of_both_forms_of_a_rule_counts(tmp_path: Path, project: Path, older: str, newer: str) -> None:
    values = {"permission": {"bash": older}, "permissions": rows(f"shell * {newer}")}
    write(project / "opencode.json", json.dumps(values))
    rules = ConfigFiles(tmp_path / "nobody", {}).load(str(project)).project_rules()
    assert decide("bash", ("ls",), rules) == max(older, newer, key=("allow", "ask", "deny").index)


@pytest.mark.parametrize(
    "value",
    ["deny", {"shell": "deny"}, ["x"], [{"action": "shell", "effect": "deny"}], rows("shell * denied"), [{"shell": "deny"}]],
)
def test_rules_of_opencode_2_that_cannot_be_understood_are_noticed(tmp_path: Path, project: Path, value: object) -> None:
    for values in ({"permissions": value}, {"agents": {"x": {"permissions": value}}}):
        write(project / "opencode.json", json.dumps(values))
        config = ConfigFiles(tmp_path / "nobody", {}).load(str(project))
        assert config.has_unread_rules
        assert any("`permissions`" in problem.message for problem in config.problems)


def test_permission_comes_after_tools(tmp_path: Path, project: Path) -> None:
    write(project / "opencode.json", '{"permission": {"bash": "ask"}, "tools": {"bash": false, "write": false}}')
    rules = ConfigFiles(tmp_path / "nobody", {}).load(str(project)).project_rules()
    assert (decide("bash", ("ls",), rules), decide("edit", ("x",), rules)) == ("ask", "deny")


def test_a_change_keeps_the_ends_of_lines_and_the_mark_at_the_start(project: Path) -> None:
    file = project / "opencode.json"
    file.write_bytes(b'\xef\xbb\xbf{\r\n  // mine\r\n  "model": "a/b"\r\n}\r\n')
    ConfigFiles(project.parent / "nobody", {}).update(str(project), {"username": "x"})
    raw = file.read_bytes()
    assert raw.startswith(b"\xef\xbb\xbf{\r\n  // mine\r\n")
    assert raw.count(b"\n") == raw.count(b"\r\n")
    assert b'"username": "x"' in raw
