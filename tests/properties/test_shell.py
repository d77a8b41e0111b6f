# ruff: noqa: E501, RUF005
"""Whatever the rules allow of a line, bash, dash and zsh run nothing else: generated lines, run with a marker program."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from pathlib import Path
from random import Random

import pytest

from tests.conftest import LAW_EXAMPLES
from universal.permissions import Rule, decide
from universal.shell import parse_shell_line
from universal.shell.tables import BUILT_INS as BUILT_IN_NAMES

ECHO = (Rule("bash", "*", "deny"), Rule("bash", "echo *", "allow"), Rule("bash", "printf *", "allow"))
WRAPPERS = [
    "command",
    "env",
    "exec",
    "nohup",
    "time",
    "timeout",
    "nice",
    "xargs",
    "find",
    "eval",
    "trap",
    "read",
    "export",
    "declare",
    "local",
    "unset",
    "test",
    "builtin",
    "cat",
]
WITH_WRAPPERS = (*ECHO, *(Rule("bash", f"{name} *", "allow") for name in WRAPPERS))
"""Wrappers allow nothing of what they wrap. Shells are not among them: who allows `sh *` allows what it reads from its input."""
MARKER = "ranit"
SHELL_S = 50
"""For one batch of lines; they wait for nothing."""
GENERATED, RUN = 4000, 200
"""Lines that are generated and that are run, at least."""
BATCH = 20
"""Lines that one shell process runs, each in a subshell of its own."""

PIECES = tuple(
    [
        "echo a",
        "echo ",
        "printf ",
        "ranit x",
        "ranit x",
        "ranit x",
        "'",
        '"',
        "`",
        "$(",
        ")",
        "(",
        ";",
        "&",
        "&&",
        "\n",
        "#",
        " # ",
        " ",
        "\\",
        "$'",
        "<<A\n",
        "<<'A'\n",
        "\nA\n",
        "<(",
        ">(",
        "{ ",
        "; }",
        "$((",
        "))",
        "2>&1",
        "&>/dev/null",
        "!",
        "${x:-",
        "}",
        "\\\n",
        "<<<",
        "\t",
        "=",
        "[[ ",
        "]]",
        "((",
        "coproc ",
        "\r",
        "x=",
        "a[",
        "]",
        "$[",
        "$x",
        "${x@P}",
        "${!x}",
        "${x",
        "eval ",
        "alias echo=",
        "env ",
        "command ",
        "\\`",
        '\\"',
        "\\$",
        "echo",
        "{a,b}",
        "{",
        ",",
        "-v ",
        "-eq ",
        "x=1 ",
        "function f",
        "f()",
        "case x in ",
        "x)",
        ";;",
        "esac",
        "if ",
        "then ",
        "fi",
        "for i in ",
        "do ",
        "done",
        "declare ",
        "read ",
        "test ",
        "[ ",
        "unset ",
        "export ",
        "trap ",
        "EXIT",
        "exec ",
        "xargs ",
        "time ",
        "~",
        "*",
        "+=",
        "-",
        "@",
        ":",
        ">f ",
        "<f ",
        ">",
        "<",
        "<<-A\n\t",
        "\tA\n",
        "<<\\A\n",
        "<<A ",
        "<<B ",
        "\nB\n",
        "0",
        "1",
        "$#",
        "${#",
        "%",
        "/",
        "..",
        "\x0b",
        "\x0c",
        "\xa0",
        "é",
    ]
) + ("|", "||", "|&")

INNER = ("ranit x", "echo $(ranit x)", "echo a; ranit x", "echo `ranit x`", "echo b", "f", "$x", "echo $x")
FORMS = (
    "$({})", "`{}`", '"$({})"', '"`{}`"', "<({})", ">({})", "$(({}))", "$((a[$({})]))", "$[{}]", "$[a[$({})]]", "${{x:-{}}}",
    "${{x:-$({})}}", "\"${{x:-'$({})'}}\"", "${{x:-'}}'$({})}}", "${{x/$({})/b}}", "${{a[$({})]}}", "${{x:$({})}}", "${{x#'`{}`'}}",
    "'{}'", '"{}"', "$'{}'", "$'\\'{}'", '$"{}"', "\\\n{}", "$\\\n({})", '"$\\\n({})"', "`echo \\`{}\\``", "`echo \\\\\\`{}\\\\\\``", "{{a,{}}}", "#{}",
    "#{}\n", " # {}\n", "'a'\"{}\"", '"a\\"{}"', "\"'{}'\"", "\"'$({})'\"", "<<A\n{}\nA\n", "<<A\n$({})\nA\n", "<<'A'\n$({})\nA\n",
    "<<A\n`{}`\nA\n", "<<A\n${{x:-`{}`}}\nA\n", "<<-A\n\t{}\n\tA\n", "<<\\A\n$({})\nA\n", "<<\"A\"\n$({})\nA\n", "<<A <<B\n{}\nA\n{}\nB\n",
    "<<A\n{}\\\nA\n{}\nA\n", "<<<'{}'", '<<<"$({})"', "$(cat <<A\n{}\nA\n)", "$(echo <<'A'\n)\n{}\nA\n)", "\"$(echo <<'A'\n'\"{}\nA\n)\"",
    "&>/dev/null {}", "&> f; {}", ">f {}", "2>f {}", "3>&1 {}", ">f {} >g", "|& {}", "| {}", "|| {}", "&& {}", "; {}", "& {}", "\n{}", "\r{}", "\x0b{}",
    "\xa0{}", ";; {}", "!{}", "! {}", "({})", "{{ {}; }}", "(({}))", "[[ a ]] && {}", "[[ a || {} ]]", "[[ -v 'a[$({})]' ]]", "~{}", "*{}",
    "\\'{}\\'", "'\\'{}'", "\"\\`{}\\`\"", "\"\\$({})\"", "$$({})", "\\\\$({})", "\\$({})", "$(echo '{}')", "$(echo \"{}\")", "$(# {}\n)",
    "$(echo a # )\n{}\n)", "`# {}`", "`echo a # `; {}", "$( ({}) )", "$((  {}) )", "$(case x in x) {};; esac)", "$(case x in (x) {};; esac)",
    "\\\n# it's\n{}", "a\\\n#{}\n", "a#'{}'", "{{1..2}}{}", "x=$({}) echo", "x[$({})]=1", "${{x:={}}}", "${{x@P}}{}", "$x{}", "$1{}",
)  # fmt: skip
COMMANDS = (
    "echo {}", "echo a {}", "printf %s {}", "printf -v 'a[$({})]' x", "printf -v a x; {}", "x='{}'; eval $x", "x='{}'; eval \"$x\"", "eval '{}'",
    "eval echo {}", "x='{}'; $x", "x='a[$({})]'; echo $((x))", "x='a[$({})]'; echo $[x]", "x='a[$({})]'; echo ${{b[x]}}", "x='a[$({})]'; [[ x -eq 1 ]]; echo",
    "x='a[$({})]'; [[ $x -eq 1 ]]; echo a", "x='$({})'; echo ${{x@P}}", "x='a[$({})]'; echo ${{!x}}", "x='a[$({})]'; test -v \"$x\"; echo",
    "x='a[$({})]'; [ -v $x ]", "test -v 'a[$({})]'", "[ -v 'a[$({})]' ]", "unset 'a[$({})]'; echo", "read 'a[$({})]' <<<1", "declare 'a[$({})]=1'",
    "declare -i x='a[$({})]'", "export 'a[$({})]=1'", "local 'a[$({})]=1'", "let 'a[$({})]'", "trap '{}' EXIT", "trap '{}' EXIT; echo a",
    "alias echo='{}'\necho a", "alias e=ranit\ne x", "f() {{ {}; }}; f", "f() {{ {}; }}\necho a\nf", "echo() {{ {}; }}; echo a",
    "function echo {{ {}; }}; echo a", "function echo() {{ {}\n}}\necho a", "command {}", "exec {}", "env {}", "env -i {}", "time {}", "time -p {}",
    "xargs {} </dev/null", "echo a | xargs {}", "echo '{}' | sh", "echo '{}' | bash", "sh -c '{}'", "bash -c '{}'", "sh -c \"{}\"", "source <(echo '{}')",
    ". <(echo '{}')", "coproc {}", "coproc {{ {}; }}; echo", "if {}; then echo a; fi", "if echo a; then {}; fi", "while {}; do break; done",
    "for i in {}; do echo a; done", "for i in 1; do {}; done", "for ((i=$({}); i<1; i++)); do echo a; done", "for i\ndo {}\ndone", "until {}; do break; done",
    "case {} in *) echo a;; esac", "case x in {}) echo a;; x) {};; esac", "case $({}) in *) echo;; esac", "case x in $({})) echo;; esac",
    "select i in {}; do echo; break; done <<<1", "PATH={} echo a", "x=$({}); echo $x", "x=`{}` echo a", "a=($({})); echo", "a=([$({})]=1); echo",
    "a[$({})]=1; echo", "a[$({})]+=1", "PS4='$({})'; set -x; echo a", "PS4='$({})' echo a", "PROMPT_COMMAND='{}'; echo", "IFS={} echo a",
    "hash -p /bin/sh echo; echo -c '{}'", "enable -n echo; echo {}", "set -- {}; $*", "set -- {}; \"$@\"", "set -- {}; echo $1", "{{touch,{}}}", "{}{{,}}",
    "exec 3<<<'{}'; echo", "echo a >$({})", "echo a >`{}`", "echo a <<<$({})", "echo a >&$({})", "echo a 2>\"$({})\"", ">f {}", "<f {}", "2>&1 {}",
    "mapfile -C '{} #' -c 1 a <<<1", "complete -C '{}' e; echo", "compgen -W '$({})'", "compgen -C '{}'", "wait -p 'a[$({})]'", "jobs -x {}",
    "nohup {}", "timeout 1 {}", "nice {}", "builtin eval '{}'", "builtin echo {}", "command eval '{}'", "\\eval '{}'", "'eval' '{}'", "e\"va\"l '{}'",
    "find . -maxdepth 0 -exec {} ;", "find . -maxdepth 0 -exec {} \\;", "find . -exec sh -c '{}' \\;", "git -c alias.x='!{}' x", "a=b{}; echo $a",
    "getopts 'x' 'a[$({})]'", "((a[$({})]))", "(( x = $({}) ))", "! {}", "{{ {}; }} >f", "({}) >f", "echo $x{}", "\"ech\"o {}", "ec\\ho {}",
    "echo a; x='{}'\n$x", "exec 3>&1 {}", "BASH_ENV=f bash -c 'echo'", "shopt -s expand_aliases; alias echo='{}'\necho a",
    "declare -n r='a[$({})]'; echo $r", "typeset x='{}'; $x", "f() ({}); f", "f() if {}; then echo; fi; f", "[[ $({}) ]]", "[[ a =~ $({}) ]]", "[[ a < {} ]]",
    "echo $(< $({}))", "echo $(<f; {})", "echo ${{x:?$({})}}", "echo a\n<<A {}\nb\nA\n", "echo {} <<A\n$x\nA\n{}",
)  # fmt: skip
TAILS = (
    "",
    "; echo b",
    "\necho b",
    " && echo b",
    " | echo",
    " 2>&1",
    " # ",
    " &",
    "'",
    '"',
    "`",
    ")",
    "}",
    "; f",
    " >f",
    "\n'",
    " <<A\nb\nA\n",
)


def nested_text(random: Random, depth: int) -> str:
    """A text with forms inside of forms, the innermost of which is mostly the marker."""
    if depth == 0 or random.random() < 0.25:
        return random.choice(INNER)
    template = random.choice(FORMS if random.random() < 0.6 else COMMANDS)
    text = template.replace("{}", "\0").replace("{{", "{").replace("}}", "}")
    while "\0" in text:
        text = text.replace("\0", nested_text(random, depth - 1), 1)
    return random.choice(("", "", "echo ", "echo a ")) + text if template in FORMS else text


BUILT_INS = (*sorted(BUILT_IN_NAMES), "rg", "git", "find", "tar", "sort", "xargs", "env", "time", "timeout", "nice")
OPERANDS = (
    "a", "1", "-1", "'a[$(ranit x)]'", "'path[$(ranit x)]'", "ranit", "'ranit x'", "'$(ranit x)'", "a=1", "'x=$(ranit x)'", "=ranit", "%1", "[", "]",
    "'a[`ranit x`]'", "--", "-", "+1", "f", "/bin/ranit", "*", "?", "~", "'%n'", "'%d'", "'%s'", "-eq", "=", "-nt", "-t", "-v", "-o", "!", "{}", "\\;",
)  # fmt: skip


def line_with_builtin(random: Random) -> str:
    """A command of the subset's form: any built-in or runner with any options and operands, beside an allowed command."""
    words = [random.choice(BUILT_INS)]
    for _ in range(random.randint(0, 4)):
        letters = "".join(
            random.choice("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0") for _ in range(random.randint(1, 2))
        )
        words.append(random.choice((f"-{letters}", f"+{letters}", random.choice(OPERANDS), random.choice(OPERANDS))))
    line = " ".join(words)
    return random.choice(
        ("{}", "echo a; {}", "{}; echo a", "echo a && {}", "echo a | {}", "{} || echo b", "{} > f", "{}\nranit2 x")
    ).replace("{}", line, 1)


