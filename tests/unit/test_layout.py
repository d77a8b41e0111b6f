"""The walls that import-linter cannot see, and habits that nobody should have to watch for. See `[tool.importlinter]`.

Each rule is a function from a file to its offences, and is tried on a bad example too: a rule that finds nothing
because it looks at nothing would pass for ever.
"""

from __future__ import annotations

import ast
import lzma
import re
import subprocess
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, lru_cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path, PurePosixPath

import pytest

from shim.dev.record.packs import PACK
from tools.recording_packs import recordings

REPO = Path(__file__).resolve().parents[2]
PACKAGES = ("universal", "shim")
MAX_LINES = 700
MAX_METHODS, MAX_ATTRIBUTES = 40, 25
"""Of a class in `shim`: one that needs more owns more than one thing."""

MAX_EXAMPLES = 30
"""Of a law that draws as many in each run. Others say nothing, or a share of `LAW_EXAMPLES` of `tests/conftest.py`."""

RECORD_DRIVER = "shim/dev/record/driver.py"
"""Writes scenes for all agents."""

PROCESS_OWNERS = ("shim/processes/child_process.py", "shim/processes/process_family.py", "shim/processes/", "shim/host/")
"""Only these end processes."""
STARTER = "shim/processes/child_process.py"
"""Only this one starts programs: all of them get their environment from `child_environment`."""
SANDBOX_STARTS = ("shim/processes/sandbox_start.py", "shim/processes/landlock_start.py")
"""The first program of a sandbox, which becomes the agent."""
GIT = "shim/host/git/git_command.py"
"""Only this one runs git."""
RUNNERS = ("run", "which", "start", "connect", "foreground", "ask", "ShellCommand")
ENVIRONMENTS = "shim/processes/child_environment.py"
"""Only this one makes an environment for them."""

START_CALLS = re.compile(
    r"create_subprocess_\w+|subprocess_(exec|shell)|(os|pty)\.(fork\w*|exec[lv]\w*|spawn\w*|posix_spawn\w*|system|popen|startfile)"
    r"|\w*\.?Popen|ProcessPoolExecutor"
)
START_IMPORTS = re.compile(
    r"(subprocess|multiprocessing|webbrowser|pexpect|sh|plumbum)(\.\w+)*|concurrent\.futures\.ProcessPoolExecutor"
    r"|asyncio\.create_subprocess_\w+|(os|pty)\.(fork\w*|exec[lv]\w*|spawn\w*|posix_spawn\w*|system|popen|startfile)"
)

MACHINE_PATHS = re.compile(
    "|".join([r"\.\./" + "shared", "/wo" + "rk/", "/ro" + "ot/(?!look_around)", "/tmp/" + r"(?!e2e-)[a-z]+[/-]"])
)
"""Paths of one machine. Cut in two here, so that this file does not offend itself. `look_around` is a logical path of Codex."""

TEXT_ENDINGS = {".py", ".toml", ".md", ".json", ".jsonl", ".mjs", ".yml", ".yaml", ".sh", ".sql", ".txt", ""}


