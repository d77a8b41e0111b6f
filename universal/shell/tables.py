"""Tables of shell commands: wrappers, built-ins, variables and commands that take paths. Pure.

`universal.shell` reads them. docs/permissions.md explains them to users.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Wrapper:
    """A command that runs the command in its arguments. Options that the tables do not name make the line opaque."""

    flags: str = ""
    """Letters of options without a value."""
    valued: str = ""
    """Letters of options with a value."""
    long_flags: tuple[str, ...] = ()
    long_valued: tuple[str, ...] = ()
    operands: int = 0
    """Words between the options and the wrapped command."""
    assignments: bool = False
    """True if `NAME=value` words may stand before the wrapped command."""
    numbers: bool = False
    """True if `-10` is an option."""
    lookup: str = ""
    """Letters of options with which nothing runs."""
    stdin_arguments: bool = False
    """True if the wrapped command gets more arguments from standard input."""


WRAPPERS: dict[str, Wrapper] = {
    "builtin": Wrapper(),
    "chronic": Wrapper(),
    "command": Wrapper(flags="p", lookup="vV"),
    "doas": Wrapper(flags="nL", valued="u"),
    "env": Wrapper(flags="i0v", valued="u", long_flags=("--ignore-environment",), long_valued=("--unset",), assignments=True),
    "exec": Wrapper(flags="cl", valued="a"),
    "ionice": Wrapper(flags="t", valued="cn", numbers=True),
    "nice": Wrapper(valued="n", long_valued=("--adjustment",), numbers=True),
    "nohup": Wrapper(),
    "setsid": Wrapper(flags="cfw", long_flags=("--fork", "--wait", "--ctty")),
    "stdbuf": Wrapper(valued="ioe", long_valued=("--input", "--output", "--error")),
    "sudo": Wrapper(flags="nEHSkPb", valued="ugC", assignments=True),
    "time": Wrapper(flags="pv", valued="fo"),
    "timeout": Wrapper(
        flags="v",
        valued="ks",
        long_flags=("--foreground", "--preserve-status", "--verbose"),
        long_valued=("--kill-after", "--signal"),
        operands=1,
    ),
    "unbuffer": Wrapper(flags="p"),
    "xargs": Wrapper(
        flags="0rtx",
        valued="nPILdsaE",
        long_flags=("--null", "--no-run-if-empty", "--verbose"),
        long_valued=("--max-args", "--max-procs", "--replace", "--delimiter", "--max-lines", "--arg-file"),
        stdin_arguments=True,
    ),
}
SHELLS = frozenset({"sh", "bash", "dash"})
"""Shells whose `-c` text is read like the line itself."""
OTHER_SHELLS = frozenset(
    {"zsh", "fish", "ksh", "ash", "csh", "tcsh", "pwsh", "su", "parallel", "watch", "script", "entr", "chroot"}
)
"""Commands that run text or arguments that are not read here: with arguments the line is not understood."""
FREE = frozenset({":", "true", "false", "cd", "exit", "return", "break", "continue", "test", "[", "[[", "wait", "shift", "set"})
"""Built-ins that start no program and change nothing but the shell: they need no permission."""
ENDS = frozenset({"exit", "return", "break", "continue"})
"""Built-ins after which the rest of the list does not run."""
OPAQUE = frozenset(
    [
        "alias",
        "coproc",
        "enable",
        "bind",
        "complete",
        "compgen",
        "compopt",
        "history",
        "fc",
        "let",
        "mapfile",
        "readarray",
        "getopts",
        "select",
        "function",
    ]
)
"""Built-ins that evaluate or rename in a way that is not followed: the line is not understood."""
DECLARING = frozenset({"export", "readonly", "local", "declare", "typeset"})
RESERVED = frozenset(
    [
        "if",
        "then",
        "else",
        "elif",
        "fi",
        "for",
        "while",
        "until",
        "do",
        "done",
        "case",
        "esac",
        "in",
        "{",
        "}",
        "!",
        "[[",
        "]]",
        "function",
        "select",
        "coproc",
    ]
)
FIND_RUNS = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
SET_FLAGS = re.compile(r"[-+][euxfCno]+|pipefail|errexit|nounset|noglob|xtrace|noclobber")
SHOPT_NAMES = frozenset({"nullglob", "globstar", "dotglob", "failglob", "inherit_errexit", "nocaseglob", "lastpipe"})

RUNNING_OPTIONS: dict[str, re.Pattern[str]] = {
    "git": re.compile(
        r"-c.*|--config-env.*|--exec-path=.*|--upload-pack.*|--receive-pack.*|--exec.*|-x.*|--extcmd.*|-O.*|--open-files.*|ext::.*"
    ),
    "rg": re.compile(r"--pre(=.*)?|--hostname-bin.*"),
    "fd": re.compile(r"-[a-zA-Z]*[xX].*|--exec.*"),
    "fdfind": re.compile(r"-[a-zA-Z]*[xX].*|--exec.*"),
    "sort": re.compile(r"--compress-p.*"),
    "tar": re.compile(r"--checkpoint-action.*|--to-command.*|--use-compress-program.*|-I.*|--rsh-command.*|--info-script.*|-F.*"),
    "rsync": re.compile(r"-[a-zA-Z]*e.*|--rsh.*|--rsync-path.*"),
    "split": re.compile(r"--filter.*"),
    "man": re.compile(r"-[PHX].*|--pager.*|--html.*"),
}
"""Arguments with which a command runs other programs. A line with one is not understood."""
GIT_RUNNING_SUBCOMMANDS = (("bisect", "run"), ("submodule", "foreach"), ("filter-branch",))
GIT_OPTIONS_BEFORE_SUBCOMMAND = re.compile(r"-c.*|--config-env.*|--exec-path=.*")
GIT_SUBCOMMAND_ALLOWS: dict[str, re.Pattern[str]] = {
    "commit": re.compile(r"-c.*"),
    "switch": re.compile(r"-c.*"),
    "clean": re.compile(r"-x.*"),
    "cherry-pick": re.compile(r"-x"),
    "diff": re.compile(r"-O.*"),
    "log": re.compile(r"-[cO].*"),
    "show": re.compile(r"-[cO].*"),
    "ls-files": re.compile(r"-[cx].*|--exclude.*"),
    "checkout": re.compile(r"-c.*"),
    "grep": re.compile(r"-c"),
}
"""Options of git's subcommands that look like a running option and are none."""

