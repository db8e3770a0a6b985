"""Messages to a prompt: token ids, and which part of the request each token belongs to.

1. The messages are brought to one form (`messages.py`) and rendered by the model's template.
2. They are rendered again with marks in their content (`marks.py`). If the template gives the same
   text, the marks say where every part lies, and which control tokens are content. If it does not
   (a template may look at how content begins), fewer marks are tried.
3. Only the template's own control tokens become control ids. The text between them is encoded as
   text, taken from memory where it is known, and taken as it was sampled where the model wrote it
   (`replay.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from agentkv.engine.errors import InvalidRequest
from agentkv.engine.text import spans
from agentkv.engine.text.calls.answer import Answer
from agentkv.engine.text.calls.formats import NO_CALLS, format_of, thinks
from agentkv.engine.text.calls.record import CallMemory, Piece, Sampled
from agentkv.engine.text.calls.script import Script
from agentkv.engine.text.draft import Draft
from agentkv.engine.text.marks import Marked
from agentkv.engine.text.replay import Anchor, Stretch, StretchCache
from agentkv.engine.text.template import ChatTemplate
from agentkv.engine.text.tokenizer import Tokenizer
from agentkv.engine.text.walk import Place, Walk
from agentkv.engine.types import RenderedPrompt


class Renderer:
    """Renders chat messages for one model. Safe to use from many threads.

    `replay_entries` bounds how many outputs of the model are remembered, and how many answers with
    tool calls (0: none); `memory_bytes` how much memory each of these, and the texts whose ids are
    known, may take.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        template: ChatTemplate | None,
        *,
        replay_entries: int = 512,
        memory_bytes: int = 32 << 20,
    ) -> None:
        self.tokenizer = tokenizer
        self.template = template
        self._known = StretchCache(entries=65536, nbytes=memory_bytes)
        self._sampled = StretchCache(entries=replay_entries, nbytes=memory_bytes)
        self._answers = CallMemory(entries=replay_entries, nbytes=memory_bytes)
        self._turn_ends = frozenset(
            text for text, i in tokenizer.special_tokens.items() if i in tokenizer.eos_ids
        )

    @classmethod
    def load(cls, model_dir: Path, tokenizer: Tokenizer, *, replay_entries: int = 512) -> Renderer:
        """A renderer with the template of the model in `model_dir`.

        A model without one still loads (it can complete raw prompts); `render` then refuses.
        """
        template = ChatTemplate.load(Path(model_dir), tokenizer.named_tokens)
        return cls(tokenizer, template, replay_entries=replay_entries)

    @property
    def chars_encoded(self) -> int:
        """Characters that went through the tokenizer so far."""
        return self.tokenizer.chars_encoded

    @cached_property
    def script(self) -> Script:
        """How this model writes tool calls and thoughts."""
        form = NO_CALLS if self.template is None else format_of(self.template)
        return Script(form, self.tokenizer)

    @cached_property
    def thinks(self) -> bool:
        """Whether the model's template knows of thoughts."""
        return self.template is not None and thinks(self.template)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        template_kwargs: Mapping[str, Any] | None = None,
        namespace: str = "",
    ) -> RenderedPrompt:
        """The prompt of `messages` (OpenAI's chat shape) and `tools`.

        A text part may carry `{"agentkv": {"name", "kind", "stability", "items"}}` and then gets
        a span of its own; parts of a message are joined as they are. `continue_final_message`
        leaves the last message, an assistant's, open for the model to go on with (and no
        generation prompt is added). `template_kwargs` are further variables of the template.
        Outputs are replayed only within one `namespace`.

        Raises `InvalidRequest` naming the parameter: unsupported content, unknown roles, broken
        Unicode, and whatever the template itself refuses.
        """
        if self.template is None:
            raise InvalidRequest(
                "This model has no chat template. Use a raw prompt (completions), or put a "
                "chat_template.jinja beside the model's files.",
                param="messages",
            )
        draft = Draft(
            self.template,
            self.tokenizer.control,
            messages,
            tools,
            add_generation_prompt and not continue_final_message,
            continue_final_message,
            template_kwargs,
        )
        echoes = self._echoes(draft, namespace)
        thoughts = {
            i: echo.answer.reasoning
            for i, echo in echoes.items()
            if echo.answer.reasoning and draft.messages[i].reasoning is None
        }
        if thoughts:
            draft.think(thoughts)
        prompt, spliced = self._draft_prompt(draft, echoes, namespace)
        if unused := [i for i in thoughts if i not in spliced]:
            # Only an answer that is fed back as it was gets a thought that was not sent back.
            draft.think(dict.fromkeys(unused, ""))
            kept = {i: echo for i, echo in echoes.items() if i not in unused}
            prompt, _ = self._draft_prompt(draft, kept, namespace)
        return prompt

    def _echoes(self, draft: Draft, namespace: str) -> dict[int, Sampled]:
        """The messages that give back an answer of the model unchanged, and that answer."""
        found = {}
        for index, message in enumerate(draft.messages):
            sampled = self._answers.find(namespace, message)
            if sampled is not None:
                found[index] = sampled
        return found

    def _draft_prompt(
        self, draft: Draft, echoes: Mapping[int, Sampled], namespace: str
    ) -> tuple[RenderedPrompt, set[int]]:
        """The prompt, and the messages in it that are answers as they were sampled."""
        marked, exact = draft.rendered()
        controls = list(self._controls(marked))
        ranges = [(a, b) for a, b, _ in controls]
        if exact:
            regions = spans.divide(
                marked.text,
                marked.events,
                draft.owners,
                ranges,
                turn_ends=self._turn_ends,
                generation_prompt=draft.generation_prompt,
            )
        else:
            regions = draft.coarse(marked.text)
        places = []
        if echoes:
            for region in regions:
                index = draft.message_of(region.owner)
                if index is not None and index in echoes:
                    places.append(Place(index, region.start, region.end, echoes[index]))
        walk = Walk(
            marked.text,
            controls,
            namespace,
            stretch=self._stretch,
            sampled=self._sampled,
            turn_ends=self._turn_ends | spans.TURN_ENDS,
            places=places,
        )
        prompt = RenderedPrompt(
            token_ids=walk.ids,
            spans=spans.token_spans(regions, walk.starts, marked.text),
            text=walk.text,
            replayed_tokens=walk.replayed,
            anchor=walk.anchor,
        )
        return prompt, walk.spliced

    def remember(
        self, prompt: RenderedPrompt, output_ids: Sequence[int], *, text: str | None = None
    ) -> None:
        """Take note of what the model sampled behind `prompt`, so that it is fed back as it is.

        `text` is what the client got of it, when a stop string cut the rest. Outputs that cannot
        come back as text (control tokens in them, broken UTF-8) are not kept.
        """
        if prompt.anchor is None or not len(output_ids):
            return
        anchor = Anchor(*prompt.anchor)
        tokenizer = self.tokenizer
        closing = tokenizer.special_ids | tokenizer.eos_ids
        ids = [int(i) for i in output_ids]
        if ids[-1] in closing:
            ids.pop()
        if not ids or not closing.isdisjoint(ids):
            return
        decoded = tokenizer.decode_output(ids)
        if decoded is None:
            return
        said, ends = decoded
        if text is not None and text != said:
            # The text ends at a stop string: keep the tokens up to there, if one ends there.
            if not text or not said.startswith(text):
                return
            count = int(np.searchsorted(ends, len(text), side="left")) + 1
            if ends[count - 1] != len(text):
                return
            said, ids, ends = text, ids[:count], ends[:count]
        tail = prompt.text[anchor.char :]
        before = prompt.token_ids[anchor.token :]
        starts = np.zeros(len(before), np.int32)
        if tail:
            known = self._stretch(tail, anchor.char == 0)
            if np.array_equal(known.ids, before):
                starts = known.starts
        begins = np.concatenate([np.zeros(1, np.int32), ends[:-1]]) + np.int32(len(tail))
        stretch = Stretch(
            np.concatenate([before, np.asarray(ids, dtype=np.int32)]),
            np.concatenate([starts, begins]),
        )
        whole = tail + said
        self._sampled.put((anchor.digest, whole), stretch, key_bytes=4 * len(whole))

    def remember_calls(
        self,
        prompt: RenderedPrompt,
        answer: Answer,
        output_ids: Sequence[int],
        *,
        namespace: str = "",
    ) -> None:
        """Take note of an answer with tool calls, so that it is fed back as it was sampled when a
        client sends its calls back by their ids.

        `output_ids` are all that was sampled behind `prompt` for it. Answers whose calls are no
        whole JSON are not kept, nor is broken UTF-8.
        """
        if prompt.anchor is None or not answer.tool_calls:
            return
        anchor = Anchor(*prompt.anchor)
        tokenizer = self.tokenizer
        ids = [int(i) for i in output_ids]
        if ids and ids[-1] in tokenizer.special_ids | tokenizer.eos_ids:
            ids.pop()
        tail = prompt.text[anchor.char :]
        pieces: list[Piece] = []
        run = prompt.token_ids[anchor.token :].tolist()
        said = tail
        fresh: list[int] = []
        for token in [*ids, None]:
            if token is not None and token not in tokenizer.special_ids:
                fresh.append(token)
                continue
            if fresh:
                decoded = tokenizer.decode_output(fresh)
                if decoded is None:
                    return
                said += decoded[0]
                run += fresh
            if run:
                pieces.append(Piece(said, np.asarray(run, dtype=np.int32)))
            said, run, fresh = "", [], []
            if token is not None:
                text = tokenizer.decode([token], skip_special=False)
                pieces.append(Piece(text, np.asarray([token], dtype=np.int32), control=True))
        self._answers.put(namespace, Sampled(answer, anchor.digest, tail, tuple(pieces)))

    def _controls(self, marked: Marked) -> Iterator[tuple[int, int, int]]:
        """The template's control tokens in order: `(start, end, id)`, swallowed space included."""
        text, literals, tokenizer = marked.text, marked.literals, self.tokenizer
        at = done = which = 0
        while (found := tokenizer.control.search(text, at)) is not None:
            start, end = found.span()
            while which < len(literals) and literals[which][1] <= start:
                which += 1
            if which < len(literals) and literals[which][0] < end:
                at = literals[which][1] if literals[which][0] <= start else start + 1
                continue
            if any(place in marked.seams for place in range(start + 1, end)):
                at = start + 1  # spelled in part by content
                continue
            low, high = tokenizer.swallowed(text, start, end)
            yield max(low, done), high, tokenizer.special_tokens[found.group()]
            at = done = high

    def _stretch(self, text: str, first: bool) -> Stretch:
        """Ids of a text between two control tokens (`first`: nothing stands before it)."""
        key = (first, text)
        found = self._known.get(key)
        if found is None:
            found = Stretch(*self.tokenizer.encode_stretch(text, first=first))
            self._known.put(key, found, key_bytes=4 * len(text))
        return found
