"""How models write tool calls, as data, and which of these ways a chat template speaks.

    text?  OPENER OPEN  HEAD name MIDDLE {arguments} TAIL  CLOSE

Further calls follow either inside one block (`SEP HEAD name ...`, before CLOSE) or as further
blocks (`GAP OPENER OPEN ... CLOSE`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from agentkv.engine.errors import InvalidRequest
from agentkv.engine.text.template import ChatTemplate

MAX_CALLS = 8
"""Calls that one answer may hold, whatever the format."""
THINK, UNTHINK = "<think>", "</think>"
Policy = Literal["free", "score"]

_TEMPLATES = Path(__file__).parents[2] / "model" / "templates"
_NAME, _KEY, _VALUE = "probe_name", "probe_key", "qprobev"
_ID = re.compile(r'(,\s*"id":\s*"call\d{5}")|(\[CALL_ID\]\s*call\d{5})')


class OpenerBias(NamedTuple):
    """What to add to an opener's logit: when the conversation has no call yet, when it has, and
    right after a tool's result."""

    first: float = 0.0
    later: float = 0.0
    after_tool: float = 0.0

    def of(self, messages: Sequence[Mapping[str, Any]]) -> float:
        """The bias for the answer to `messages`."""
        # A layout's block of changing context may stand behind the result, as a message of its own.
        last = messages[-2:] if _is_context(messages[-1]) else messages[-1:]
        if last[0].get("role") in ("tool", "function"):
            return self.after_tool
        return self.later if any(m.get("tool_calls") for m in messages) else self.first


def _is_context(message: Mapping[str, Any]) -> bool:
    """Whether all that a user's message holds is marked as context or documents."""
    parts = message.get("content")
    if message.get("role") != "user" or not isinstance(parts, (list, tuple)) or not parts:
        return False
    marks = [part.get("agentkv") if isinstance(part, Mapping) else None for part in parts]
    return all(isinstance(m, Mapping) and m.get("kind") in ("context", "documents") for m in marks)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFormat:
    """One way of writing calls.

    `quoted`: the name is a JSON string. `at_start`: the opener counts only where an answer begins.
    `lead`: a control token that may stand before the opener. `parallel`: calls in one answer when
    the request does not say, `most`: when it asks for several. `policy`: what "auto" means:
    `free`, the model's own opener starts a call; `score`, the first token decides, with a `bias`
    (natural log) added to the opener's logit.
    """

    name: str
    opener: str
    open: str = ""
    head: str = '{"name": '
    middle: str = ', "arguments": '
    tail: str = "}"
    close: str = ""
    sep: str | None = None
    gap: str = ""
    quoted: bool = True
    at_start: bool = False
    lead: str = ""
    parallel: int = MAX_CALLS
    most: int = MAX_CALLS
    policy: Policy = "free"
    bias: OpenerBias = field(default_factory=OpenerBias)

    def written(self, name: str, arguments: str) -> str:
        """One call in this format."""
        name = json.dumps(name, ensure_ascii=False) if self.quoted else name
        call = f"{self.head}{name}{self.middle}{arguments}{self.tail}"
        return f"{self.opener}{self.open}{call}{self.close}"


HERMES = CallFormat(
    name="hermes", opener="<tool_call>", open="\n", close="\n</tool_call>", gap="\n"
)
MISTRAL = CallFormat(name="mistral", opener="[TOOL_CALLS]", open="[", close="]", sep=", ")
MISTRAL_ARGS = CallFormat(
    name="mistral-args", opener="[TOOL_CALLS]", head="", middle="[ARGS]", tail="", quoted=False
)
LLAMA3 = CallFormat(
    name="llama3",
    opener='{"name": ',
    head="",
    middle=', "parameters": ',
    at_start=True,
    lead="<|python_tag|>",
    parallel=1,
    most=1,
)
NO_CALLS = CallFormat(name="none", opener="")
"""For templates that write calls in no way known here."""
FORMATS = (MISTRAL_ARGS, MISTRAL, HERMES, LLAMA3)


def format_of(template: ChatTemplate) -> CallFormat:
    """The format in which `template` renders a call; `NO_CALLS` when it is none of ours.

    Found by rendering one: what a template writes is what its model was trained to write.
    """
    own = _own_format(template.source)
    if own is not None:
        return own
    written = _probe(template)
    for known in FORMATS:
        if written is not None and _bare(known.written(_NAME, _ARGUMENTS)) in written:
            return known
    return NO_CALLS


def thinks(template: ChatTemplate) -> bool:
    """Whether the template knows of thoughts between `<think>` and `</think>`."""
    return any(UNTHINK in source for source in (template.source, template.tool_source or ""))


@cache
def _own() -> tuple[str, dict[str, Any]]:
    """The embedded model's template, and what was measured for it."""
    source = (_TEMPLATES / "smollm2_tools.jinja").read_text("utf-8")
    return source, json.loads((_TEMPLATES / "smollm2_tools.json").read_text("utf-8"))


def _own_format(source: str) -> CallFormat | None:
    """The format of the template that is shipped for the embedded model, if it is this one."""
    own, data = _own()
    if source != own:
        return None
    return replace(
        HERMES,
        name="smollm2",
        policy="score",
        parallel=int(data["parallel_calls"]),
        bias=OpenerBias(**data["opener_bias"]),
    )


_ARGUMENTS = json.dumps({_KEY: _VALUE})


def _probe(template: ChatTemplate) -> str | None:
    """How the template renders a call, without white space and ids."""
    if not template.renders_calls():
        return None
    style = template.call_style()
    arguments: Any = _ARGUMENTS if style.text_arguments else {_KEY: _VALUE}
    function = {"name": _NAME, "arguments": arguments}
    call = {"type": "function", "id": "call00000", "function": function}
    content = None if style.null_content else ""
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": content, "tool_calls": [call]},
    ]
    try:
        text = template.render(messages)
    except InvalidRequest:
        return None
    return _bare(_ID.sub("", text))


def _bare(text: str) -> str:
    return "".join(text.split())