HARMLESS_VARIABLES = re.compile(
    r"NODE_ENV|CI|NO_COLOR|FORCE_COLOR|CLICOLOR|TZ|LANG|LC_[A-Z]+|LANGUAGE|PORT|HOST|DEBUG|RUST_LOG|RUST_BACKTRACE|TERM|COLUMNS|LINES"
    r"|PYTHONUNBUFFERED|PYTHONDONTWRITEBYTECODE|PYTHONHASHSEED|PYTHONWARNINGS|PYTHONIOENCODING|PYTHONUTF8|DEBIAN_FRONTEND|HUSKY"
    r"|GIT_TERMINAL_PROMPT|GIT_OPTIONAL_LOCKS|CGO_ENABLED|GOOS|GOARCH|SOURCE_DATE_EPOCH|UPDATE_SNAPSHOTS|VERBOSE|LOG_LEVEL|RAILS_ENV|APP_ENV"
)
"""A prefix that sets one of these is no part of the command's pattern; any other is."""
RUNNING_VARIABLES = re.compile(
    r"PATH|IFS|ENV|BASH.*|SHELL.*|CDPATH|HOME|ZDOTDIR|PS[0-4]|PROMPT_.*|POSIXLY_CORRECT|TMP|TEMP|TMPDIR|GLOBIGNORE|OPTIND|EXECIGNORE"
    r"|(LD|DYLD|GIT|SSH|XDG|GCONV|MAKE|GLIBC|DOTNET|COMPLUS|CORECLR|npm_config|NPM_CONFIG|YARN|PNPM|CARGO|RUSTC|RUSTUP|PERL|RUBY"
    r"|LESS|MAN|NODE|JAVA|JDK|GRADLE|MAVEN|LUA|ERL|PIP|UV|PYTEST|OPENSSL|DOCKER|KUBE)_.*"
    r"|PYTHON.*|PERL5.*|RUBY(OPT|LIB)|LESS(OPEN|CLOSE|KEY)?|MAKE(FLAGS|FILES)|GOFLAGS|GOTOOLCHAIN|_JAVA_OPTIONS|LUA_INIT.*|CC|CXX|AR|LD|NODE_.*"
    r"|.*(PAGER|EDITOR|VISUAL|BROWSER|OPTS|OPTIONS|FLAGS|PATH|_HOME|_COMMAND|_CMD|_SHELL|WRAPPER|LAUNCHER|ASKPASS|PRELOAD|RCFILE|_PROGRAM|_PROXY|_proxy)"
)
"""Variables that make programs run others. A line that sets one is not understood."""

PATH_COMMANDS: dict[str, int] = {
    **dict.fromkeys(
        [
            "cd",
            "pushd",
            "rm",
            "cp",
            "mv",
            "mkdir",
            "rmdir",
            "touch",
            "chmod",
            "chown",
            "chgrp",
            "cat",
            "head",
            "tail",
            "less",
            "more",
            "ls",
            "ll",
            "tree",
            "stat",
            "file",
            "wc",
            "du",
            "ln",
            "tee",
            "truncate",
            "shred",
            "install",
            "readlink",
            "realpath",
            "sort",
            "uniq",
            "cut",
            "diff",
            "cmp",
            "nl",
            "tac",
            "od",
            "xxd",
            "hexdump",
            "strings",
            "md5sum",
            "sha1sum",
            "sha256sum",
            "shasum",
            "rsync",
            "scp",
            "dd",
            "unlink",
            "find",
            "fd",
            "zip",
            "unzip",
            "gzip",
            "gunzip",
            "zcat",
            "tar",
            "patch",
            "source",
            ".",
            "bat",
            "nano",
            "vi",
            "vim",
            "base64",
            "bash",
            "sh",
            "dash",
        ],
        0,
    ),
    **dict.fromkeys(("grep", "egrep", "fgrep", "rg", "sed", "awk", "gawk", "jq", "yq", "chmod", "chown", "chgrp"), 1),
}
"""Commands whose arguments are paths, with the number of leading operands that are none."""
DIRECTORY_COMMANDS = frozenset({"cd", "pushd", "ls", "ll", "tree", "find", "fd", "mkdir", "rmdir", "du"})
"""Commands whose path arguments are reported as directories."""
DIRECTORY_OPTIONS: dict[str, tuple[str, ...]] = {
    "git": ("-C", "--git-dir", "--work-tree"),
    "make": ("-C", "--directory", "-f"),
    "tar": ("-C", "-f", "--directory", "--file"),
    "npm": ("--prefix", "-C"),
    "pnpm": ("-C", "--dir"),
    "yarn": ("--cwd",),
    "cargo": ("--manifest-path",),
    "go": ("-C",),
    "curl": ("-o", "--output", "-T", "-K"),
    "wget": ("-O", "-P"),
}
"""Options whose value is a path, of commands whose other arguments are not taken for paths."""
DEVICES = re.compile(r"/dev/(null|zero|full|random|urandom|tty|std(in|out|err)|fd/\d+)")
"""Files outside of every project that everybody may use."""
