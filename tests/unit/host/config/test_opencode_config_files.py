"""Which configuration files count, what in them, and command files; by themselves, without a server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shim.host.config import markdown
from shim.host.config.opencode_config import FILE_LIMIT_BYTES, ConfigFiles, describe
from universal.slash_commands import ConfigCommand


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project" / ".git").mkdir(parents=True)
    (tmp_path / "project" / "src" / "deep").mkdir(parents=True)
    return tmp_path / "project"


def test_order(tmp_path: Path, home: Path, project: Path) -> None:
    """Each file sets its own key and one that all set; the last that counts wins."""
    person = home / ".config" / "opencode"
    files = [
        person / "config.json",
        person / "opencode.json",
        person / "opencode.jsonc",
        tmp_path / "chosen.json",
        project / "opencode.json",
        project / "opencode.jsonc",
        project / "src" / "opencode.json",
        project / "src" / ".opencode" / "opencode.jsonc",
        project / ".opencode" / "opencode.json",
    ]
    reader = ConfigFiles(home, {"OPENCODE_CONFIG": str(tmp_path / "chosen.json")})
    for number, file in enumerate(files):
        write(file, f'{{"username": "{number}", "tools": {{"t{number}": true}}, "instructions": ["{number}"]}}')
        config = reader.load(str(project / "src" / "deep"))
        assert config.values["username"] == str(number), file
        assert config.values["tools"] == {f"t{seen}": True for seen in range(number + 1)}
        assert config.values["instructions"] == [str(seen) for seen in range(number + 1)]
    last = ConfigFiles(home, {"OPENCODE_CONFIG_CONTENT": '{"username": "content"}'})
    assert last.load(str(project)).values["username"] == "content"


def test_not_above_the_repository(tmp_path: Path, home: Path, project: Path) -> None:
    write(tmp_path / "opencode.json", '{"username": "stranger"}')
    (tmp_path / "plain").mkdir()
    for directory in (project, tmp_path / "plain", tmp_path / "missing"):
        assert ConfigFiles(home, {"USER": "me"}).load(str(directory)).values["username"] == "me"


def test_xdg(tmp_path: Path, home: Path) -> None:
    write(tmp_path / "xdg" / "opencode" / "opencode.json", '{"username": "x"}')
    assert ConfigFiles(home, {"XDG_CONFIG_HOME": str(tmp_path / "xdg")}).load_global().values["username"] == "x"
    assert ConfigFiles(home, {"XDG_CONFIG_HOME": "relative"}).folder == home / ".config" / "opencode"


def test_placeholders(home: Path, project: Path) -> None:
    write(project / "key.txt", " secret\n")
    write(project / "opencode.json", '{"username": "{env:A}-{env:NONE}", "instructions": ["{file:key.txt}", "{file:no}"]}')
    config = ConfigFiles(home, {"A": "a"}).load(str(project))
    assert (config.values["username"], config.values["instructions"]) == ("a-", ["secret", ""])
    assert [problem.message for problem in config.problems] == ["{file:no} cannot be read"]


@pytest.mark.parametrize("name", ["OPENCODE_SERVER_PASSWORD", "OPENCODE_PASSWORD", "SHIM_PASSWORD"])
def test_no_placeholder_is_this_servers_password(home: Path, project: Path, name: str) -> None:
    """A repository could have a command of its own tell it to the agent."""
    write(project / "opencode.json", json.dumps({"command": {"x": {"template": f"say {{env:{name}}}"}}}))
    assert ConfigFiles(home, {name: "hunter2"}).load(str(project)).values["command"]["x"]["template"] == "say "


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "is no JSON: line 1, column 2: expected a string, the file ends"),
        ("[]", "must hold an object"),
        ('{"share": "often"}', 'line 1: Expected "manual" | "auto" | "disabled", got "often"  at ["share"]'),
        ('{"command": {"x": {}}}', 'line 1: Missing key  at ["command"]["x"]["template"]'),
        (
            '{\n  // mine\n  "permission": {\n    "bash": {\n      "rm *": "denied"\n    }\n  }\n}',
            'line 5: Expected "ask" | "allow" | "deny", got "denied"  at ["permission"]["bash"]["rm *"]',
        ),
        (" " * (FILE_LIMIT_BYTES + 1), f"is larger than {FILE_LIMIT_BYTES} bytes"),
    ],
)
def test_problems(home: Path, project: Path, text: str, problem: str) -> None:
    write(project / "opencode.json", text)
    config = ConfigFiles(home, {}).load(str(project))
    assert list(describe(config.problems)) == [f"{project}/opencode.json {problem}"]
    assert config.values["command"] == {}


def test_nulls_and_nothing(home: Path, project: Path) -> None:
    write(project / "opencode.json", '{"model": null}')
    write(project / "opencode.jsonc", "")
    config = ConfigFiles(home, {}).load(str(project))
    assert (config.model, config.permission, config.default_agent, config.problems) == (None, None, None, ())


def test_permission_keeps_its_order(home: Path, project: Path) -> None:
    """The last rule that matches decides, so the order is the person's."""
    write(project / "opencode.json", '{"permission": {"edit": "deny", "bash": {"*": "ask", "git *": "allow"}, "a": "allow"}}')
    permission = ConfigFiles(home, {}).load(str(project)).permission
    assert (list(permission), list(permission["bash"])) == (["edit", "bash", "a"], ["*", "git *"])


