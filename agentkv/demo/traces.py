"""Recorded agent sessions, read from JSON lines (plain or gzip) into one shape.

What a line may look like, by its keys:

- `messages` (OpenAI chat messages) and `tools`, or `tools_ref` with a path to a JSON file of
  tools, relative to the trace or to one of its parent folders. With a `session_id` the line is a
  whole session: every assistant message stands for one recorded model call, made on the messages
  before it, and is fed back afterwards. Without one, and with a last message that is not the
  assistant's, the line is a single request.
- `requests`: a list of single requests, each with its own `messages`, `tools` and `documents`.
- `user_turns` (one list of messages or strings for each turn) and `tools`: one model call a turn.
  Nothing was recorded, so the model's own answers are fed back. `missed_function`
  (`{"3": ["sort"]}`) names tools that are absent until that turn.
- `question` (turns of messages) and `function` (tool bodies): the same, without a session.
- `turns`: a list of the user's texts.

Tools may be OpenAI tools, bare function bodies or MCP tools (`inputSchema`). Types that some
function-calling sets write their own way (`dict`, `float`) are given their JSON Schema names.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Message = dict[str, Any]

SCHEMA_TYPES = {"dict": "object", "float": "number", "tuple": "array", "any": "string"}
MORE_TOOLS = "I have added some more functions that you can choose from. What about now?"
"""What the user says in a turn whose only news is a tool."""


class TraceError(ValueError):
    """The file cannot be read as a trace; the message names the line and what was missing."""


@dataclass(frozen=True, slots=True)
class TraceDocument:
    """A document that a recorded request carried."""

    id: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceCall:
    """One recorded model call.

    `fresh` are the messages that came since the call before it (all of them when `restart`).
    `recorded` is the assistant message that the recording has as the answer, if it has one.
    """

    turn: int
    fresh: tuple[Message, ...]
    tools: tuple[Message, ...]
    recorded: Message | None = None
    documents: tuple[TraceDocument, ...] = ()
    restart: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSession:
    """The calls of one session, in order."""

    id: str
    calls: tuple[TraceCall, ...]

    def requests(self) -> Iterator[tuple[list[Message], tuple[Message, ...]]]:
        """`(messages, tools)` of each call, with the recorded answers fed back.

        Only for sessions that were recorded in full: a call without a recorded answer is followed
        by the next one as if the model had said nothing.
        """
        history: list[Message] = []
        for call in self.calls:
            history = list(call.fresh) if call.restart else [*history, *call.fresh]
            yield list(history), call.tools
            if call.recorded is not None:
                history.append(call.recorded)


def read_traces(path: Path, *, limit: int | None = None) -> list[TraceSession]:
    """The sessions of a JSON-lines file; at most `limit` of them.

    Raises `TraceError` for a line that is none of the shapes above, with its number.
    """
    sessions: list[TraceSession] = []
    for number, line in _lines(path):
        if limit is not None and len(sessions) >= limit:
            break
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise TraceError(f"{path.name}:{number} is not JSON: {error}") from error
        if not isinstance(record, dict):
            raise TraceError(f"{path.name}:{number} is not a JSON object")
        try:
            session = read_session(record, folder=path.resolve().parent, fallback=f"line {number}")
        except TraceError as error:
            raise TraceError(f"{path.name}:{number}: {error}") from error
        if session.calls:
            sessions.append(session)
    if not sessions:
        raise TraceError(f"{path.name} holds no session with a model call in it")
    return sessions


def read_session(
    record: Mapping[str, Any], *, folder: Path | None = None, fallback: str = "session"
) -> TraceSession:
    """One line of a trace as a session; `folder` is where a relative `tools_ref` is looked up."""
    name = str(
        record.get("session_id") or record.get("id") or record.get("question_id") or fallback
    )
    tools = read_tools(record, folder)
    if "requests" in record:
        calls = tuple(_request(request, tools) for request in record["requests"])
    elif "messages" in record:
        calls = _recorded(record, tools)
    elif "user_turns" in record or "turns" in record:
        turns = record.get("user_turns", record.get("turns"))
        calls = _open_ended(turns, tools, record.get("missed_function") or {})
    elif "question" in record:
        calls = _open_ended(record["question"], tools, {})
    else:
        raise TraceError("none of messages, requests, user_turns, question, turns is there")
    return TraceSession(id=name, calls=calls)


def read_tools(record: Mapping[str, Any], folder: Path | None = None) -> tuple[Message, ...]:
    """The tools of a record as OpenAI tools, from `tools`, `function` or the file `tools_ref`."""
    found = record.get("tools", record.get("function"))
    if found is None and record.get("tools_ref"):
        found = _referenced(str(record["tools_ref"]), folder)
    if isinstance(found, Mapping):
        found = [found]
    return tuple(_tool(tool) for tool in found or ())


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    with path.open("rb") as probe:
        zipped = probe.read(2) == b"\x1f\x8b"
    text: dict[str, Any] = {"mode": "rt", "encoding": "utf-8"}
    with gzip.open(path, **text) if zipped else path.open(**text) as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                yield number, line


def _referenced(reference: str, folder: Path | None) -> Any:
    for base in [folder, *folder.parents] if folder is not None else [Path()]:
        if base is not None and (base / reference).is_file():
            return json.loads((base / reference).read_text(encoding="utf-8"))
    raise TraceError(f"the tools file {reference} was not found beside the trace or above it")


def _tool(tool: Mapping[str, Any]) -> Message:
    body = tool.get("function", tool)
    if not isinstance(body, Mapping) or "name" not in body:
        raise TraceError("a tool without a name")
    empty = {"type": "object", "properties": {}}
    parameters = body.get("parameters") or body.get("inputSchema") or empty
    return {
        "type": "function",
        "function": {
            "name": body["name"],
            "description": body.get("description", ""),
            "parameters": _schema(parameters),
        },
    }


def _schema(node: Any) -> Any:
    """`node` with JSON Schema's own names for types; property names are left alone."""
    if isinstance(node, list):
        return [_schema(item) for item in node]
    if not isinstance(node, Mapping):
        return node
    out: dict[str, Any] = {}
    for key, value in node.items():
        if key == "type" and isinstance(value, str):
            out[key] = SCHEMA_TYPES.get(value, value)
        elif key == "properties" and isinstance(value, Mapping):
            out[key] = {name: _schema(inner) for name, inner in value.items()}
        else:
            out[key] = _schema(value)
    return out


