"""Tables of shell commands: built-ins, programs that run others, variables, and commands that take paths. Pure.

docs/permissions.md explains them to users.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


def word_set(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


RESERVED = word_set(
    """
    if then else elif fi for while until do done case esac in { } ! [[ ]] function select coproc repeat foreach end
    nocorrect noglob -
    """
)
"""Words that a shell does not take for the name of a program."""
BUILT_INS = word_set(
    """
    . : [ alias bg bind break builtin caller cd chdir command compgen complete compopt continue declare dirs disown echo
    enable eval exec exit export false fc fg getopts hash help history jobs kill let local logout mapfile popd printf pushd
    pwd read readarray readonly return set shift shopt source suspend test times trap true type typeset ulimit umask unalias
    unset wait autoload bindkey bye cap clone comparguments compcall compctl compdescribe compfiles compgroups compquote
    comptags comptry compvalues disable echotc echoti emulate float functions getcap getln integer limit log nameref print
    private pushln r rehash sched setcap setopt stat strftime sysopen sysread syswrite unfunction unhash unlimit unsetopt
    vared whence where which zcompile zformat zftp zle zmodload zparseopts zprof zpty zregexparse zselect zsocket zstat
    zstyle zsystem ztcp
    """
)
"""Built-ins of bash, dash and zsh. One without a proved form is not understood: many of them evaluate their arguments."""
FREE = frozenset({":", "true", "false", "cd", "exit", "test", "[", "set"})
"""Built-ins that start no program and change nothing but the shell: they need no permission."""
SHELLS = frozenset({"sh", "bash", "dash"})
READ_SHELLS = SHELLS | {"zsh"}
"""Shells whose lines `universal.shell` reads: all of them read its proved subset alike."""
SET_OPTIONS = re.compile(r"[-+][eux]+o?|pipefail|errexit|nounset")
RUNNERS = word_set(
    """
    ash busybox chroot chronic csh doas elvish entr eval exec expect fish flock gdb ionice ksh lldb ltrace mksh nsenter parallel
    pkexec pwsh run0 runuser script setarch setpriv setsid stdbuf strace su sudo systemd-run taskset tcsh toybox unbuffer
    unshare watch xvfb-run yash zsh nu osh powershell xonsh ysh
    """
)
"""Programs that run the command or the text in their arguments, in more forms than are read here."""
WRAPPERS = frozenset({"builtin", "command", "env", "find", "nice", "nohup", "time", "timeout", "xargs"})
"""Programs that run the command in their arguments, which have a proved form."""
RUN_NO_ARGUMENT = word_set("diff echo ffmpeg git jq less printf ps sed tee tr tree uniq which yq")
"""Programs whose arguments are no command, beside those that are safe with any. Of git's, `universal.shell.git` knows all."""
SUBCOMMANDS = word_set("apt apt-get aws brew cargo conda docker gcloud gh go helm hg kubectl npm pip podman svn systemctl uv")
"""Programs whose first argument is never the name of a program: `docker rm x` is no `rm`."""
FIND_RUNS = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
SAFE_WITH_ANY_ARGUMENT = word_set(
    """
    basename cat chgrp chmod chown cksum cmp cp cut dirname du egrep fgrep file grep head ls md5sum mkdir mv nl readlink
    realpath rm rmdir sha1sum sha256sum shasum tac tail touch wc
    """
)
"""Programs that no argument makes run another one, so that names of files may stand for them."""


@dataclass(frozen=True, slots=True)
class ProgramOptions:
    """The options with which a program runs others: long ones, which may be shortened, and letters."""

    options: tuple[str, ...] = ()
    letters: str = ""


RUNNING_OPTIONS: dict[str, ProgramOptions] = {
    "bat": ProgramOptions(("pager",)),
    "curl": ProgramOptions(("config",), "K"),
    "fd": ProgramOptions(("exec", "exec-batch"), "xX"),
    "fdfind": ProgramOptions(("exec", "exec-batch"), "xX"),
    "install": ProgramOptions(("strip-program",)),
    "man": ProgramOptions(("pager", "html", "preprocessor"), "PHXp"),
    "rg": ProgramOptions(("pre", "hostname-bin")),
    "rsync": ProgramOptions(("rsh", "rsync-path", "daemon", "config"), "e"),
    "scp": ProgramOptions((), "oFSJ"),
    "sftp": ProgramOptions((), "oFSJ"),
    "sort": ProgramOptions(("compress-program",)),
    "split": ProgramOptions(("filter",)),
    "ssh": ProgramOptions((), "oFJ"),
    "tar": ProgramOptions(
        (
            "checkpoint-action",
            "to-command",
            "use-compress-program",
            "rsh-command",
            "rmt-command",
            "info-script",
            "new-volume-script",
        ),
        "IF",
    ),
    "tcpdump": ProgramOptions(("postrotate-command",), "z"),
    "wget": ProgramOptions(("execute", "use-askpass", "config"), "e"),
    "zip": ProgramOptions(("unzip-command",), "T"),
}
HARMLESS_VARIABLES = re.compile(
    r"NODE_ENV|CI|NO_COLOR|FORCE_COLOR|CLICOLOR|TZ|LANG|LC_[A-Z]+|LANGUAGE|PORT|HOST|DEBUG|RUST_LOG|RUST_BACKTRACE|TERM|COLUMNS|LINES"
    r"|PYTHONUNBUFFERED|PYTHONDONTWRITEBYTECODE|PYTHONHASHSEED|PYTHONWARNINGS|PYTHONIOENCODING|PYTHONUTF8|DEBIAN_FRONTEND|HUSKY"
    r"|GIT_TERMINAL_PROMPT|GIT_OPTIONAL_LOCKS|CGO_ENABLED|GOOS|GOARCH|SOURCE_DATE_EPOCH|UPDATE_SNAPSHOTS|VERBOSE|LOG_LEVEL|RAILS_ENV|APP_ENV"
)
"""A prefix that sets one of these is no part of the command's pattern; any other is."""

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
READERS = word_set(
    """
    basename bat cat cksum cmp cut diff dirname du egrep fd fgrep file find grep head hexdump jq less ll ls md5sum more nl od
    readlink realpath rg sha1sum sha256sum shasum stat strings tac tail tree wc zcat
    """
)
"""Programs that write none of the files among their arguments."""
WALKERS = {
    **dict.fromkeys(("rg", "ag", "ack", "rsync", "tar", "zip", "7z"), ""),
    **dict.fromkeys(("grep", "egrep", "fgrep"), "rR"),
    **{"cp": "rRa", "scp": "r", "diff": "r"},
}
"""Programs that show or copy all files below a folder, with the letters of the options that make them do so, or ""."""
WALKING_OPTIONS = ("--recursive", "--dereference-recursive", "--archive")
WRITERS = word_set("mkdir mv rm rmdir shred tee touch truncate unlink")
"""Programs that write or remove each file among their arguments."""
UNPACKERS: dict[str, re.Pattern[str]] = {
    **dict.fromkeys(("patch", "unzip", "bsdtar", "unrar"), re.compile("")),
    "tar": re.compile(r"-?\w*x\w*|--extract|--get"),
    "cpio": re.compile(r"-\w*i\w*|--extract"),
    "7z": re.compile("[xe]"),
    "git": re.compile("apply|am"),
}
"""Programs that write files whose names stand in another file, with the first word, or an option, by which they do so."""
INTERPRETERS = word_set(
    """
    awk bun deno elixir gawk groovy guile jshell julia lua luajit mawk mysql node osascript perl php psql pypy python racket
    Rscript ruby sqlite swift tclsh
    """
)
"""Programs that run code among their arguments, without the number of their version."""
GIT_READERS = word_set("blame diff grep log ls-files rev-parse show status")
"""Subcommands of git that write no file of the project."""
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
