"""Converts an exported session of OpenCode 2 to OpenCode 1's form, which `shim.faces.opencode1.transfer` imports. Pure.

    {info: Session.Info, messages: [Message]}  ->  {info: Session, messages: [{info, parts}]}

Messages that only OpenCode 2 has (switches, idle marks, system texts) are left out: they are no part of the conversation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shim.faces.opencode2.names import ARGUMENTS, ERRORS, TOOLS
from shim.faces.opencode2.wire_event import Wire
from universal.lib.jsonvalue import arr, obj, text

OPENCODE1_TOOLS = {opencode2: opencode1 for opencode1, opencode2 in TOOLS.items()}
OPENCODE1_ERRORS = {opencode2: opencode1 for opencode1, opencode2 in ERRORS.items()}
CUT_OFF = "It was cut off when the session was exported."
NO_MODEL: Wire = {"providerID": "unknown", "id": "unknown"}


def document(info: Wire, messages: list[Wire]) -> Wire:
    """The document in OpenCode 1's form. In: values that satisfy OpenCode 2's schema."""
    builder = _Messages(text(obj(info.get("location")).get("directory"), "/"))
    for message in messages:
        builder.add(message)
    fields = {key: info[key] for key in ("id", "parentID", "title", "agent", "metadata") if info.get(key) is not None}
    time = {key: info["time"][key] for key in ("created", "updated", "archived") if key in info["time"]}
    model = {"model": _model(obj(info["model"]))} if info.get("model") else {}
    return {
        "info": {**fields, **model, "cost": info["cost"], "tokens": info["tokens"], "time": time},
        "messages": builder.messages,
    }


def _model(ref: Wire) -> Wire:
    return {"id": ref["id"], "providerID": ref["providerID"], "variant": text(ref.get("variant"), "default")}


class _Messages:
    """Collects messages in their order. A step belongs to the prompt before it."""

    def __init__(self, directory: str) -> None:
        self.messages: list[Wire] = []
        self._path = {"cwd": directory, "root": directory}
        self._prompt = ""
        self._agent, self._model = "build", NO_MODEL

    def add(self, message: Wire) -> None:
        """Add a message. Switches only change the agent and the model of later messages."""
        match message["type"]:
            case "user":
                files = [_file(entry) for entry in arr(message.get("files"))]
                self._user(message, [{"type": "text", "text": message["text"]}, *files])
            case "synthetic" | "skill":
                self._user(message, [{"type": "text", "text": message["text"], "synthetic": True}])
            case "assistant":
                self._agent, self._model = message["agent"], message["model"]
                self._assistant(message, [_part(obj(entry)) for entry in message["content"]])
            case "shell":
                self._assistant(message, [_shell(message)])
            case "compaction" if message["status"] == "completed":
                self._assistant(message, [{"type": "text", "text": message["summary"]}])
            case "agent-switched":
                self._agent = message["agent"]
            case "model-switched":
                self._model = message["model"]
            case _:
                pass

    def _user(self, message: Wire, parts: list[Wire]) -> None:
        self._prompt = message["id"]
        model = {"providerID": self._model["providerID"], "modelID": self._model["id"]}
        info = {"role": "user", "time": {"created": message["time"]["created"]}, "agent": self._agent, "model": model}
        self._append(message["id"], info, parts)

    def _assistant(self, message: Wire, parts: list[Wire]) -> None:
        created = message["time"]["created"]
        tokens = obj(message.get("tokens")) or {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}}
        info: Wire = {
            "role": "assistant",
            "parentID": self._prompt or message["id"],
            "time": {"created": created, "completed": message["time"].get("completed", created)},
            "agent": self._agent,
            "mode": self._agent,
            "providerID": self._model["providerID"],
            "modelID": self._model["id"],
            "path": self._path,
            "cost": message.get("cost", 0),
            "tokens": tokens,
        }
        finish = message.get("finish")
        error = obj(message.get("error"))
        info |= {"finish": finish} if finish and finish != "error" else {}
        info |= {"error": _error(error, info["providerID"])} if error else {}
        self._append(message["id"], info, parts)

    def _append(self, id_: str, info: Wire, parts: list[Wire]) -> None:
        numbered = [{"id": f"prt_{id_.removeprefix('msg_')}{n:02d}", **part} for n, part in enumerate(parts)]
        self.messages.append({"info": {"id": id_, **info}, "parts": numbered})


def _file(value: Any) -> Wire:
    file = obj(value)
    url = f"data:{file['mime']};base64,{file['data']}"
    return {"type": "file", "mime": file["mime"], "url": url, **({"filename": file["name"]} if file.get("name") else {})}


def _part(part: Wire) -> Wire:
    if part["type"] == "text":
        return {"type": "text", "text": part["text"]}
    if part["type"] == "reasoning":
        time = obj(part.get("time"))
        start = time.get("created", 0)
        return {"type": "reasoning", "text": part["text"], "time": {"start": start, "end": time.get("completed", start)}}
    name = OPENCODE1_TOOLS.get(part["name"], part["name"])
    return {"type": "tool", "callID": part["id"], "tool": name, "state": _state(part)}


def _state(part: Wire) -> Wire:
    state, time = part["state"], part["time"]
    start = time.get("ran", time["created"])
    span = {"start": start, "end": time.get("completed", start)}
    input_ = _arguments(part["name"], obj(state["input"]))
    if state["status"] == "completed":
        output = "\n".join(text(obj(entry).get("text")) for entry in state["content"] if obj(entry)["type"] == "text")
        metadata = obj(state.get("metadata"))
        return {"status": "completed", "input": input_, "output": output, "title": "", "metadata": metadata, "time": span}
    error = state["error"]["message"] if state["status"] == "error" else CUT_OFF
    return {"status": "error", "input": input_, "error": error, "time": span}


def _arguments(tool: str, arguments: Mapping[str, Any]) -> Wire:
    names = {second: first for first, second in ARGUMENTS.get(tool, {}).items()}
    return {names.get(key, key): value for key, value in arguments.items()}


def _shell(message: Wire) -> Wire:
    output = text(obj(message.get("output")).get("output"))
    time = {"start": message["time"]["created"], "end": message["time"].get("completed", message["time"]["created"])}
    state = {"status": "completed", "input": {"command": message["command"]}, "output": output, "title": "", "metadata": {}}
    return {"type": "tool", "callID": message["shellID"], "tool": "bash", "state": {**state, "time": time}}


def _error(error: Wire, provider: str) -> Wire:
    name = OPENCODE1_ERRORS.get(error["type"], "UnknownError")
    more = {"providerID": provider} if name == "ProviderAuthError" else {}
    return {"name": name, "data": {"message": error["message"], **more}}
