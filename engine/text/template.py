"""The model's own chat template, and what it can do."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import jinja2

from agentkv.engine.errors import InvalidRequest, UnsupportedModel
from agentkv.engine.text.sandbox import PINNED_DATE, Refused, sandbox

MAX_OUTPUT = 32 << 20
"""Characters that one rendering may produce."""
MAX_SECONDS = 20.0

_PROBE, _OTHER = "qprobev", "hsecond-probe"
RESERVED = frozenset(
    [
        "messages",
        "conversation",
        "conversations",
        "chat",
        "tools",
        "documents",
        "tokenize",
        "add_generation_prompt",
        "continue_final_message",
        "chat_template",
        "tokenizer",
        "return_dict",
        "return_tensors",
        "return_assistant_tokens_mask",
        "padding",
        "truncation",
        "max_length",
        "tokenizer_kwargs",
        "processor_kwargs",
        "raise_exception",
        "strftime_now",
        "namespace",
        "dict",
        "range",
        "lipsum",
        "cycler",
        "joiner",
        "self",
        "caller",
        "loop",
        "bos_token",
        "eos_token",
        "unk_token",
        "pad_token",
        "sep_token",
    ]
)


class CallStyle(NamedTuple):
    """How a template wants an assistant message with tool calls.

    `text_arguments`: arguments as JSON text, not as an object. `null_content`: None for "no
    content", not "".
    """

    text_arguments: bool
    null_content: bool


class ChatTemplate:
    """One model's chat template (or its pair: plain, and with tools).

    `named_tokens`: the texts of `bos_token`, `eos_token`, ... `now`: what `strftime_now` formats.
    Raises `UnsupportedModel` when the source does not compile.
    """

    def __init__(
        self,
        source: str,
        *,
        tool_source: str | None = None,
        named_tokens: Mapping[str, str] | None = None,
        now: datetime = PINNED_DATE,
        max_output: int = MAX_OUTPUT,
    ) -> None:
        self.source = source
        self.tool_source = tool_source
        self._now = now
        self._max_output = max_output
        self._named = dict(named_tokens or {})
        environment = sandbox(now)
        try:
            self._plain = environment.from_string(source)
            self._with_tools = environment.from_string(tool_source) if tool_source else self._plain
        except jinja2.TemplateError as error:
            raise UnsupportedModel(
                f"The model's chat template does not compile: {error}"
            ) from error
        self._call_style: CallStyle | None = None
        self._calls = False
        self._roles: dict[str, bool] = {}
        self._tools: bool | None = None

    @classmethod
    def load(
        cls,
        model_dir: Path,
        named_tokens: Mapping[str, str] | None = None,
        *,
        now: datetime = PINNED_DATE,
    ) -> ChatTemplate | None:
        """The template in `model_dir`: `chat_template.jinja`, or that of a JSON file beside it.

        None when the model has none (a base model).
        """
        model_dir = Path(model_dir)
        path = model_dir / "chat_template.jinja"
        if path.is_file():
            return cls(path.read_text("utf-8"), named_tokens=named_tokens, now=now)
        for name in ("chat_template.json", "tokenizer_config.json"):
            path = model_dir / name
            if not path.is_file():
                continue
            try:
                value = json.loads(path.read_text("utf-8")).get("chat_template")
            except (ValueError, AttributeError) as error:
                raise UnsupportedModel(f"{path} is not a JSON object: {error}") from error
            if isinstance(value, str):
                return cls(value, named_tokens=named_tokens, now=now)
            if isinstance(value, list):
                named = {v.get("name"): v.get("template") for v in value if isinstance(v, dict)}
                default = named.get("default") or next(iter(named.values()), None)
                if isinstance(default, str):
                    tool = named.get("tool_use")
                    return cls(default, tool_source=tool, named_tokens=named_tokens, now=now)
        return None

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        *,
        add_generation_prompt: bool = True,
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> str:
        """The prompt text of plain JSON messages. Raises `InvalidRequest` when it cannot be made:
        the template refuses, trips over a value, or writes more than it may."""
        spoken = tools or any(m.get("tool_calls") for m in messages)
        template = self._with_tools if spoken else self._plain
        variables: dict[str, Any] = {
            **self._named,
            **(template_kwargs or {}),
            "messages": list(messages),
            "tools": list(tools) if tools else None,
            "add_generation_prompt": add_generation_prompt,
        }
        variables.setdefault("documents", None)
        pieces: list[str] = []
        size = 0
        deadline = time.monotonic() + MAX_SECONDS
        try:
            for piece in template.generate(variables):
                pieces.append(piece)
                size += len(piece)
                if size > self._max_output:
                    raise Refused(f"it wrote more than {self._max_output} characters")
                if time.monotonic() > deadline:
                    raise Refused(f"it ran for more than {MAX_SECONDS:.0f} seconds")
        except RecursionError as error:
            raise InvalidRequest("The messages are nested too deeply.", param="messages") from error
        except Exception as error:  # a template may trip over anything that it is given
            raise InvalidRequest(
                f"The model's chat template cannot render these messages: {error}",
                param="messages",
            ) from error
        return "".join(pieces)

    def check_kwargs(self, kwargs: Mapping[str, Any] | None) -> dict[str, Any]:
        """`template_kwargs` that may reach the template.

        Raises `InvalidRequest` for names that are no identifiers, that start with an underscore,
        or that would replace what the engine itself passes.
        """
        out: dict[str, Any] = {}
        for name, value in (kwargs or {}).items():
            if not isinstance(name, str) or not name.isidentifier() or name.startswith("_"):
                raise InvalidRequest(
                    f"{name!r:.80} is not a name that a chat template can read.",
                    param="chat_template_kwargs",
                )
            if name in RESERVED:
                raise InvalidRequest(
                    f"chat_template_kwargs must not set {name!r}.", param="chat_template_kwargs"
                )
            out[name] = value
        return out

    def names_role(self, role: str) -> bool:
        """Whether the template's source speaks of `role`."""
        pattern = rf"""(['"]){re.escape(role)}\1"""
        return any(re.search(pattern, s) for s in (self.source, self.tool_source or ""))

    def renders_role(self, role: str) -> bool:
        """Whether what a message of `role` says shows up in the prompt (some templates drop it).

        True also when the template raises an error for it, which then is the better message.
        """
        if role not in self._roles:

            def chat(text: str) -> list[dict[str, Any]]:
                probe: dict[str, Any] = {"role": role, "content": text}
                user = {"role": "user", "content": "a"}
                if role == "system":
                    return [probe, user]
                if role == "assistant":
                    return [user, probe]
                if role == "tool":
                    answer = {**probe, "tool_call_id": "call00000", "name": "f"}
                    return [user, _call(self.call_style()), answer]
                return [probe]

            self._roles[role] = self._differ((chat(_PROBE), None), (chat(_OTHER), None))
        return self._roles[role]

    def renders_tools(self) -> bool:
        """Whether tool definitions show up in the prompt."""
        if self._tools is None:
            user = [{"role": "user", "content": "a"}]

            def tool(name: str) -> list[dict[str, Any]]:
                schema = {"type": "object", "properties": {}}
                function = {"name": name, "description": "a", "parameters": schema}
                return [{"type": "function", "function": function}]

            self._tools = self._differ((user, tool(_PROBE)), (user, tool(_OTHER)))
        return self._tools

    def call_style(self) -> CallStyle:
        """What the template expects of an assistant message with tool calls, found by trying."""
        if self._call_style is None:
            styles = [CallStyle(a, b) for b in (False, True) for a in (False, True)]
            fitting = next((s for s in styles if self._fits(s)), None)
            self._calls = fitting is not None
            self._call_style = fitting or styles[0]
        return self._call_style

    def renders_calls(self) -> bool:
        """Whether tool calls of the assistant show up in the prompt."""
        self.call_style()
        return self._calls

    def _fits(self, style: CallStyle) -> bool:
        try:
            text = self.render([{"role": "user", "content": "a"}, _call(style)])
        except InvalidRequest:
            return False
        # Not as the repr of a Python dict, and not as JSON text inside JSON text.
        wrong = ("'probe_key': ", '\\"probe_key')
        return all(s in text for s in ("probe_key", _PROBE, "probe_name")) and not any(
            s in text for s in wrong
        )

    def _differ(self, *requests: tuple[list[dict[str, Any]], list[dict[str, Any]] | None]) -> bool:
        """Whether these requests give different prompts (or one gives an error)."""
        try:
            return len({self.render(messages, tools) for messages, tools in requests}) > 1
        except InvalidRequest:
            return True


def _call(style: CallStyle) -> dict[str, Any]:
    """A probing assistant message with one tool call."""
    arguments: Any = {"probe_key": _PROBE}
    if style.text_arguments:
        arguments = json.dumps(arguments)
    call = {
        "type": "function",
        "id": "call00000",
        "function": {"name": "probe_name", "arguments": arguments},
    }
    content = None if style.null_content else ""
    return {"role": "assistant", "content": content, "tool_calls": [call]}