def git_files() -> list[str]:
    """All files of the repository, by git; new ones that are not ignored too."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=REPO, check=True, capture_output=True, text=True
    )
    return [name for name in listing.stdout.splitlines() if (REPO / name).is_file()]


FILES = git_files()
MAX_FIXTURE_BYTES, MAX_FIXTURES = 7_000_000, 290
"""Of `compat_fixtures`. Like the next one it may only shrink: who takes some away lowers it."""
MAX_CHARACTERS = 14_000_000
"""Of all texts of the repository, so that tools can read all of it."""
OURS = [name for name in FILES if name.endswith(".py") and name.startswith(tuple(f"{package}/" for package in PACKAGES))]
TESTS = [name for name in FILES if name.endswith(".py") and name.startswith("tests/")]


SOURCES = frozenset(name for name in FILES if name.startswith(("shim/", "universal/", "tools/")))
OF_NO_MODULE = frozenset(
    f"test_{subject}.py"
    for subject in (
        "ci", "documents", "groups", "image_files", "layout", "load_page", "permission_matrix", "security_doc",
        "sentences", "time_bounds", "workflows",
    )
)  # fmt: skip
"""Tests of the repository as a whole, of its documents, and of tools of the tests."""


PACKED = [name for name in FILES if name.endswith(f"/{PACK}")]
"""Recordings."""


def read(name: str) -> str:
    raw = (REPO / name).read_bytes()
    return (lzma.decompress(raw) if name.endswith(".xz") else raw).decode()


@lru_cache(maxsize=1)
def tree_of(text: str) -> ast.Module:
    """The syntax of a file. Rules look at one file after the other, so the last one is kept."""
    return ast.parse(text)


@lru_cache(maxsize=1)
def nodes_of(text: str) -> list[ast.AST]:
    """All nodes of its syntax."""
    nodes: list[ast.AST] = [tree_of(text)]
    for node in nodes:  # grows; `ast.walk` takes three times as long
        for value in vars(node).values():
            nodes += [inner for inner in (value if isinstance(value, list) else [value]) if isinstance(inner, ast.AST)]
    return nodes


@cache
def imports(text: str) -> frozenset[str]:
    """Names of all modules that are imported anywhere in a file, `from a import b` as `a.b`."""
    names: set[str] = set()
    for node in nodes_of(text):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return frozenset(names)


def imports_for_types(text: str) -> frozenset[str]:
    """Those of `imports` that stand under `if TYPE_CHECKING`."""
    blocks = [node for node in tree_of(text).body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    return imports("\n".join(ast.unparse(statement) for block in blocks for statement in block.body))


def attributes(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """All `name.attribute` in a file."""
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield f"{node.value.id}.{node.attr}"


# --- rules: (name, text) -> offences ---------------------------------------------------------------------


def too_long(name: str, text: str) -> list[str]:
    """A line `# over 700 lines: REASON` lets a module pass."""
    lines = text.count("\n")
    if lines <= MAX_LINES or re.search(rf"^# over {MAX_LINES} lines: \S+", text, re.M):
        return []
    return [f"{lines} lines, {MAX_LINES} are allowed"]


def is_too_large(name: str, text: str) -> list[str]:
    """Classes that own too many things. Attributes are those that `__init__` sets."""
    found: list[str] = []
    for node in (node for node in nodes_of(text) if isinstance(node, ast.ClassDef)):
        methods = [inner for inner in node.body if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef)]
        made = (statement for method in methods if method.name == "__init__" for statement in ast.walk(method))
        stores = (part for part in made if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store))
        names = {ast.unparse(part) for part in stores}
        if len(methods) >= MAX_METHODS or len(names) >= MAX_ATTRIBUTES:
            found.append(f"{node.name}: {len(methods)} methods, {len(names)} attributes")
    return found


def starts_processes(name: str, text: str) -> list[str]:
    if name in (STARTER, *SANDBOX_STARTS):
        return []
    nodes = nodes_of(text)
    whole = {used for used in attributes(nodes) if START_CALLS.fullmatch(used)}
    methods = {node.attr for node in nodes if isinstance(node, ast.Attribute) and START_CALLS.fullmatch(node.attr)}
    return sorted(whole | methods | {used for used in imports(text) if START_IMPORTS.fullmatch(used)})


def runs_git(name: str, text: str) -> list[str]:
    """A command line that begins with git, or git looked for on PATH."""
    if name == GIT or "git" not in text:
        return []
    nodes = nodes_of(text)
    in_types = {id(inner) for node in nodes if isinstance(node, ast.Subscript) for inner in ast.walk(node.slice)}
    found: list[str] = []
    for node in nodes:
        if isinstance(node, ast.List | ast.Tuple) and id(node) not in in_types:
            words: list[ast.expr] = node.elts
            form = r"(\S*/)?git"
        elif isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in RUNNERS:
            words = node.args
            form = r"(\S*/)?git( .*)?"
        else:
            continue
        first = words[0] if words else None
        if isinstance(first, ast.Constant) and isinstance(first.value, str) and re.fullmatch(form, first.value):
            found.append(ast.unparse(node)[:80])
    return found


def ends_processes(name: str, text: str) -> list[str]:
    return (
        []
        if name.startswith(PROCESS_OWNERS) or "killpg" not in text
        else [used for used in attributes(nodes_of(text)) if used == "os.killpg"]
    )


def makes_environments(name: str, text: str) -> list[str]:
    """`ChildEnvironment` is called, or an environment is cast to it. pyright sees to it that nothing else is handed over."""
    if name == ENVIRONMENTS or "ChildEnv" not in text:
        return []
    calls = [node for node in nodes_of(text) if isinstance(node, ast.Call)]
    return [
        ast.unparse(call) for call in calls if re.match(r"(environment\.)?ChildEnvironment\(|cast\(.?ChildEnv", ast.unparse(call))
    ]


def missing_docstrings(name: str, text: str) -> list[str]:
    """Modules need a docstring, and so do public classes and functions at their top."""
    tree = tree_of(text)
    nodes: list[ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef] = [tree] if tree.body else []
    nodes += [
        node
        for node in tree.body
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_")
    ]
    return [getattr(node, "name", "the module") for node in nodes if ast.get_docstring(node) is None]


def sleeps(name: str, text: str) -> list[str]:
    """Waiting by time. `sleep(0)` only yields, and a loop under `asyncio.timeout` polls what gives no event: the end of
    somebody else's process. Stand-ins for agents, clients in other processes, and the benchmark, which measures in real
    time, may delay and poll."""
    if name.startswith(("tests/e2e/", "tests/fakes/", "tests/bench/")) or "sleep" not in text:
        return []
    polling = {
        id(inner)
        for outer in nodes_of(text)
        if isinstance(outer, ast.AsyncWith) and "asyncio.timeout(" in ast.unparse(outer.items[0])
        for loop in ast.walk(outer)
        if isinstance(loop, ast.While)
        for inner in ast.walk(loop)
    }
    return [
        f"line {node.lineno}"
        for node in nodes_of(text)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("time.sleep", "asyncio.sleep", "sleep")
        and id(node) not in polling
        and not (len(node.args) == 1 and isinstance(node.args[0], ast.Constant) and node.args[0].value == 0)
    ]


def names_a_machine(name: str, text: str) -> list[str]:
    return [f"line {number}: {line[:120]}" for number, line in enumerate(text.splitlines(), 1) if MACHINE_PATHS.search(line)]


def silent_switch_off(name: str, text: str) -> list[str]:
    """Lint and type checks that are switched off without saying why."""
    return [
        f"line {number}: {line.strip()[:120]}"
        for number, line in enumerate(text.splitlines(), 1)
        if re.search(r"#\s*(noqa|type: ignore|pyright: ignore)[^-]*$", line)
    ]


def without_subject(name: str, text: str) -> list[str]:
    """The test of `shim/x/y.py` is `tests/unit/x/test_y.py`, or `test_y_ASPECT.py` where it has several."""
    path = PurePosixPath(name).relative_to("tests/unit")
    words = path.stem.removeprefix("test_").split("_")
    subjects = ["_".join(words[:count]) for count in range(1, len(words) + 1)]
    places = [f"{package}/{path.parent / subject}" for package in (*PACKAGES, "tools") for subject in subjects]
    found = any(f"{place}.py" in SOURCES or f"{place}/__init__.py" in SOURCES for place in places)
    return [] if found or str(path) in OF_NO_MODULE else [f"no module of this name in {path.parent} of shim, universal or tools"]


ODD = re.compile(r"^\s*(except (Exception|BaseException)\b.*:|await asyncio\.sleep\(0\))$")


def odd_without_reason(_name: str, text: str) -> list[str]:
    """Lines that catch everything, or give the loop a turn, with no comment on them, before them or after them."""
    lines = ["", *text.splitlines(), ""]
    return [
        f"{at}: {line.strip()}"
        for at, line in enumerate(lines)
        if ODD.match(line) and not any(near.strip().startswith("#") for near in (lines[at - 1], lines[at + 1]))
    ]


def draws_as_many_each_time(_name: str, text: str) -> list[str]:
    """Laws with a number of examples of their own: `make test` would draw as many as `make laws`, and no run more."""
    return [f"{number} examples" for number in re.findall(r"max_examples=(\d+)", text) if int(number) > MAX_EXAMPLES]


OF_A_CLUSTER = frozenset({"cluster", "peers", "placement", "relay", "remotes", "replays"})
"""Names of what the core has always, in a form for a server alone or for a cluster."""


def loses_cancellations(_: str, text: str) -> list[str]:
    """Uses of `asyncio.wait_for`: Python 3.11 loses a cancellation that comes at the moment in which what it awaits is over."""
    return [
        ast.unparse(node)
        for node in nodes_of(text)
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "asyncio.wait_for"
    ]


def asks_for_a_cluster(name: str, text: str) -> list[str]:
    """Questions whether there is a cluster. `Settings.has_cluster` alone asks it; all else has an interface."""
    if name.startswith("shim/cluster/"):
        return []
    found: list[str] = []
    for node in nodes_of(text):
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Is | ast.IsNot):
            left = node.left.value if isinstance(node.left, ast.NamedExpr) else node.left
            if ast.unparse(left).rpartition(".")[2] in OF_A_CLUSTER and ast.unparse(left) != "self.cluster":
                found.append(ast.unparse(node))
    return found


Rule = Callable[[str, str], list[str]]


def characters(name: str) -> int:
    """Characters of a text; 0 for what is none."""
    try:
        return len((REPO / name).read_bytes().decode())
    except UnicodeDecodeError:
        return 0


RULES: dict[str, tuple[Rule, Iterable[str]]] = {
    "no module over 700 lines": (too_long, [*OURS, *TESTS]),
    "a class of shim owns one thing": (is_too_large, [n for n in OURS if n.startswith("shim/") and n != RECORD_DRIVER]),
    "programs are started by shim.processes.child_process only": (starts_processes, OURS),
    "git is run by shim.host.git.git_command only": (runs_git, OURS),
    "processes are ended by few modules": (ends_processes, OURS),
    "environments of programs are made by child_environment only": (makes_environments, OURS),
    "what is public says what it is": (missing_docstrings, OURS),
    "tests do not wait by sleeping": (sleeps, TESTS),
    "nothing names a path of one machine": (
        names_a_machine,
        [*(name for name in FILES if Path(name).suffix in TEXT_ENDINGS and name != "uv.lock"), *PACKED],
    ),
    "checks are switched off with a reason": (silent_switch_off, OURS),
    "examples are as many as the run is long": (draws_as_many_each_time, TESTS),
    "what catches everything or gives the loop a turn says why": (odd_without_reason, OURS),
    "nobody asks whether there is a cluster": (asks_for_a_cluster, OURS),
    "a wait with a limit is an asyncio.timeout": (loses_cancellations, OURS),
    "tests mirror the modules": (
        without_subject,
        [name for name in TESTS if re.fullmatch(r"tests/unit/(.+/)?test_\w+\.py", name)],
    ),
}

POLL = """
async def until_gone(pid):
    async with asyncio.timeout(5):
        while alive(pid):
            await asyncio.sleep(0.02)