def test_commands(home: Path, project: Path) -> None:
    write(project / "opencode.json", '{"command": {"hey": {"template": "say $1", "model": "claude/opus"}}}')
    write(home / ".config" / "opencode" / "commands" / "mine.md", "  do it  \n")
    write(
        project / ".opencode" / "command" / "git" / "log.md", "---\nagent: plan\nsubtask: true\ndescription: 'Logs'\n---\nlog\n"
    )
    write(project / "src" / ".opencode" / "command" / "mine.md", "nearer")
    write(project / ".opencode" / "command" / "notes.txt", "no command")
    assert ConfigFiles(home, {}).load(str(project / "src")).commands == (
        ConfigCommand("hey", "say $1", model="claude/opus"),
        ConfigCommand("mine", "nearer"),
        ConfigCommand("git/log", "log", "Logs", "plan", None, subtask=True),
    )


@pytest.mark.parametrize(
    ("text", "head", "body"),
    [
        ("just text\n", {}, "just text"),
        ("---\na: 1\nb: true\nc: 'x: y'\n---\nbody\n---\nmore\n", {"a": "1", "b": True, "c": "x: y"}, "body\n---\nmore"),
        ("---\r\na: 1\r\n---\r\nbody", {"a": "1"}, "body"),
        ("---\na: |\n  one\n  two\nb: >-\n  one\n  two\n---\n", {"a": "one\ntwo", "b": "one two"}, ""),
        ("---\ntools:\n  bash: false\nempty:\n# comment\n---\nx", {}, "x"),
        ("---\n---\nx", {}, "x"),
        ("--- no head", {}, "--- no head"),
        ("---\na: 1\n", {}, "---\na: 1"),
    ],
)
def test_markdown(text: str, head: dict[str, Any], body: str) -> None:
    assert markdown.parse(text) == markdown.Document(head, body)


def test_writing_keeps_mode_and_link(home: Path, project: Path) -> None:
    real = project / "real.json"
    write(real, "{}")
    real.chmod(0o600)
    (project / "opencode.json").symlink_to(real)
    ConfigFiles(home, {}).update(str(project), {"username": "x"})
    assert (project / "opencode.json").is_symlink()
    assert (real.stat().st_mode & 0o777, "x" in real.read_text()) == (0o600, True)
    assert sorted(path.name for path in project.iterdir()) == [".git", "opencode.json", "real.json", "src"]


def test_the_file_that_wins_is_written(home: Path, project: Path) -> None:
    write(project / "opencode.json", '{"username": "a"}')
    write(project / ".opencode" / "opencode.json", '{"username": "b"}')
    reader = ConfigFiles(home, {})
    assert reader.update(str(project), {"username": "c"}) == project / ".opencode" / "opencode.json"
    assert reader.load(str(project)).values["username"] == "c"


@pytest.mark.parametrize("variable", ["OPENCODE_DISABLE_PROJECT_CONFIG", "OPENCODE_CONFIG_PROJECT_DISABLE"])
def test_a_variable_leaves_out_the_files_of_projects(home: Path, project: Path, variable: str) -> None:
    write(home / ".config" / "opencode" / "opencode.json", '{"username": "person"}')
    write(project / "opencode.json", '{"username": "project"}')
    write(project / ".opencode" / "command" / "run.md", "Run it.")
    values = ConfigFiles(home, {variable: "1"}).load(str(project)).values
    assert (values["username"], values["command"]) == ("person", {})
    assert ConfigFiles(home, {variable: "0"}).load(str(project)).values["username"] == "project"


def test_a_wrong_value_of_an_agents_head_is_reported_with_its_line(home: Path, project: Path) -> None:
    write(project / ".opencode/agent/build.md", "---\ndescription: mine\npermission:\n  edit: allow\n  bash: denied\n---\nhi")
    (problem,) = describe(ConfigFiles(home, {}).load(str(project)).problems)
    assert problem.startswith(f"{project}/.opencode/agent/build.md line 5: Expected"), problem
