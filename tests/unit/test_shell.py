# ruff: noqa: E501
"""Shell lines: what one allowed command must not bring along, what everyday lines mean, and which paths they name."""

from __future__ import annotations

import pytest

from universal.permissions import Access, Action, Policy, Rule, decide
from universal.shell import is_read_only, parse_shell_line

ECHO_ONLY = (Rule("bash", "*", "deny"), Rule("bash", "echo *", "allow"))

RIDERS = {
    "quotes inside of an expansion": "echo ${x:-'}'`touch y`'}",
    "quotes in quotes inside of an expansion": 'echo "${x:-"\'"}$(touch y)${x:-"\'"}"',
    "a quoted substitution in old arithmetic": "echo $['$(touch y)']",
    "a quoted substitution in arithmetic": "echo $((a['$(touch y)']))",
    "a quoted substitution in an expansion in quotes": "echo \"${x:-'$(touch y)'}\"",
    "a double quote inside of an expansion": 'echo ${x:-"}"$(touch y)}',
    "escaped backticks in backticks": "echo `echo \\`touch y\\``",
    "a newline that splits a substitution": "echo $\\\n(touch y)",
    "a newline that splits a substitution in quotes": 'echo "$\\\n(touch y)"',
    "a subscript": "echo ${a[$(touch y)]}",
    "a quoted subscript": "echo ${a['$(touch y)']}",
    "a subscript that is evaluated": "x='a[$(touch y)]'; echo $((x))",
    "a subscript of test": "echo a; test -v 'a[$(touch y)]'",
    "a subscript of a condition": "[[ -v a[$(touch y)] ]] && echo a",
    "a subscript of printf": "printf -v 'a[$(touch y)]' x",
    "a subscript of read": "echo 1 | read 'a[$(touch y)]'",
    "a subscript of unset": "unset 'a[$(touch y)]'; echo",
    "a subscript of declare": "declare 'a[$(touch y)]=1'; echo",
    "old arithmetic": "echo $[$(touch y)]",
    "old arithmetic with a subscript": "echo $[a[$(touch y)]]",
    "arithmetic with a subscript": "echo $((a[$(touch y)]))",
    "a condition that compares numbers": "x='a[$(touch y)]'; [[ $x -eq 1 ]]; echo",
    "a prompt expansion": "x='$(touch y)'; echo ${x@P}",
    "an indirect expansion": "x='a[$(touch y)]'; echo ${!x}",
    "an alias of dash": "alias echo='touch y'\necho a",
    "a redefined function": "echo() { touch y; }; echo a",
    "eval": "eval 'touch y'",
    "eval of a variable": "x='touch y'; eval $x; echo",
    "a trap": "trap 'touch y' EXIT; echo a",
    "a coprocess": "coproc touch y; echo",
    "a here-document that expands": "echo <<A\n$(touch y)\nA",
    "a here-document with another end": "echo <<A\nA \n'\nA\ntouch y\necho <<A\n'\nA",
    "a process substitution": "echo <(touch y)",
    "a redirection of dash": "echo a &>x touch y",
    "a string of bash": "echo $'\\''; touch y #'",
    "a comment behind a continued line": "echo \\\n# it's\ntouch y\n# it's",
    "brace expansion": "{touch,y}; echo",
    "a variable as command": "x=touch; $x y; echo",
    "a prefix that changes PATH": "PATH=/tmp/evil echo a",
    "a remapped command": "hash -p /bin/touch echo; echo y",
    "a traced prompt": "PS4='$(touch y)'; set -x; echo a",
    "a carriage return": "echo a\r# '\ntouch y\n# '",
    "words behind a redirection": ">x touch y; echo",
    "a shell's text": "bash -c 'touch y'",
    "a prefix of eval": "i=1; i='a[$(touch y)]' eval 'echo $((i))'",
}


@pytest.mark.parametrize("name", RIDERS)
def test_one_allowed_command_allows_no_other(name: str) -> None:
    found = parse_shell_line(RIDERS[name])
    assert not found.understood or decide("bash", found.commands or (RIDERS[name],), ECHO_ONLY) != "allow"


