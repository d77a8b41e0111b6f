"""The codec of Amp: `amp --execute --stream-json --stream-json-input`, one process per session, whole messages without deltas.

Tests: all recordings of 0.0.1774569934 (March 2026, the last version that calls the model through
AMP_URL) are replayed through this codec, and that version was run behind the server against a scripted model and a
stand-in for Amp's account calls. Current versions keep the thread on Amp's server, which cannot be reached without an
account: no run against it has been made. Their messages are those of `amp_sdk/types.py` 0.1.20260918, which has the
same five kinds. Not observed: messages of subagents (`parent_tool_use_id`), `error_max_turns`, images.

- A prompt is answered by an `assistant` message with `stop_reason: end_turn`; `result` comes once, after the end of
  input. A `stop_reason` of null without a tool call is the token limit, and nothing ever follows: the process is
  stopped, the next prompt continues the thread.
- `result` with an error ends the turn; the exit code is 0 all the same.
- There is no message for an interrupt: SIGINT. The process exits then; the next prompt continues the thread.
- There is no channel for permissions or questions: Amp's own rules decide, or nothing is held back (mode `bypass`).
  A person's rules become settings of one process (`rules`); other rules mean another process.
  A tool that they want approved ends the turn with an error (seen with the recorded version).
- Amp's models are modes (`--mode`), chosen at the start of a process: another one means another process.
- Thinking is told with `--stream-json-thinking`. No cost is told.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from universal.agents import kit
from universal.agents.amp import wire
from universal.agents.amp.wire import NAME, Msg
from universal.codec import IdFactory, InterruptProcess, Output, Prompt, Signal, Stop
from universal.items import Json
from universal.launch import Exit, LaunchOptions, LaunchSpec, SettingsFile
from universal.lib.jsonline import get_text
from universal.lib.jsonvalue import arr, obj
from universal.lib.jsonvalue import text as as_text
from universal.permissions import BYPASS, Rule, matches
from universal.shell import git
from universal.shell.tables import BUILT_INS, RESERVED, RUNNERS, RUNNING_OPTIONS, SHELLS, WRAPPERS, ProgramOptions
from universal.turn import Input

# --- rules as settings of Amp -----------------------------------------------------------------------------------

PERMISSIONS, DISABLED, ALLOW_ALL = "amp.permissions", "amp.tools.disable", "amp.dangerouslyAllowAll"

TOOLS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "edit": (
        *(
            ("edit_file", "path"),
            ("create_file", "path"),
            ("delete_file", "path"),
            ("format_file", "path"),
            ("undo_edit", "path"),
        ),
        *(("apply_patch", ""), ("restore_snapshot", "")),
    ),
    "bash": (("Bash", "cmd"), ("shell_command", "command"), ("async_shell_command", "command")),
    "read": (("Read", "path"), ("look_at", "path")),
    "webfetch": (("read_web_page", "url"),),
    "websearch": (("web_search", "objective"),),
    "task": (("Task", ""), ("oracle", ""), ("librarian", ""), ("finder", ""), ("code_review", "")),
    "skill": (("skill", "name"),),
    "todowrite": (("todo_write", ""), ("task_list", "")),
    "glob": (("glob", "filePattern"), ("Glob", "filePattern")),
    "grep": (("Grep", "pattern"),),
}
"""OpenCode's permission -> Amp's tools and the argument that patterns are about; "" if a pattern cannot be compared."""
OTHER_TOOLS = (
    *(
        "get_diagnostics",
        "mermaid",
        "chart",
        "walkthrough",
        "walkthrough_diagram",
        "search_documents",
        "get_document",
        "docs_list",
    ),
    *("docs_read", "docs_write", "code_tour", "read_thread", "find_thread", "read_github", "search_github", "commit_search"),
    *("list_directory_github", "list_repositories", "glob_github", "diff", "handoff", "painter", "render_agg_man"),
    *("thread_status", "create_project", "create_thread", "archive_thread", "unarchive_thread", "send_message_to_thread"),
    *("send_message_to_aggman", "slack_write", "slack_read", "github_repo_ci_status", "load_plugin", "reload_plugins", "tb__*"),
    *(f"{name}_bitbucket_enterprise" for name in ("read", "list_directory", "list_repositories", "glob", "search", "diff")),
    *("commit_search_bitbucket_enterprise", "read_mcp_resource", "mcp__*"),
)
"""Tools without a permission of OpenCode. Only a rule for `*` concerns them."""
_OWN_SETTINGS = r"/(?:^|[\s\/])\.[aA][mM][pP](?:[\s\/]|$)/"
"""A path in `.amp`: the settings there could allow what a pattern refuses."""
PATHS = (*TOOLS["read"], *TOOLS["edit"][:5], ("Grep", "path"), ("list_directory", "path"))

# A JavaScript expression for the whole text: `^`, `$` and `.` would stop at lines, since Amp sets the flag `m`.
_START, _END, _ANY = r"(?<![\s\S])", r"(?![\s\S])", r"[\s\S]*"
_NAME, _WORD = r"[A-Za-z0-9_./][A-Za-z0-9_./-]*", r"[A-Za-z0-9_./:,@+-][A-Za-z0-9_./:,@+=-]*"
_NOT_LITERAL = (WRAPPERS | SHELLS | RUNNERS | RESERVED | BUILT_INS) - {
    "echo",
    "pwd",
    "true",
    "false",
    ":",
    "kill",
    "type",
    "which",
}
"""Commands that may run others, or change the meaning of later ones. A pattern for `bash` refuses them."""
_DOTS = r"(?:(?:^|\/)\.{1,2}(?:\/|$)|\/\/|\/$|\\)"
_STARS = 4
"""Maximum stars in a pattern, because more could keep Amp busy. Beyond it, a refusal matches more and an `allow` nothing."""


def settings_with_rules(settings: Mapping[str, Any], rules: Sequence[Rule], mode: str, directory: str) -> dict[str, Any]:
    """The person's settings of Amp, with our entries first. In `bypass` the person's entries do not apply, as in Amp."""
    entries = entries_of(rules, directory)
    allows_all = mode == BYPASS or settings.get(ALLOW_ALL) is True
    rest: list[Any] = [{"tool": "*", "action": "allow"}] if allows_all else arr(settings.get(PERMISSIONS))
    disabled = [*arr(settings.get(DISABLED)), *disabled_tools(rules)]
    return {**settings, PERMISSIONS: [*entries, *rest], ALLOW_ALL: False, DISABLED: list(dict.fromkeys(disabled))}


def personal_settings_files(environment: Mapping[str, str], directory: str) -> tuple[str, ...]:
    """Paths of the person's settings, in Amp's order."""
    if file := environment.get("AMP_SETTINGS_FILE"):
        return (posixpath.join(directory, file),)
    folder = environment.get("XDG_CONFIG_HOME") or posixpath.join(environment.get("HOME", "/"), ".config")
    return tuple(posixpath.join(directory, folder, "amp", name) for name in ("settings.json", "settings.jsonc"))


def restricts(rules: Iterable[Rule]) -> bool:
    """Whether a rule denies or asks, so that Amp needs our settings."""
    return any(rule.action != "allow" for rule in rules)


def disabled_tools(rules: Sequence[Rule]) -> list[str]:
    """Tools of which every call is refused."""
    return [tool for key, tools in TOOLS.items() if _is_whole(_about(rules, key)) for tool, _ in tools]


def entries_of(rules: Sequence[Rule], directory: str) -> list[dict[str, Any]]:
    """Entries of `amp.permissions` that refuse what these rules deny or ask about."""
    if not restricts(rules):
        return []
    refusals = [_refuse(tool, "edit", {argument or "patchText": _OWN_SETTINGS}) for tool, argument in TOOLS["edit"][:-1]]
    for key, tools in TOOLS.items():
        about = _about(rules, key)
        if not restricts(about):
            continue
        whole = _is_whole(about)
        for tool, argument in tools:
            regex = None if whole or not argument else _refused_pattern(key, about, directory)
            refusals.append(_refuse(tool, key, {argument: f"/{regex}/"} if regex else {}))
    outside = _about(rules, "external_directory")
    if restricts(outside):
        refusals += [_refuse(tool, "external_directory", {arg: f"/{_outside(outside, directory)}/"}) for tool, arg in PATHS]
        refusals += [_refuse(tool, "external_directory", {arg: f"/{_LEAVES}/"}) for tool, arg in TOOLS["bash"]]
    return [*refusals, *_of_other_tools(rules)]


def _about(rules: Sequence[Rule], key: str) -> list[Rule]:
    """The rules of a key that still count: those from the last rule that allows every call.

    For `bash` all rules count, because a line that is not understood is refused if any rule could refuse it.
    """
    active_rules: list[Rule] = []
    for rule in rules:
        if matches(rule.permission, key):
            is_end = rule.action == "allow" and _is_everything(rule) and key != "bash"
            active_rules = [] if is_end else [*active_rules, rule]
    return active_rules


def _is_everything(rule: Rule) -> bool:
    return not rule.pattern.strip("*") and rule.pattern != ""


def _is_whole(rules: Sequence[Rule]) -> bool:
    """Whether the last rules refuse every call."""
    whole = False
    for rule in rules:
        whole = rule.action != "allow" and (whole or _is_everything(rule))
    return whole


def _refuse(tool: str, key: str, conditions: Mapping[str, str]) -> dict[str, Any]:
    words = f"A permission rule for `{key}` refuses this call."
    if key == "bash" and conditions:
        words += " Only one command of plain words can be checked: no quotes, variables, pipes or lists, no `cd`, `env` or `sh`."
    entry: dict[str, Any] = {"tool": tool, "action": "reject", "message": words}
    return {**entry, "matches": dict(conditions)} if conditions else entry


def _of_other_tools(rules: Sequence[Rule]) -> list[dict[str, Any]]:
    """Entries for MCP tools (`SERVER_TOOL` in rules) and tools that only `*` concerns. A later `allow` does not count."""
    refusals: list[dict[str, Any]] = []
    for rule in rules:
        if rule.action == "allow" or rule.permission in (*TOOLS, "external_directory", "doom_loop"):
            continue
        if not rule.permission.strip("*"):
            refusals += [_refuse(tool, rule.permission, {}) for tool in OTHER_TOOLS]
            continue
        name = re.sub(r"[^A-Za-z0-9]+", "*", rule.permission)
        tools = (rule.permission if "_" not in rule.permission else name, f"mcp__*{name}", "read_mcp_resource")
        refusals += [_refuse(tool, rule.permission, {}) for tool in dict.fromkeys(tools)]
    return refusals


# --- patterns -------------------------------------------------------------------------------------------


def _refused_pattern(key: str, rules: Sequence[Rule], directory: str) -> str:
    """An expression that matches what these rules of one key refuse."""
    if key == "bash":  # a program may run what stands behind it, as in `uv run git push` and `/usr/bin/git push`
        hidden = _alternatives([rule for rule in rules if rule.pattern.strip("*?/ ")])
        return f"{_not_plain()}|{_START}(?:{_alternatives(rules)})" + (f"|[ \\/](?:{hidden})" if hidden else "")
    if key not in ("edit", "read"):
        return f"{_START}(?:{_alternatives(rules)})"
    folder = directory.rstrip("/") + "/"
    inside = f"(?:{_literal(folder)}|(?!\\/))"
    return f"{_elsewhere(directory)}|{_DOTS}|{_START}{inside}(?:{_alternatives(rules, ('./', folder))})"


def _alternatives(rules: Sequence[Rule], starts: Sequence[str] = ()) -> str:
    """A refusing rule, except where a later one allows. It may name a file with one of `starts` before it."""
    patterns: list[str] = []
    for number, rule in enumerate(rules):
        if rule.action != "allow":
            names = {rule.pattern, *(rest for start in starts for rest in _rests(rule.pattern, start))}
            patterns += [_but_for(rules[number + 1 :]) + _expression(name) for name in sorted(names)]
    return "|".join(patterns)


def _rests(pattern: str, start: str) -> set[str]:
    """What is left of a pattern whose beginning matches `start`."""
    rests = {pattern}
    for character in start:
        after = set[str]()
        for rest in rests:
            bare = rest.lstrip("*")
            after |= {rest} if bare != rest else set[str]()
            after |= {bare[1:]} if bare[:1] in (character, "?") and bare else set[str]()
        rests = after
    return rests


def _but_for(rules: Iterable[Rule]) -> str:
    allowed = [rule.pattern for rule in rules if rule.action == "allow"]
    return "".join(f"(?!{_expression(pattern, exact=True)})" for pattern in allowed if pattern.count("*") <= _STARS)


def _expression(pattern: str, *, exact: bool = False) -> str:
    """A pattern as an expression, up to the end of the text. `exact`: it matches nothing else than the pattern.

    JavaScript counts some characters as two, which a `?` would not match.
    """
    head, bare, _ = pattern.rpartition(" *")
    if bare and pattern.endswith(" *"):
        return f"{_body(head, exact=exact)}(?: {_ANY})?{_END}"
    return f"{_body(pattern, exact=exact)}{_END}"


def _body(pattern: str, *, exact: bool) -> str:
    pieces = re.sub(r"\*+", "*", pattern).split("*")
    if not exact and len(pieces) > _STARS:
        pieces = [*pieces[:_STARS], ""]
    character = r"[^\ud800-\udfff]" if exact else r"[\s\S]{1,2}"
    return _ANY.join(character.join(map(_literal, piece.split("?"))) for piece in pieces)


def _literal(text: str) -> str:
    units = text.encode("utf-16-be", "surrogatepass")
    codes = [units[place] << 8 | units[place + 1] for place in range(0, len(units), 2)]
    return "".join(chr(code) if code < 128 and (chr(code).isalnum() or code == 32) else f"\\u{code:04x}" for code in codes)


def _not_plain() -> str:
    """Matches command lines with more than one command of plain words, or with options that run others."""
    commands = "|".join(sorted(map(_literal, _NOT_LITERAL)))
    running = "|".join(
        f"{name}(?: {_WORD})* (?:{_options_pattern(options)})(?: |{_END})" for name, options in RUNNING_OPTIONS.items()
    )
    folder = r"(?:[A-Za-z0-9_./-]*\/)?"
    words = f"(?!{folder}(?:{commands})(?: |{_END}))(?!{folder}(?:{running}|{_GIT_RUNS})){_NAME}(?: {_WORD})*"
    return f"{_START}(?!{words}{_END})"


def _options_pattern(options: ProgramOptions) -> str:
    """Matches a word that is one of these options, or a shortened form of one."""
    long = [f"--{_prefix_pattern(option)}(?:=[^ ]*)?" for option in options.options]
    letters = [f"-*[A-Za-z]*[{options.letters}][A-Za-z]*(?:{_WORD})?"] if options.letters else []
    return "|".join([*long, *letters])


def _prefix_pattern(option: str) -> str:
    """Matches the beginnings of a word."""
    first, rest = option[0], option[1:]
    return f"{_literal(first)}(?:{_prefix_pattern(rest)})?" if rest else _literal(first)


_GIT_OPTIONS = "|".join(f"--{_prefix_pattern(option)}(?:=[^ ]*)?" for option in git.RUNNING)
_GIT_RUNS = (
    f"git (?!(?:{'|'.join(map(_literal, sorted(git.SUBCOMMANDS - git.FORMS.keys())))})(?: |{_END}))"
    f"|git(?: {_WORD})* (?:-[A-Za-z]*[ceipsxuSO][A-Za-z]*|{_GIT_OPTIONS})"
    f"(?: |{_END})"
)
"""Lines of git that may run other programs."""


_LEAVES = r"(?:^|[ =:,@])\/|\.\."
"""Matches an absolute path, or one with `..`, in a command."""


def _elsewhere(directory: str, itself: str = "") -> str:
    """Matches paths outside of the directory, as written. `itself`: an expression for the directory, if it counts too."""
    return f"{_START}(?!{_literal(directory.rstrip('/') + '/')}{itself}|[^\\/~])"


def _outside(rules: Sequence[Rule], directory: str) -> str:
    """Matches paths outside of the directory, except folders that a last rule allows."""
    last = max(number for number, rule in enumerate(rules) if rule.action != "allow")
    allowed = [rule for rule in rules[last + 1 :] if rule.pattern.endswith("/*")]
    itself = f"|{_literal(directory)}{_END}"
    return f"{_elsewhere(directory, itself)}{_but_for(allowed)}|{_DOTS}"


# --- the codec --------------------------------------------------------------------------------------------------


class AmpCodec(kit.LineCodec[kit.Context]):
    """The codec of Amp; see `universal.codec.Codec` for the methods' contract."""

    name = NAME

    def __init__(self, ids: IdFactory) -> None:
        super().__init__(kit.Context(NAME, ids))
        self.catalogue = wire.CATALOGUE
        """The catalogue is fixed, because Amp cannot list it, and its start without a login opens a browser."""
        self._speech = kit.Speech(self._ctx)
        self._model = wire.DEFAULT_MODEL
        self._mode = "build"
        self._directory = ""
        self._rules: tuple[Rule, ...] = ()
        """The written permission rules that Amp was started with."""
        self._prompt_count = 0
        """Number of written prompts without an answer."""
        self._stopping = False
        self._login = False
        self._fresh = False
        """True while a resumed thread has no message yet."""
        self._usage: dict[str, int] = {}
        self._has_begun = False
        """True since Amp's first message."""

    @property
    def has_conversation(self) -> bool:
        """Whether Amp has said something in a thread that it continues, or has begun a new one."""
        return not self._fresh

    def launch(self, options: LaunchOptions) -> LaunchSpec:
        """Return argv. `threads continue` resumes a thread, which Amp keeps on its server."""
        self._model, self._mode = options.model or wire.DEFAULT_MODEL, options.mode or "build"
        self._directory = options.directory
        argv = [options.binary]
        if options.resume and options.native_session_id:
            self.native_session_id, self._fresh = options.native_session_id, True
            argv += ["threads", "continue", options.native_session_id]
        argv += ["--execute", "--stream-json", "--stream-json-thinking", "--stream-json-input"]
        if self._model != wire.DEFAULT_MODEL:
            argv += ["--mode", self._model]
        self._rules = options.rules
        settings = None
        if restricts(self._rules):
            change = partial(settings_with_rules, rules=self._rules, mode=self._mode, directory=self._directory)
            settings = SettingsFile("--settings-file", personal_settings_files(options.environment, options.directory), change)
        elif self._mode == "bypass":
            argv.append("--dangerously-allow-all")
        env = {"AMP_SKIP_UPDATE_CHECK": "1"}
        return LaunchSpec(argv=tuple(argv), cwd=options.directory, env=env, settings=settings)

    def start(self) -> list[Output]:
        """Return no handshake: Amp sends its first message after the first prompt."""
        return []

    def _on_prompt(self, prompt: Prompt) -> Iterator[Output]:
        model, mode = prompt.model or self._model, prompt.mode or self._mode
        if (model, mode) != (self._model, self._mode):
            yield Stop(f"Amp is to run in the mode {model} ({mode})", again=True)
            return
        if prompt.rules != self._rules and (restricts(prompt.rules) or restricts(self._rules)):
            yield Stop("other permission rules or MCP servers need another process", again=True)
            return
        self._prompt_count += 1
        self._stopping = False
        yield wire.prompt_line(prompt.text, prompt.attachments, prompt.system)
        if not self._has_begun:
            yield kit.await_handshake()

    def _interrupt(self) -> Iterator[Output]:
        self._stopping = True
        yield InterruptProcess()

    def on_timer(self, key: str) -> list[Output]:
        """Give up the handshake: Amp has a prompt, and has said nothing."""
        late = kit.handshake_failed("Amp", "the first prompt with `system/init`", resumes=self._fresh)
        return [late] if self._prompt_count and not self._has_begun else []

    # --- lines ----------------------------------------------------------------------------------------

    def receive(self, line: bytes) -> list[Output]:
        """Handle one line: JSON, an empty line, or Amp's text that asks for a login."""
        text = line.decode("utf-8", errors="replace")
        if text.startswith(wire.LOGIN_NEEDED):
            self._login = True
            return self._stamp(self._no_login(text))
        if self._login or not text.strip():
            self._ctx.ignore("words of the login" if self._login else "an empty line")
            return []
        return super().receive(line)

    def _kind_of(self, message: Msg) -> str:
        kind = get_text(message, "type") or "?"
        return f"system/{get_text(message, 'subtype') or '?'}" if kind == "system" else kind

    def _handle(self, kind: str, message: Msg, line: bytes) -> list[Output]:
        if kind in self.HANDLERS and get_text(message, "parent_tool_use_id"):
            self._ctx.ignore(f"{kind} of a subagent")  # never seen; the call's result shows the outcome
            return []
        return super()._handle(kind, message, line)

    def _on_eof(self, exit_: Exit) -> Iterator[Output]:
        yield from self._speech.close(None)
        error = wire.exit_error(exit_.stderr)
        if error is not None and self._prompt_count:
            yield kit.error_fact(error, None)
            yield from self._end_turn(error)

    def _no_login(self, text: str) -> Iterator[Output]:
        error = wire.login_error(text)
        yield kit.error_fact(error, text)
        yield Stop("nobody is logged in")
        yield from self._end_turn(error)

    def _on_init(self, msg: Msg) -> Iterator[Output]:
        self._has_begun = True
        yield kit.end_handshake()
        self.native_session_id = get_text(msg, "session_id") or self.native_session_id

    def _on_user(self, msg: Msg) -> Iterator[Output]:
        for block in map(obj, arr(obj(msg.get("message")).get("content"))):
            kind = get_text(block, "type")
            if kind == "tool_result":
                yield from self._result(block, msg)
            elif kind in ("text", "image"):
                self._ctx.ignore("user, the prompt")
            else:
                yield self._ctx.report_unparsed(f"block/{kind or '?'}", "unknown content block", msg)

    def _result(self, block: Msg, msg: Msg) -> Iterator[Output]:
        call = self._speech.calls.get(get_text(block, "tool_use_id"))
        if call is None:
            self._ctx.ignore("tool_result of no open call")
            return
        result = wire.read_result(call.name, call.arguments or {}, block, self._directory)
        yield from self._speech.result(call, result.content, result.metadata, msg, failed=block.get("is_error") is True)

    def _on_assistant(self, msg: Msg) -> Iterator[Output]:
        """A whole message. Each of its texts is one synthetic delta."""
        native = obj(msg.get("message"))
        blocks = [obj(block) for block in arr(native.get("content"))]
        stop, calls = get_text(native, "stop_reason"), any(block.get("type") == "tool_use" for block in blocks)
        model: dict[str, Json] = {"provider_id": NAME, "model_id": self._model, "variant": None}
        self._fresh = False
        if not self._prompt_count:
            self._prompt_count = 1
            yield Signal(Input.ACTIVITY)
        yield from self._speech.begin(msg, native_id=get_text(native, "id"), model=model)
        for place, block in enumerate(blocks):
            kind = get_text(block, "type")
            if kind == "text":
                yield from self._speech.whole(place, "text", as_text(block.get("text")), msg)
            elif kind == "thinking":
                yield from self._speech.whole(place, "reasoning", as_text(block.get("thinking")), msg)
            elif kind == "tool_use":
                name, arguments = get_text(block, "name") or "unknown", obj(block.get("input"))
                yield from self._speech.call_whole(get_text(block, "id"), name, arguments, wire.title_of(name, arguments), msg)
            else:
                yield from self._ctx.leave_out("block", kind, ("redacted_thinking",), "content block", msg)
        usage = wire.usage_of(obj(native.get("usage")))
        self._usage = kit.add_usage(self._usage, usage)
        finish = wire.FINISH.get(stop, stop) or ("tool-calls" if calls else "length")
        yield from self._speech.end(msg, metadata={"usage": usage, "finish": finish})
        if not calls:
            yield from self._speech.close(msg)
            if not stop:
                yield Stop("Amp says nothing more after a token limit")
            yield from self._end_turn(None)

    def _on_result(self, msg: Msg) -> Iterator[Output]:
        """Handle `result`, after which the process ends. If the turn has not ended yet, it failed.

        A thread that is continued may fail at once: Amp does not have it, or a tool needed approval by Amp's rules. Then the
        conversation is lost, whatever the reason, and the session begins a new thread. A model that refuses is no such reason.
        """
        yield from self._speech.close(msg)
        yield Stop("Amp has said its result")
        if not self._prompt_count:
            self._ctx.ignore("result, the turn has ended")
            return
        if msg.get("is_error") is not True:
            yield from self._end_turn(None)
            return
        words = get_text(msg, "error", "result") or get_text(msg, "subtype")
        if words.startswith(wire.CANCELLED) or self._stopping:
            yield from self._end_turn(dict(wire.ABORTED))
            return
        error = wire.error_of(words)
        if self._fresh and error["code"] not in wire.MODEL_REFUSALS:
            error["code"] = "session_not_found"
        yield kit.error_fact(error, msg)
        yield from self._end_turn(error)

    def _end_turn(self, error: dict[str, Json] | None) -> Iterator[Output]:
        metadata: dict[str, Json] | None = {"usage": self._usage} if self._usage else None
        self._prompt_count, self._usage = 0, {}
        if error is None:
            yield Signal(Input.DONE, metadata=metadata)
        else:
            yield Signal(Input.FAILED, error=error, aborted=error["code"] == "aborted", metadata=metadata)

    HANDLERS: ClassVar[kit.Handlers] = {
        "system/init": _on_init,
        "user": _on_user,
        "assistant": _on_assistant,
        "result": _on_result,
    }
    """Kind of line -> its handler."""
