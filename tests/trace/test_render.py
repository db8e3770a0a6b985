"""Calls as token ids: lengths, places, and what must be equal."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from agentkv.engine.why import common_prefix
from agentkv.trace.call import Call, Part, Piece, Where, digest
from agentkv.trace.render import Renderer
from agentkv.trace.tokens import Encoder, TokenizerUnusable, opaque
from tests.trace.build import call, chat


def test_spans_and_pieces_cover_the_prompt_in_order() -> None:
    one = call(("user", "hello there"), tools=[("a", '{"name": "a"}'), ("b", '{"name": "b"}')])
    found = Renderer().render(one)
    spans = found.prompt.spans
    assert [s.name for s in spans] == ["tools", "messages[0]", "messages[1]", "generation_prompt"]
    assert spans[0].start == 0 and spans[-1].end == len(found.prompt.token_ids) == found.tokens
    assert all(a.end == b.start for a, b in itertools.pairwise(spans))
    assert spans[0].items == ("a", "b")
    for piece in found.pieces:
        span = spans[piece.part]
        assert span.start <= piece.start < piece.end <= span.end


def test_a_prompt_and_its_answer_begin_the_next_prompt() -> None:
    first, second = (Renderer().render(c) for c in chat(2))
    assert len(first.answer_ids)
    assert common_prefix(first.full, second.prompt.token_ids) == len(first.full)


def test_the_estimate_is_near_a_tokenizer(smollm2_dir: Path) -> None:
    text = (Path(__file__).parents[2] / "README.md").read_text()
    exact = len(Encoder(smollm2_dir).encode(text))
    assert 0.6 * exact < len(Encoder().encode(text)) < 1.4 * exact


def test_equal_texts_have_equal_ids_and_others_part_where_they_part() -> None:
    encoder = Encoder()
    a, b = encoder.encode("the ship leaves at ten"), encoder.encode("the ship leaves at nine")
    assert common_prefix(a, b) == len(a) - 1
    assert (Encoder().encode("the ship leaves at ten") == a).all()


def test_a_picture_is_its_bytes_and_a_redacted_piece_its_digest() -> None:
    def with_image(data: str) -> Call:
        piece = Piece("image", data)
        return Call(Where("l", 1), parts=(Part("messages[0]", "question", "user", (piece,)),))

    one, two = (Renderer().render(with_image(d)).prompt.token_ids for d in ("data:a", "data:b"))
    assert len(one) == len(two) and common_prefix(one, two) == 1
    assert (opaque("k", 50) != opaque("l", 50)).all()
    hidden = Piece("text", "", key="abc", size=400, redacted=True)
    part = Part("messages[0]", "question", "user", (hidden,))
    found = Renderer().render(Call(Where("l", 1), parts=(part,)))
    assert found.pieces[0].end - found.pieces[0].start == 100


def test_blocks_stand_for_tokens() -> None:
    one = Call(
        Where("l", 1), blocks=np.array([0, 7, 8], dtype=np.int32), block_size=512, length=1300
    )
    found = Renderer().render(one)
    assert (found.per_id, found.tokens, len(found.prompt.token_ids)) == (512, 1300, 3)


def test_a_template_that_moves_the_tools_moves_them_here(traces: Path) -> None:
    folder = traces / "chat_templates"
    tools = [
        (n, f'{{"type": "function", "function": {{"name": "{n}", "description": "Find {n}.", '
            f'"parameters": {{"type": "object", "properties": {{}}}}}}}}')
        for n in ("find", "book")
    ]  # fmt: skip
    calls = [
        call(("user", "one"), ("assistant", "two"), ("user", "three"), tools=tools),
        call(
            ("user", "one"), ("assistant", "two"), ("user", "three"), ("assistant", "four"),
            ("user", "five"), tools=tools,
        ),
    ]  # fmt: skip
    kept = {}
    for name in ("Qwen-Qwen2.5-7B-Instruct", "mistralai-Mistral-Nemo-Instruct-2407"):
        renderer = Renderer(template=folder / f"{name}.jinja")
        a, b = (renderer.render(c) for c in calls)
        assert renderer.template_failures == 0
        assert {s.name for s in a.prompt.spans} >= {"tools", "messages[1]", "messages[3]"}
        assert {p.part for p in a.pieces} == {0, 1, 2, 3, 4}
        kept[name[:4]] = common_prefix(a.prompt.token_ids, b.prompt.token_ids) / a.tokens
    # All but the generation prompt stays under one; the tools wander under the other.
    assert kept["Qwen"] > 0.9 > 0.4 > kept["mist"]


def test_a_tokenizer_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(TokenizerUnusable, match="no tokenizer file"):
        Renderer(tokenizer=tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(TokenizerUnusable, match=r"no tokenizer\.json"):
        Renderer(tokenizer=tmp_path)


def test_a_tokenizer_cuts_nothing_off_and_takes_half_a_surrogate(
    smollm2_dir: Path, tmp_path: Path
) -> None:
    found = json.loads((smollm2_dir / "tokenizer.json").read_text("utf-8"))
    found["truncation"] = {
        "direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0,
    }  # fmt: skip
    (tmp_path / "tokenizer.json").write_text(json.dumps(found), "utf-8")
    text = "the ship leaves at ten, and the harbour is empty"
    assert (Encoder(tmp_path).encode(text) == Encoder(smollm2_dir).encode(text)).all()
    assert len(Encoder(smollm2_dir).encode("half of it: \ud83d")) > 4
    assert len(Encoder().encode("half of it: \ud83d")) > 4


def test_ids_come_from_the_cache_only_for_the_same_text() -> None:
    encoder = Encoder()
    long = [f"{n} " + "word " * 100 for n in range(3)]
    fresh = [Encoder().encode(t).tolist() for t in long]
    assert [encoder.encode(t).tolist() for t in long * 2] == fresh * 2
    # A text that reads like the key of a piece is not that piece.
    key = digest("something")
    encoder.encode("a piece of text", key)
    assert encoder.encode(key).tolist() == Encoder().encode(key).tolist()