EVERYDAY: dict[str, tuple[str, ...]] = {
    "echo hi && ls": ("echo hi", "ls"),
    "touch made.txt && echo made": ("touch made.txt", "echo made"),
    "/bin/bash -lc 'echo hi && ls'": ("/bin/bash -lc 'echo hi && ls'", "echo hi", "ls"),
    "echo out; echo err >&2; exit 3": ("echo out", "echo err >&2"),
    "date +%Y": ("date +%Y",),
    "git push origin main": ("git push origin main",),
    "a; b | c || d": ("a", "b", "c", "d"),
    'echo "a && b"; ls': ('echo "a && b"', "ls"),
    "echo 'x;y'": ("echo 'x;y'",),
    "first\nsecond": ("first", "second"),
    "cat x >&2 <&3": ("cat x >&2 <&3",),
    "echo '$(rm x)' \\`": ("echo '$(rm x)' \\`",),
    "echo a\\'b; rm x": ("echo a\\'b", "rm x"),
    "echo a#b; ls": ("echo a#b", "ls"),
    "git add -A && git commit -m 'x' && git push": ("git add -A", "git commit -m 'x'", "git push"),
    "git status --porcelain | wc -l": ("git status --porcelain", "wc -l"),
    "git diff --stat HEAD~1..HEAD": ("git diff --stat HEAD~1..HEAD",),
    "git log --oneline -n 5 --format='%h %s'": ("git log --oneline -n 5 --format='%h %s'",),
    "git show HEAD:src/a.py | head -50": ("git show HEAD:src/a.py", "head -50"),
    "git stash && git checkout -b fix/x": ("git stash", "git checkout -b fix/x"),
    "cd src && npm test": ("npm test",),
    "cd src && npm test -- --watch=false 2>&1 | tail -20": ("npm test -- --watch=false 2>&1", "tail -20"),
    "npm run build -- --mode production": ("npm run build -- --mode production",),
    "NODE_ENV=test npm test": ("npm test",),
    "CI=1 FORCE_COLOR=0 pnpm -r test": ("pnpm -r test",),
    "ls -la src/ tests/": ("ls -la src/ tests/",),
    "ls -la | grep -v node_modules": ("ls -la", "grep -v node_modules"),
    "find . -name '*.py' -not -path './.venv/*' | head -20": ("find . -name '*.py' -not -path './.venv/*'", "head -20"),
    "find . -type f -name '*.tmp' -exec rm {} \\;": ("find . -type f -name '*.tmp' -exec rm {} \\;", "rm {}"),
    "find . -name '*.ts' | xargs grep -l foo": ("find . -name '*.ts'", "xargs grep -l foo", "grep -l foo"),
    "find . \\( -name a -o -name b \\) -print0 | xargs -0 wc -l": (
        "find . \\( -name a -o -name b \\) -print0",
        "xargs -0 wc -l",
        "wc -l",
    ),
    "grep -rn 'def foo' src --include='*.py'": ("grep -rn 'def foo' src --include='*.py'",),
    "grep -E '^(a|b)$' file.txt": ("grep -E '^(a|b)$' file.txt",),
    'rg -n "foo\\(" src | head': ('rg -n "foo\\(" src', "head"),
    "sed -n '1,40p' src/a.py": ("sed -n '1,40p' src/a.py",),
    "sed -i 's/foo/bar/g' src/*.py": ("sed -i 's/foo/bar/g' src/*.py",),
    "awk '{print $1}' data.txt | sort | uniq -c": ("awk '{print $1}' data.txt", "sort", "uniq -c"),
    "python -c 'import sys; print(sys.version)'": ("python -c 'import sys; print(sys.version)'",),
    "python -m pytest tests/unit -q -x 2>&1 | tail -30": ("python -m pytest tests/unit -q -x 2>&1", "tail -30"),
    ".venv/bin/pytest -q -k 'a or b'": (".venv/bin/pytest -q -k 'a or b'",),
    "pip install -r requirements.txt": ("pip install -r requirements.txt",),
    "uv run ruff check . && uv run pyright": ("uv run ruff check .", "uv run pyright"),
    "cargo test --all 2>&1 | grep -E 'FAILED|ok'": ("cargo test --all 2>&1", "grep -E 'FAILED|ok'"),
    "RUST_BACKTRACE=1 cargo run -- --help": ("cargo run -- --help",),
    "go test ./... -run TestX -v": ("go test ./... -run TestX -v",),
    "make -j4 && make install": ("make -j4", "make install"),
    "docker compose up -d && docker ps": ("docker compose up -d", "docker ps"),
    "kubectl get pods -n x -o json | jq '.items[].metadata.name'": (
        "kubectl get pods -n x -o json",
        "jq '.items[].metadata.name'",
    ),
    "curl -s http://localhost:3000/api?x=1 | jq .": ("curl -s http://localhost:3000/api?x=1", "jq ."),
    'curl -X POST -H "Content-Type: application/json" -d \'{"a": 1}\' http://localhost': (
        'curl -X POST -H "Content-Type: application/json" -d \'{"a": 1}\' http://localhost',
    ),
    "mkdir -p a/b && cp x a/b/ && rm -rf y": ("mkdir -p a/b", "cp x a/b/", "rm -rf y"),
    "mv a.txt b.txt": ("mv a.txt b.txt",),
    "chmod +x script.sh && ./script.sh": ("chmod +x script.sh", "./script.sh"),
    "which python || echo none": ("which python", "echo none"),
    "command -v node >/dev/null 2>&1 && echo yes": ("command -v node >/dev/null 2>&1", "echo yes"),
    "[ -f package.json ] && cat package.json": ("cat package.json",),
    "test -f x || touch x": ("touch x",),
    "set -e; npm ci; npm test": ("npm ci", "npm test"),
    "set -euo pipefail\nmake": ("make",),
    "timeout 60 npm test": ("timeout 60 npm test", "npm test"),
    "time make": ("time make", "make"),
    "env | grep PATH": ("env", "grep PATH"),
    "tar czf x.tgz src && du -sh x.tgz": ("tar czf x.tgz src", "du -sh x.tgz"),
    "": (),
}
"""Lines of the closed subset -> the commands that they run."""