def line_of(random: Random) -> str:
    kind = random.random()
    if kind < 0.3:
        return line_with_builtin(random)
    kind = (kind - 0.3) / 0.7
    if kind < 0.35:
        return random.choice(("echo ", "printf ", "")) + "".join(random.choice(PIECES) for _ in range(random.randint(2, 10)))
    text = nested_text(random, random.randint(1, 3))
    if kind < 0.55:
        text = f"echo {text}"
    if random.random() < 0.4:
        text += random.choice(TAILS)
    while random.random() < 0.25 and text:  # one character less or more, so that what is balanced is so no more
        at = random.randrange(len(text))
        text = text[:at] + random.choice(("", random.choice(PIECES))) + text[at + 1 :]
    return text


def is_allowed(line: str, rules: tuple[Rule, ...]) -> bool:
    found = parse_shell_line(line)
    return found.understood and decide("bash", found.commands or (line,), rules) == "allow"


def runs(shell: str, directory: Path, lines: list[str]) -> list[str]:
    """The lines in which the marker ran. Lines are tried one by one if it ran in any of them."""
    binaries = directory / "bin"
    if not binaries.exists():
        binaries.mkdir()
        (binaries / MARKER).write_text('#!/bin/sh\n: >"$MARK"\n')
        (binaries / MARKER).chmod(0o755)
        for name in ("sh", "bash", "cat", "env", "xargs", "find", "nohup", "timeout", "nice", "sed", "touch"):
            if (path := shutil.which(name)) is not None:
                (binaries / name).symlink_to(path)
    work = directory / "work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    mark = directory / "mark"
    mark.unlink(missing_ok=True)
    script = 'i=0; while [ $i -lt $N ]; do eval "l=\\$L$i"; timeout -s KILL 2 "$S" -c "$l" </dev/null >/dev/null 2>&1 9>&-; i=$((i+1)); done'
    environment = {"PATH": str(binaries), "MARK": str(mark), "S": shell, "N": str(len(lines)), "LC_ALL": "C.UTF-8"}
    environment |= {f"L{index}": line for index, line in enumerate(lines)}
    silent = subprocess.DEVNULL
    started = subprocess.Popen(
        ["/bin/sh", "-c", script], env=environment, cwd=work, stdin=silent, stdout=silent, stderr=silent, start_new_session=True
    )
    try:
        started.wait(SHELL_S)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)
        started.wait()
    if not mark.exists():
        return []
    return lines if len(lines) == 1 else [bad for line in lines for bad in runs(shell, directory, [line])] or lines


@pytest.mark.parametrize("shell", ["bash", "dash", "zsh"])
@pytest.mark.parametrize("rules", [ECHO, WITH_WRAPPERS], ids=["echo", "wrappers"])
def test_nothing_runs_that_was_not_allowed(tmp_path: Path, shell: str, rules: tuple[Rule, ...]) -> None:
    path = shutil.which(shell)
    if path is None:
        pytest.skip(f"{shell} is not installed")
    random = Random(len(rules) + int(os.environ.get("SHIM_LAW_SEED", "0")))
    allowed: list[str] = []
    for _ in range(max(LAW_EXAMPLES, GENERATED)):
        line = line_of(random)
        if MARKER in line and "\0" not in line and is_allowed(line, rules):
            allowed.append(line)
    assert len(allowed) > 20  # a law about no line would hold for ever
    allowed = list(dict.fromkeys(allowed))[: max(LAW_EXAMPLES // 10, RUN)]
    bad = [line for start in range(0, len(allowed), BATCH) for line in runs(path, tmp_path, allowed[start : start + BATCH])]
    assert not bad
