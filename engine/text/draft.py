"""One request on its way to a prompt text: checked, and rendered with and without marks."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from agentkv.engine.errors import InvalidRequest
from agentkv.engine.text.canonical import canonical_json, canonical_tools, plain
from agentkv.engine.text.marks import CUT, MAX_OWNERS, Marked, Pen, read_marks
from agentkv.engine.text.messages import Message, check_text, check_tree, read_messages
from agentkv.engine.text.owners import Owner, assign_owners, write_messages
from agentkv.engine.text.spans import Region, merge
from agentkv.engine.text.template import ChatTemplate

_COARSE_BORDERS = 64


class Draft:
    """One call of `render`: the checked request, and the ways to render it.

    `owners` are the parts of the request that get spans. Raises `InvalidRequest` for a request
    that cannot be rendered as it is meant.
    """

    def __init__(
        self,
        template: ChatTemplate,
        control: re.Pattern[str],
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        generation_prompt: bool,
        continued: bool,
        template_kwargs: Mapping[str, Any] | None,
    ) -> None:
        self._template = template
        self._control = control
        self.generation_prompt = generation_prompt
        self._continued = continued
        self._kwargs = plain(template.check_kwargs(template_kwargs), param="chat_template_kwargs")
        check_tree(self._kwargs, "chat_template_kwargs", "chat_template_kwargs")
        self._tools = canonical_tools(tools) if tools else []
        check_text(canonical_json(self._tools), "tools", "tools")
        if self._tools and not template.renders_tools():
            raise InvalidRequest(
                "This model's chat template leaves out tool definitions; the model would never "
                "see them.",
                param="tools",
            )
        self.messages = read_messages(messages, template)
        if continued:
            last = self.messages[-1]
            if last.role != "assistant" or last.calls:
                raise InvalidRequest(
                    "continue_final_message needs an assistant message with text at the end.",
                    param="continue_final_message",
                )
        self._speaks = any(m.text.strip() or m.calls for m in self.messages)
        self.owners = assign_owners(self.messages, self._tools)
        self._homes: dict[str, int | None] | None = None
        if len(self.owners.all) > MAX_OWNERS:
            raise InvalidRequest("Too many messages.", param="messages")

    def message_of(self, owner: Owner) -> int | None:
        """The message that a region of the rendered text belongs to."""
        if self._homes is None:
            self._homes = dict(
                zip((o.name for o in self.owners.all), self.owners.message, strict=True)
            )
        return self._homes.get(owner.name)

    def think(self, thoughts: Mapping[int, str]) -> None:
        """Give messages (by their number) the thoughts that led to them."""
        for index, thought in thoughts.items():
            self.messages[index] = replace(self.messages[index], reasoning=thought or None)
        self.owners = assign_owners(self.messages, self._tools)
        self._homes = None

    def rendered(self) -> tuple[Marked, bool]:
        """The prompt text, and whether its marks say where every part lies."""
        wanted = self._render(Pen(self._control))
        for names, contents in ((True, True), (False, True)):
            try:
                marked = self._render(
                    Pen(self._control, literals=True, contents=contents, names=names)
                )
            except InvalidRequest:
                continue
            # A template that keeps no mark at all has turned the content inside out.
            if marked.text == wanted.text and (marked.events or not self._speaks):
                return marked, True
        # Control tokens in content are text, even for a template that would look at them.
        return self._render(Pen(self._control, literals=True)), False

    def coarse(self, text: str) -> list[Region]:
        """Regions of a text without marks: message borders, by rendering the first ones alone."""
        total = len(self.messages)
        counts = list(range(1, total))
        if total > _COARSE_BORDERS:
            counts = [*range(1, _COARSE_BORDERS // 4), *range(total - _COARSE_BORDERS, total)]
        pen = Pen(self._control, literals=True)
        starts = [(0, self._owner(0))]
        for count in counts:
            try:
                head = self._render(pen, self.messages[:count]).text
            except InvalidRequest:
                continue
            if starts[-1][0] < len(head) < len(text) and text.startswith(head):
                starts.append((len(head), self._owner(count)))
        if self.generation_prompt:
            head = ""
            with contextlib.suppress(InvalidRequest):
                head = self._render(pen, self.messages).text
            if starts[-1][0] < len(head) < len(text) and text.startswith(head):
                starts.append((len(head), Owner("generation_prompt", "template")))
        return merge(starts, len(text))

    def _owner(self, message: int) -> Owner:
        return self.owners.all[self.owners.calls[message]]

    def _render(self, pen: Pen, head: list[Message] | None = None) -> Marked:
        """Render all messages, or only the first ones (then without a generation prompt)."""
        style = self._template.call_style()
        messages = write_messages(
            self.messages if head is None else head,
            self.owners,
            pen,
            text_arguments=style.text_arguments,
            null_content=style.null_content,
        )
        continued = self._continued and head is None
        if continued:
            # The space behind tells whether the template trims the end of a message.
            messages[-1]["content"] = f"{messages[-1]['content'] or ''}{CUT} "
        tool_owner = self.owners.tools or 0
        text = self._template.render(
            messages,
            [pen.tool(tool_owner, tool) for tool in self._tools],
            add_generation_prompt=self.generation_prompt and head is None,
            template_kwargs=pen.tree(self._kwargs),
        )
        if continued:
            place = text.rfind(CUT)
            if place < 0:
                raise InvalidRequest(
                    "This model's chat template leaves out the message to be continued.",
                    param="continue_final_message",
                )
            trimmed = text[place + len(CUT) : place + len(CUT) + 1] != " "
            text = text[:place].rstrip() if trimmed else text[:place]
        return Marked(text) if pen.plain else read_marks(text)