ASKED: dict[str, tuple[str, ...]] = {
    "for i in $(seq 3); do echo tick $i; sleep 1; done": ("seq 3", "echo tick $i", "sleep 1"),
    "kill -9 $PPID": ("kill -9 $PPID",),
    "sleep 1 & ls": ("sleep 1", "ls"),
    "sleep 1 &": ("sleep 1",),
    "make 2>&1 | tee x &>y": ("make 2>&1", "tee x &>y"),
    "git log $(rm x)": ("git log $(rm x)", "rm x"),
    'git log "a $(rm x; ls) b" && id': ('git log "a $(rm x; ls) b"', "rm x", "ls", "id"),
    "git log `rm x`": ("git log `rm x`", "rm x"),
    "git diff <(rm x) >(ls)": ("git diff <(rm x) >(ls)", "rm x", "ls"),
    "echo $((1 + 2))": ("echo $((1 + 2))",),
    "git log # it's\nrm x # it's": ("git log", "rm x"),
    "git commit -m \"$(cat <<'EOF'\nfix: it's done (see #1) `x`\n\nCo-Authored-By: A <a@b.c>\nEOF\n)\"": (
        "git commit -m \"$(cat <<'EOF'\nfix: it's done (see #1) `x`\n\nCo-Authored-By: A <a@b.c>\nEOF\n)\"",
        "cat <<'EOF'",
    ),
    "git rev-parse @{u}": ("git rev-parse @{u}",),
    "API_URL=http://localhost:3000 npm start": ("API_URL=http://localhost:3000 npm start", "npm start"),
    "cat <<'EOF' > notes.md\n# it's\n$(x)\nEOF": ("cat <<'EOF' > notes.md",),
    "cat > a.py <<EOF\nprint('hi')\nEOF\npython a.py": ("cat > a.py <<EOF", "python a.py"),
    "cat <<EOF | sort\nb\na\nEOF": ("cat <<EOF", "sort"),
    "python3 - <<'EOF'\nprint(1)\nEOF": ("python3 - <<'EOF'",),
    "source .venv/bin/activate && pytest": ("source .venv/bin/activate", "pytest"),
    'docker run --rm \\\n  -v "$PWD":/x \\\n  image cmd': ('docker run --rm -v "$PWD":/x image cmd',),
    "mkdir -p src/{a,b}": ("mkdir -p src/{a,b}",),
    'if [ -d "$dir" ]; then ls "$dir"; else echo none; fi': ('ls "$dir"', "echo none"),
    "[[ -f a.txt ]] && cat a.txt": ("cat a.txt",),
    'for f in *.txt; do echo "$f"; done': ('echo "$f"',),
    "for f in a b c\ndo\n  cat $f\ndone": ("cat $f",),
    'while read -r line; do echo "$line"; done < file.txt': ("read -r line", 'echo "$line"'),
    "i=0; while [ $i -lt 3 ]; do echo $i; i=$((i+1)); done": ("echo $i",),
    "(cd sub && make)": ("make",),
    "{ echo a; echo b; } > out.txt": ("echo a", "echo b"),
    "nohup node server.js > log.txt 2>&1 &": ("nohup node server.js > log.txt 2>&1",),
    "sudo apt-get install -y jq": ("sudo apt-get install -y jq", "apt-get install -y jq"),
    "export FOO=bar && npm start": ("export FOO=bar", "npm start"),
    'VERSION=$(git describe --tags); echo "v$VERSION"': ("git describe --tags", 'echo "v$VERSION"'),
    'echo "${name:-world}" ${#name} ${file%.*} ${file##*/}': ('echo "${name:-world}" ${#name} ${file%.*} ${file##*/}',),
    "ps aux | grep node | grep -v grep | awk '{print $2}' | xargs kill": (
        "ps aux",
        "grep node",
        "grep -v grep",
        "awk '{print $2}'",
        "xargs kill",
        "kill",
    ),
    "lsof -ti:3000 | xargs -r kill -9": ("lsof -ti:3000", "xargs -r kill -9", "kill -9"),
    'npx tsc --noEmit; echo "exit: $?"': ("npx tsc --noEmit", 'echo "exit: $?"'),
    "diff <(sort a) <(sort b)": ("diff <(sort a) <(sort b)", "sort a", "sort b"),
    "case $1 in start) npm start;; *) echo usage;; esac": ("npm start", "echo usage"),
    "build() { npm run build; }; build": ("npm run build", "build"),
    "printf '%s\\n' \"$x\" > out": ("printf '%s\\n' \"$x\" > out",),
    "gh pr create --title 'x' --body \"$(cat <<'EOF'\n## Summary\n- it's \"done\"\nEOF\n)\"": (
        "gh pr create --title 'x' --body \"$(cat <<'EOF'\n## Summary\n- it's \"done\"\nEOF\n)\"",
        "cat <<'EOF'",
    ),
}
"""Everyday lines outside of the subset -> commands that are found in them, so that a deny holds."""