def _messages(value: Any) -> tuple[Message, ...]:
    if isinstance(value, (str, Mapping)):
        value = [value]
    out = []
    for item in value:
        if isinstance(item, str):
            out.append({"role": "user", "content": item})
        elif isinstance(item, Mapping) and "role" in item:
            out.append(dict(item))
        else:
            raise TraceError("a message is neither a text nor an object with a role")
    return tuple(out)


def _user_turns(messages: Sequence[Message]) -> int:
    return sum(message["role"] == "user" for message in messages)


def _recorded(record: Mapping[str, Any], tools: tuple[Message, ...]) -> tuple[TraceCall, ...]:
    messages = _messages(record["messages"])
    asks = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
    single = "session_id" not in record and messages and messages[-1]["role"] != "assistant"
    if single or (messages and not asks):
        return (TraceCall(turn=_user_turns(messages), fresh=messages, tools=tools),)
    calls = []
    done = 0
    for i in asks:
        # Two assistant messages in a row: the second call starts from the first one's answer.
        calls.append(
            TraceCall(
                turn=_user_turns(messages[:i]),
                fresh=messages[done:i],
                tools=tools,
                recorded=messages[i],
            )
        )
        done = i + 1
    return tuple(calls)


def _request(request: Mapping[str, Any], tools: tuple[Message, ...]) -> TraceCall:
    messages = _messages(request["messages"])
    documents = tuple(
        TraceDocument(str(d.get("id", i)), str(d.get("text", d.get("content", ""))))
        for i, d in enumerate(request.get("documents") or ())
    )
    return TraceCall(
        turn=_user_turns(messages),
        fresh=messages,
        tools=read_tools(request) or tools,
        documents=documents,
        restart=True,
    )


def _open_ended(
    turns: Sequence[Any], tools: tuple[Message, ...], missed: Mapping[str, Sequence[str]]
) -> tuple[TraceCall, ...]:
    arrives = {name: int(turn) for turn, names in missed.items() for name in names}
    calls = []
    for turn, value in enumerate(turns):
        fresh = _messages(value) or _messages(MORE_TOOLS)
        # A tool that appears in mid-session is appended: that is where a registry puts it.
        known = [t for t in tools if t["function"]["name"] not in arrives]
        late = [t for t in tools if arrives.get(t["function"]["name"], turn + 1) <= turn]
        calls.append(TraceCall(turn=turn + 1, fresh=fresh, tools=(*known, *late)))
    return tuple(calls)