"""

BAD: dict[str, tuple[str, str]] = {
    "no module over 700 lines": ("shim/x.py", "\n" * 701),
    "a class of shim owns one thing": (
        "shim/x.py",
        "class A:\n def __init__(self):\n" + "".join(f"  self.a{n} = 1\n" for n in range(25)),
    ),
    "programs are started by shim.processes.child_process only": (
        "shim/processes/agent_pipes.py",
        "loop.subprocess_exec(p, 'a')",
    ),
    "git is run by shim.host.git.git_command only": ("shim/host/x.py", "await run(['git', 'status'], '.')"),
    "processes are ended by few modules": ("shim/sessions/x.py", "os.killpg(1, 9)"),
    "environments of programs are made by child_environment only": ("shim/host/x.py", "ChildEnvironment(dict(os.environ))"),
    "what is public says what it is": ("shim/x.py", "'''Module.'''\ndef public(): ...\ndef _private(): ..."),
    "tests do not wait by sleeping": ("tests/unit/x.py", "import time\ntime.sleep(0.1)"),
    "nothing names a path of one machine": ("docs/x.md", "see /wo" + "rk/notes.md"),
    "examples are as many as the run is long": ("tests/unit/x.py", "@settings(max_examples" + "=300)"),
    "checks are switched off with a reason": ("shim/x.py", "x = 1  # noqa" + ": E501"),
    "what catches everything or gives the loop a turn says why": ("shim/x.py", "try:\n    f()\nexcept Exception:\n    pass\n"),
    "nobody asks whether there is a cluster": ("shim/x.py", "if (peers := store.ownership.peers) is not None:\n    pass"),
    "a wait with a limit is an asyncio.timeout": ("shim/x.py", "await asyncio.wait_for(event.wait(), 1)"),
    "tests mirror the modules": ("tests/unit/store/test_cupboard.py", ""),
}


@lru_cache(maxsize=1)
def offences() -> dict[str, dict[str, list[str]]]:
    """Rule -> file -> what offends. All rules look at a file before the next one is read and parsed."""
    rules_of: dict[str, list[str]] = {}
    for rule, (_, names) in RULES.items():
        for name in names:
            rules_of.setdefault(name, []).append(rule)
    found: dict[str, dict[str, list[str]]] = {rule: {} for rule in RULES}
    for name, rules in rules_of.items():
        text = read(name)
        for rule in rules:
            if offending := RULES[rule][0](name, text):
                found[rule][name] = offending
    return found


@pytest.mark.parametrize("rule", RULES)
def test_rule(rule: str) -> None:
    assert not offences()[rule], rule


@pytest.mark.parametrize("rule", RULES)
def test_the_rule_bites(rule: str) -> None:
    check, names = RULES[rule]
    assert list(names), "it looks at no file"
    assert len(check(*BAD[rule])) == 1


@pytest.mark.parametrize(
    ("rule", "name", "text"),
    [
        (starts_processes, "shim/processes/child_process.py", "import asyncio\nasyncio.create_subprocess_exec('a')"),
        (
            starts_processes,
            "shim/host/terminals/terminal_manager.py",
            "import pty\nfrom asyncio.subprocess import PIPE\npty.openpty()",
        ),
        (runs_git, "shim/x.py", "mode: Literal['git', 'branch']\nIdentity(top, 'git')\nawait git('.', 'status')"),
        (too_long, "shim/x.py", "# over 700 lines: a table\n" + "\n" * 701),
        (sleeps, "tests/unit/x.py", "import asyncio\nasyncio.sleep(0)"),
        (sleeps, "tests/unit/x.py", POLL),
        (silent_switch_off, "shim/x.py", "x = 1  # noqa: E501 - a table"),
        (without_subject, "tests/unit/store/test_sqlite_formats.py", ""),
        (without_subject, "tests/unit/test_ci.py", ""),
    ],
)
def test_the_rule_lets_pass(rule: Rule, name: str, text: str) -> None:
    assert rule(name, text) == []


@pytest.mark.parametrize(
    "text",
    [
        "import subprocess",
        "from subprocess import run",
        "import asyncio\nasyncio.create_subprocess_shell('a')",
        "from asyncio import create_subprocess_exec",
        "loop.subprocess_shell(p, 'a')",
        "asyncio.get_running_loop().subprocess_exec(p, 'a')",
        "import os\nos.execvpe('a', [], {})",
        "from os import posix_spawn",
        "os.posix_spawnp('a', [], {})",
        "os.spawnlp(0, 'a', 'a')",
        "os.fork()",
        "os.forkpty()",
        "os.system('a')",
        "os.popen('a')",
        "pty.fork()",
        "pty.spawn('a')",
        "import multiprocessing.pool",
        "from concurrent.futures import ProcessPoolExecutor",
        "import webbrowser",
    ],
)
def test_every_way_to_start_a_program_is_seen(text: str) -> None:
    assert starts_processes("shim/processes/agent_pipes.py", text) != []


@pytest.mark.parametrize(
    "text",
    ["GIT = ('git', '--no-pager')", "which('git')", "child_process.ask(['git'])", "x.ShellCommand('git log', '.')"],
)
def test_every_way_to_run_git_is_seen(text: str) -> None:
    assert runs_git("shim/sessions/x.py", text) != []


def module_of(name: str) -> str:
    """The module of a file: `shim/http/__init__.py` is `shim.http`."""
    return name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def room_of(module: str) -> str:
    """`shim.sessions` of `shim.sessions.prompts.cap`."""
    return ".".join(module.split(".")[:2])


def import_circle(texts: Mapping[str, str]) -> list[str]:
    """The modules of a circle of imports, or nothing. In: file -> text.

    Imports for type checkers and imports within functions count too: who reads one module of a circle must read all of them.
    Only within one room (`shim.sessions`) may parts name the type of their whole for the type checker.
    """
    modules = {module_of(name): text for name, text in texts.items()}
    graph: dict[str, set[str]] = {}
    for module, text in modules.items():
        names = imports(text) - {name for name in imports_for_types(text) if room_of(name) == room_of(module)}
        graph[module] = {name if name in modules else name.rpartition(".")[0] for name in names}.intersection(modules) - {module}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def test_no_module_imports_itself_through_others() -> None:
    assert import_circle({name: read(name) for name in OURS}) == []


@pytest.mark.parametrize(
    "back",
    [
        "from shim.a import Name",
        "import shim.a",
        "from shim import a",
        "if TYPE_CHECKING:\n    from shim.a import Name",
        "def late():\n    from shim.a import name",
    ],
)
def test_a_circle_of_imports_is_found(back: str) -> None:
    texts = {"shim/a.py": "from shim.b import Name", "shim/b/__init__.py": "import shim.c", "shim/c.py": back}
    assert set(import_circle(texts)) == {"shim.a", "shim.b", "shim.c"}
    assert import_circle({**texts, "shim/c.py": "import asyncio"}) == []


def test_a_part_may_name_the_type_of_its_whole_within_one_room() -> None:
    whole, part = "from shim.a.x.part import Part", "from shim.a.whole import Whole"
    assert import_circle({"shim/a/whole.py": whole, "shim/a/x/part.py": f"if TYPE_CHECKING:\n    {part}"}) == []
    assert set(import_circle({"shim/a/whole.py": whole, "shim/a/x/part.py": part})) == {"shim.a.whole", "shim.a.x.part"}


def test_each_agent_is_named_in_the_contract_of_independence() -> None:
    contracts = tomllib.loads((REPO / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    modules = next(contract["modules"] for contract in contracts if contract["name"].startswith("An agent knows no other agent"))
    rooms = {path.parent.name for path in (REPO / "universal" / "agents").glob("*/__init__.py")}
    assert set(modules) == {f"universal.agents.{name}" for name in rooms - {"kit"}}


def test_no_contract_ignores_more_than_three_imports() -> None:
    contracts = tomllib.loads((REPO / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    assert {contract["name"] for contract in contracts if len(contract.get("ignore_imports", ())) > 3} == set()


def test_fixtures_and_texts_only_shrink() -> None:
    fixtures = [name for name in FILES if name.startswith("compat_fixtures/")]
    assert len(fixtures) <= MAX_FIXTURES
    assert sum((REPO / name).stat().st_size for name in fixtures) <= MAX_FIXTURE_BYTES
    assert sum(map(characters, FILES)) <= MAX_CHARACTERS


def test_characters_are_those_of_texts() -> None:
    assert characters("LICENSE") == len(read("LICENSE")) > 0
    assert characters(PACKED[0]) == 0


def test_recordings_are_packed() -> None:
    paths = recordings()
    assert paths
    assert [path for path in paths if path.exists()] == [], "scripts/recordings pack"