@pytest.mark.parametrize("line", EVERYDAY)
def test_everyday_lines_are_understood(line: str) -> None:
    found = parse_shell_line(line)
    assert found.understood, found.reason
    assert tuple(command for command in found.commands if command in EVERYDAY[line]) == EVERYDAY[line]
    assert len(found.commands) <= len(EVERYDAY[line]) + 4  # other spellings of the first words


@pytest.mark.parametrize("line", ASKED)
def test_other_lines_are_asked_about_and_their_commands_are_found(line: str) -> None:
    found = parse_shell_line(line)
    assert (found.understood, bool(found.reason)) == (False, True)
    assert {" ".join(command.split()) for command in ASKED[line]} <= {" ".join(command.split()) for command in found.commands}


@pytest.mark.parametrize(
    ("line", "paths", "known"),
    [
        ("cat /etc/passwd", ("/etc/passwd",), True),
        ("cd /tmp && cat x", ("/tmp/", "/tmp/x"), True),
        ("cd sub && cat ../x", ("sub/", "sub/../x"), True),
        ("cd sub; cat ../x", ("sub/", "../x", "sub/../x"), True),
        ("cd sub || exit 1; cat x", ("sub/", "x", "sub/x"), True),
        ("echo x > ../out 2>/dev/null", ("../out",), True),
        ("grep -r /api src", ("src",), True),
        ("git -C /other status", ("/other/",), True),
        ("find / -name x -exec rm {} +", ("/", "{}"), True),
        ("find x | xargs rm", ("x/",), False),
        ("bash -c 'cd /tmp; touch x'", ("/tmp/", "x", "/tmp/x"), True),
        ("make 2>&1 >&2", (), True),
    ],
)
def test_paths_of_a_line(line: str, paths: tuple[str, ...], known: bool) -> None:
    found = parse_shell_line(line)
    assert (found.understood, found.paths, found.paths_known) == (True, paths, known)


