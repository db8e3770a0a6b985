from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentkv.engine.text.marks import CLOSE, CUT, OPEN, Pen, owner_mark, read_marks
from agentkv.engine.text.owners import Owner
from agentkv.engine.text.render import Renderer
from agentkv.engine.text.spans import merge, token_spans

from .test_render import check

USER = {"role": "user", "content": "hi"}
EMPTY_CALL: dict[str, Any] = {
    "role": "assistant",
    "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}],
}
EMPTY = {"role": "tool", "content": ""}


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5000), st.text(alphabet="ab <|>\n")), max_size=6))
def test_marks_come_out_as_they_went_in(pieces: list[tuple[int, str]]) -> None:
    import re

    control = re.compile(r"<\|a\|>|<b>")
    pen = Pen(control, literals=True, contents=True, names=True)
    text = "".join(t for _, t in pieces)
    marked = read_marks("T" + pen.content(pieces) + CUT + "T")
    assert marked.text == f"T{text}T"
    assert [(a - 1, b - 1) for a, b in marked.literals] == [
        m.span() for m in control.finditer(text)
    ]
    low, high = len(text) - len(text.lstrip()), len(text.rstrip())
    want: list[tuple[int, int]] = []
    at = 0
    for owner, t in pieces:
        begin, end = max(at, low), min(at + len(t), high)
        at += len(t)
        if begin < end:
            want += [(begin + 1, owner), (end + 1, owner)]
    assert list(marked.events) == want


def test_torn_marks_are_taken_out_and_mean_nothing() -> None:
    mark = owner_mark(3000)
    marked = read_marks(f"a{mark[1]}b{mark[0]}c{CLOSE}d{OPEN}e{OPEN[0]}f")
    assert (marked.text, marked.events, marked.literals) == ("abcdef", (), ())


@pytest.mark.parametrize(
    ("messages", "names"),
    [
        ([USER, EMPTY_CALL, EMPTY], [0, 1, 2]),
        ([USER, EMPTY_CALL, EMPTY, EMPTY, {"role": "assistant", "content": "x"}], [0, 1, 2, 3, 4]),
        ([USER, {"role": "assistant", "content": ""}, USER], [0, 1, 2]),
        ([{"role": "system", "content": ""}, USER], [0, 1]),
        ([{"role": "system", "content": ""}, {"role": "user", "content": " "}], [0, 1]),
    ],
)
def test_messages_without_content_have_their_spans(
    renderer: Renderer, messages: list[dict[str, Any]], names: list[int]
) -> None:
    for generation in (True, False):
        prompt = renderer.render(messages, add_generation_prompt=generation)
        check(prompt)
        got = [s.name for s in prompt.spans if s.kind != "template"]
        assert got == [f"messages[{i}]" for i in names]
        for span in prompt.spans:
            piece = renderer.tokenizer.decode(
                prompt.token_ids[span.start : span.end], skip_special=False
            )
            assert piece.startswith("<|im_start|>")


def test_merge_and_token_spans_cover_everything() -> None:
    a, b = Owner("a", "history"), Owner("b", "history")
    regions = merge([(2, a), (5, a), (5, b), (9, a), (9, b), (12, a)], 20)
    assert [(r.start, r.end, r.owner.name) for r in regions] == [
        (0, 5, "a"),
        (5, 12, "b"),
        (12, 20, "a@2"),
    ]
    starts = np.asarray([0, 4, 4, 7, 13, 19], np.int32)  # the token at 7 is inside b
    spans = token_spans(regions, starts, "x" * 20)
    assert [(s.name, s.start, s.end) for s in spans] == [("a", 0, 3), ("b", 3, 4), ("a@2", 4, 6)]
    # a region in which no token starts has no span; the next one still begins where it should
    spans = token_spans(regions, np.asarray([0, 12], np.int32), "x" * 20)
    assert [(s.name, s.start, s.end) for s in spans] == [("a", 0, 1), ("a@2", 1, 2)]