@pytest.mark.parametrize(
    "line",
    [
        'r"m" -rf x', "\\rm x", "'rm' x", "rm  x", "rm\tx", "A=1 rm x", "CI=1 rm x", "sudo rm x", "env -i rm x", "echo a | xargs -n 1 rm", "find . -exec rm {} +",
        "bash -c 'rm x'", "eval 'rm x'", "trap 'rm x' EXIT", "f() { rm x; }", "timeout -k 5 10 rm x", "nice -n 5 nohup rm x",
        "command rm x", "exec rm x", "eval $x; rm x", "rm x <(", "time rm x", "stdbuf -oL rm x", "if rm x; then :; fi",
    ],
)  # fmt: skip
def test_a_deny_holds_for_wrapped_commands_and_other_spellings(line: str) -> None:
    rules = (Rule("bash", "*", "allow"), Rule("bash", "rm *", "deny"))
    assert decide("bash", parse_shell_line(line).commands, rules) == "deny"


HIDING = [
    "{}", "/usr/bin/{}", "uv run {}", "poetry run -q {}", "npx {}", "npm exec -- {}", "yarn {}", "direnv exec . {}", "proxychains4 -q {}",
    "dbus-run-session -- {}", "hyperfine '{}'", "script -qc '{}' /dev/null", "tmux new -d '{}'", "docker run --rm x {}", "ssh host {}",
    "ssh host 'cd x && {}'", "my-wrapper --level=3 {}", "./run.sh {}", "prlimit --nproc=9 /usr/bin/{}", "gtimeout 5 {}", "faketime x {}",
    "nodemon --exec='{}'", "python3 -c 'import os; os.system(\"{}\")'", "awk 'BEGIN{{system(\"{}\")}}'", "bash -c 'my-wrapper {}'",
]  # fmt: skip
"""Lines in which a program that is in no table runs a command: public reports of agents name some of them, and there is no end."""


@pytest.mark.parametrize("action", ["deny", "ask"])
@pytest.mark.parametrize("line", HIDING)
def test_a_command_that_a_program_perhaps_runs_is_not_allowed_unasked(line: str, action: Action) -> None:
    rules = (Rule("bash", "*", "allow"), Rule("bash", "git push*", action))
    found = parse_shell_line(line.format("git push origin"))
    hidden = Policy(config=rules).action(Access("bash", found.hidden, hidden=True))
    assert hidden == "ask" or (decide("bash", found.commands, rules) == action)


OTHER_OPTIONS = {
    "git push*": ("git -C sub push", "git --no-pager push origin", "git -P --no-optional-locks push", "/usr/bin/git -C . push"),
    "kubectl delete *": ("kubectl -n prod delete pod x", "kubectl --context=far delete pod x"),
    "docker rm *": ("docker --context far rm x", "timeout 5 docker -D rm x"),
    "docker compose down*": ("docker compose -f a.yml down", "docker compose --ansi never down"),
    "npm publish*": ("npm --silent publish", "npm --loglevel silent publish --tag x"),
    "npm run deploy*": ("npm run --silent deploy",),
    "aws s3 rm *": ("aws --profile prod s3 rm x",),
    "terraform destroy*": ("terraform -chdir=infra destroy",),
    "gh pr merge *": ("gh -R o/r pr merge 1", "gh pr -R o/r merge 1"),
    "rm -rf *": (
        *("rm -v -rf x", "bash -c 'rm --one-file-system -rf x'", "rm -fr x", "rm -rfv x", "rm -r -f x", "rm -Rf x", "rm x -rf"),
        *("rm --recursive --force x", "rm --recurs -f x", "rm x -r --force", "find . -exec rm -fr {} +", "xargs rm -f -r"),
    ),
    "git push --force*": ("git push -f", "git push origin --force", "git push -u -f origin", "git -C . push origin -f"),
    "git reset --hard*": ("git reset -q --hard", "git reset HEAD~1 --hard"),
    "chmod -R *": ("chmod a+x -R .", "chmod --recursive a+x ."),
}
"""Rule -> lines that do the same with options before, between or behind its words, in another order, or by their long names.

`git -c` is never understood.
"""


@pytest.mark.parametrize(("pattern", "line"), [(pattern, line) for pattern, lines in OTHER_OPTIONS.items() for line in lines])
def test_other_options_and_spellings_of_options_take_no_call_from_its_rule(pattern: str, line: str) -> None:
    rules = (Rule("bash", "*", "allow"), Rule("bash", pattern, "deny"))
    assert Policy(config=rules).action(Access("bash", parse_shell_line(line).hidden, hidden=True)) == "ask"


@pytest.mark.parametrize(
    "line",
    [
        "echo git push",
        "git --no-pager log",
        "git log push",
        "git commit -m 'git push'",
        "docker rm x",
        "grep -rn 'git push' docs",
        "npm run push",
        "git log --grep 'git push'",
    ],
)
def test_a_word_that_is_no_command_hides_none(line: str) -> None:
    rules = (Rule("bash", "*", "allow"), Rule("bash", "git push*", "deny"), Rule("bash", "rm *", "deny"))
    found = parse_shell_line(line)
    assert Policy(config=rules).action(Access("bash", found.hidden, hidden=True)) == "allow"


@pytest.mark.parametrize(
    "line", ["rm x", "rm -f x", "rm -v -i x", "git push -u origin", "git reset HEAD", "chmod a+x x", "git commit -am x"]
)
def test_an_option_that_a_rule_names_must_be_there(line: str) -> None:
    patterns = ("rm -rf *", "git push --force*", "git reset --hard*", "chmod -R *", "git commit --amend*")
    rules = (Rule("bash", "*", "allow"), *(Rule("bash", pattern, "deny") for pattern in patterns))
    assert Policy(config=rules).action(Access("bash", parse_shell_line(line).hidden, hidden=True)) == "allow"


@pytest.mark.parametrize("line", EVERYDAY)
def test_a_rule_for_everything_asks_about_no_hidden_command(line: str) -> None:
    """`uv run *` may be allowed where all else is asked about: what stands behind `uv run` is no question of its own."""
    policy = Policy(config=(Rule("*", "*", "ask"),))
    assert policy.action(Access("bash", parse_shell_line(line).hidden, hidden=True)) == "allow"


@pytest.mark.parametrize(
    ("line", "writes", "maybe"),
    [
        ("rm a b/c", ("a", "b/c"), ()), ("mv a b", ("a", "b"), ()), ("cd x && touch a", ("x/a",), ()), ("echo x | tee -a log", ("log",), ()),
        ("cp a b", (), ("a", "b")), ("sed -i s/a/b/ x", (), ("s/a/b/", "x")), ("dd if=a of=b", (), ("a", "if=a", "b", "of=b")),
        ("python3 gen.py out", (), ("gen.py", "out")), ("git restore x", (), ("restore", "x")), ("bash -c 'cp a b'", (), ("cp a b", "a", "b")),
        ("cat a", (), ()), ("git diff a", (), ()), ("ls a > b", ("b",), ()), ("[ -f a ]", (), ()),
    ],
)  # fmt: skip
def test_files_that_programs_write_or_perhaps_write(line: str, writes: tuple[str, ...], maybe: tuple[str, ...]) -> None:
    found = parse_shell_line(line)
    assert (found.writes, found.writes_known) == (writes, True)
    assert set(found.maybe_written) == set(maybe)


@pytest.mark.parametrize(
    "line", ["rm *.txt", "find . -delete", "find . -name x -exec rm {} +", "ls | xargs rm", "bash -c 'rm *'"]
)
def test_files_that_a_pattern_names_are_not_known(line: str) -> None:
    assert not parse_shell_line(line).writes_known


@pytest.mark.parametrize(
    "line",
    [
        "git -c core.pager=x log", "git --exec-path=/x log", "git rebase -x 'make' main", "git bisect run make", "git submodule foreach ls",
        "GIT_SSH_COMMAND=x git fetch", "LD_PRELOAD=./x.so ls", "PATH=.:$PATH ls", "export PATH=x", "PAGER=x git log", "IFS=: echo a",
        "env PATH=x ls", "env -S 'ls x'", "env $x", "xargs sh", "eval $x", "trap \"$x\" EXIT", "source $x", "alias a=b", "hash -p /x ls",
        "((i++))", "for ((i=0;i<3;i++)); do ls; done", "select x in a; do ls; done", "function f { ls; }", "[[ -f a && -f b ]]",
        "rg --pre x y", "fd -x rm", "tar --to-command=x -xf y", "watch ls", "parallel ls", "shopt -s expand_aliases", "set -a",
        "read PATH", "for PATH in x; do ls; done", "jobs -x ls", "bash --rcfile x -c ls", "bash -c \"$x\"", "sudo -i", "nosuch 'a",
        "sh -c -e 'ls'", "bash -c -- 'ls'", "bash +e -c 'ls'", "declare -i x=1", "declare -n r=x", "read \"$x\"", "printf \"$x\" y", "[ $x ]", "[[ $x -eq 1 ]]", "echo $((x+1))",
    ],
)  # fmt: skip
def test_commands_that_may_run_others_are_not_understood(line: str) -> None:
    assert not parse_shell_line(line).understood


ATTACKS = [
    "ls & wait -np 'a[$(touch y)]'",
    "x='a[$(touch y)]'; false && x=5 || return; echo $((x))",
    "for x in 1 2; do x='a[$(touch y)]'; done; echo $((x))",
    "ls() { x='a[$(touch y)]'; }; x=5; ls; echo $((x))",
    *(f"ls; {name} 'path[$(touch y)]'" for name in ("shift", "exit", "return", "break", "continue", "let", "kill", "wait", "printf %d")),
    "ls; [ -t 'path[$(touch y)]' ]", "ls; test 'path[$(touch y)]' -eq 1", "y='path[$(touch y)]'; echo $path[y]", "READNULLCMD=sh; < file",
    "echo =touch", "echo *(e:'touch y':)", "ls &> x touch y", "echo a |& touch", "< file", "> file", "ls <1-5>x",
    "rg foo *", "rg foo {--pre=sh,.}", "x=--pre=sh; rg foo $x", "rg --pre=sh foo", "rg --hostname-bin x foo", "fd -x rm", "fd --exec-b rm",
    "command -p ls", "xargs --replace ls", "xargs --max-lines ls", "xargs rg foo", "eval -- ls", "hash -rp /x ls", "jobs -rx ls", "trap ls DEBUG",
    "declare -a x='($(ls))'", "export -a x='($(ls))'", "local x='($(ls))'", "readonly x='($(ls))'", "nice -n {5,ls}", "find . -exe? ls",
    "git grep --open=ls", "git grep -O ls", "git rebase --exe ls", "git rebase -x ls", "git ls-remote --upload-p=ls x", "git clone -u ls x",
    "git config core.fsmonitor ls && git status", "git -c core.pager=x log", "git --exec-path=x log", "git foo", "git fetch ext::ls", "git commit",
    "git bisect run ls", "git submodule foreach ls", "git difftool -x ls", "git add -p", "git archive --remote=x", "git log --output=x",
    "tar --to-com=x -xf y", "tar --checkpoint-act=exec=x cf y z", "tar cIf x y z", "tar -I x -xf y", "rsync -e x a b", "sort --compress-prog=x y",
    "split --filt=x y", "man -P x ls", "ssh -oProxyCommand=x h", "wget --use-ask=x u", "zip -TT x y", "sudo ls", "env -S 'ls x'", "env PATH=x ls",
    "bash --rcfile x -c ls", "sh -c -e ls", "bash -c \"$x\"", "{ git status; } > README.md", "(git status) > README.md", "pytest *", "npm test ?",
    "cd nope || return; cat ../out/s", "cd -; git status", "cd a b; ls", "pushd a; ls", "source x; ls", ". x; ls", "alias ls=x; ls", "time -f x ls",
    "ls\u00a0x", "ls \\\nx", "! ls", "coproc ls", "[[ -f a ]]", "((1))", "ls # x", "noglob ls", "- ls", "print -P x", "vared x",
]  # fmt: skip


@pytest.mark.parametrize("line", ATTACKS)
def test_a_line_that_may_run_others_is_not_understood(line: str) -> None:
    assert not parse_shell_line(line).understood


@pytest.mark.parametrize(
    ("line", "writes"),
    [
        ("echo x > package.json", ("package.json",)),
        ("ls; : > f", ("f",)),
        ("cd a && ls >> b 2> c", ("a/b", "a/c")),
        ("ls 2>&1 > /dev/null", ()),
        ("cat < a", ()),
        ("bash -c 'ls > x'", ("x",)),
    ],
)
def test_files_that_redirections_write(line: str, writes: tuple[str, ...]) -> None:
    found = parse_shell_line(line)
    assert (found.understood, found.writes, found.writes_known) == (True, writes, True)


def test_a_glob_makes_paths_unknown() -> None:
    assert not parse_shell_line("cat ln?/s").paths_known


@pytest.mark.parametrize(
    ("line", "repositories"),
    [("git status", ()), ("cd emb && git status", ("emb",)), ("git -C /o status", ("/o",)), ("cd a; git log", (".", "a"))],
)
def test_git_in_another_directory_is_named(line: str, repositories: tuple[str, ...]) -> None:
    assert parse_shell_line(line).repositories == repositories


@pytest.mark.parametrize("line", ["cat a && grep -rn x src | head", "ls *.py", "rg foo src", "git status"])
def test_read_only_lines(line: str) -> None:
    assert is_read_only(line) is (not line.startswith("git"))


@pytest.mark.parametrize("line", ["rg foo *", "rg --pre=x foo", "cat a > b", "ls & rm x", "./cat a", "cat `rm x`", "grep a $x"])
def test_lines_that_do_more_than_read(line: str) -> None:
    assert not is_read_only(line)


@pytest.mark.parametrize(
    ("line", "walks"),
    [
        ("grep -rn x src", ("x", "src")), ("grep -r x", ("x", ".")), ("cd a && rg x", ("a/x", "a")), ("rg x src lib", ("x", "src", "lib")),
        ("cp -a secrets out", ("secrets", "out")), ("tar czf a.tgz .", ("czf", "a.tgz", ".")), ("zip -r a.zip src", ("a.zip", "src")),
        ("diff -r a b", ("a", "b")), ("bash -c 'grep -R x .'", ("x", ".")), ("grep x a", ()), ("cp a b", ()), ("ls -R src", ()),
    ],
)  # fmt: skip
def test_folders_of_which_a_line_shows_all_files(line: str, walks: tuple[str, ...]) -> None:
    found = parse_shell_line(line)
    assert (found.understood, found.walks) == (True, walks)
