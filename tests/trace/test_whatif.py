"""What-if: mendings change what they should and nothing else, and the predicted rates are true."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from agentkv.engine import Engine, SamplingParams
from agentkv.trace.caches.choose import cache_model
from agentkv.trace.call import Call, Part, Piece
from agentkv.trace.fixes import MENDINGS, fix_calls
from agentkv.trace.fixes.skeleton import Skeleton
from agentkv.trace.readers import read
from agentkv.trace.render import Renderer
from agentkv.trace.replay import Replay
from agentkv.trace.whatif import as_openai, what_if, write_calls
from tests.trace.build import call, chat

RULES = "Answer in one sentence. Name the ship. Never guess a date or a price. " * 6
TOOLS = [
    (n, f'{{"type": "function", "function": {{"name": "{n}", "description": "Finds the {n} of a '
        f'ship in the register.", "parameters": {{"type": "object", "properties": {{}}}}}}}}')
    for n in ("draught", "owner", "port", "cargo", "crew")
]  # fmt: skip


def clock() -> list[Call]:
    """A clock in front of the rules."""
    return [
        call(("user", f"Where is ship {n}?"), system=f"Now: 10:{n:02}:{n * 7 % 60:02}.\n{RULES}")
        for n in range(12)
    ]


def shuffled_tools() -> list[Call]:
    rng = random.Random(1)
    return [
        call(("user", f"Where is ship {n}?"), system=RULES, tools=rng.sample(TOOLS, 5))
        for n in range(12)
    ]


def window() -> list[Call]:
    """Only the last five messages are sent."""
    out = []
    for one in chat(12, system=RULES):
        talk = [p for p in one.parts if p.role != "system"]
        out.append(replace(one, parts=(one.parts[0], *talk[-5:]), session="s"))
    return out


PLANTED = {"volatile": clock, "tools": shuffled_tools, "history": window}


def rate(calls: list[Call], renderer: Renderer) -> float:
    replay = Replay(cache_model())
    for one in calls:
        replay.call(one, renderer.render(one))
    return replay.total.rate


@pytest.mark.parametrize("fix", PLANTED)
def test_a_mending_raises_the_rate(fix: str) -> None:
    calls = PLANTED[fix]()
    rows = what_if(lambda: calls, [fix], Renderer(), cache_model)
    assert [r.fix for r in rows] == [None, "all", fix]
    assert rows[1].rate > max(0.6, rows[0].rate + 0.1)
    assert rows[1].rate == rows[2].rate


@pytest.mark.parametrize("fix", PLANTED)
def test_the_engine_says_what_was_predicted(
    fix: str, tiny_words_dir: Path, make_engine: Callable[..., Engine]
) -> None:
    renderer = Renderer(tokenizer=tiny_words_dir, template=tiny_words_dir)
    bare = [replace(c, answer=()) for c in PLANTED[fix]()]
    rows = what_if(lambda: bare, [fix], renderer, cache_model)
    engine = make_engine(model=str(tiny_words_dir), pool_tokens=20_000)
    for row, calls in ((rows[0], bare), (rows[1], list(fix_calls(lambda: bare, [fix])))):
        engine.flush()
        prompt = cached = 0
        for one in calls:
            request = as_openai(one)
            out = engine.generate(
                engine.render(request["messages"], request.get("tools")),
                SamplingParams(max_tokens=1, temperature=0.0),
            )
            prompt += out.cache.prompt_tokens
            cached += out.cache.cached_tokens
        assert renderer.template_failures == 0
        assert (prompt, cached / prompt) == (row.prompt_tokens, row.rate)
    assert rows[1].rate > rows[0].rate + 0.1


@pytest.mark.parametrize("fix", MENDINGS)
def test_a_healthy_log_is_no_worse_for_any_mending(fix: str) -> None:
    calls = chat(8, system=RULES)
    before = rate(calls, Renderer())
    after = rate(list(fix_calls(lambda: calls, [fix])), Renderer())
    assert after == pytest.approx(before, abs=0.01)


def test_what_moves_is_all_there_afterwards() -> None:
    calls = clock()
    for before, after in zip(calls, fix_calls(lambda: calls, ["volatile"]), strict=True):
        words = " ".join(p.text for p in before.parts).split()
        moved = " ".join(p.text for p in after.parts)
        assert all(w.strip(".") in moved for w in words)
        assert before.parts[0].text[5:13] in after.parts[-1].text


def test_the_question_goes_behind_the_documents() -> None:
    documents = "\n".join(f"[{i}] The harbour of town {i} is open on weekdays." for i in range(20))
    calls = [
        call(("user", f"Question: when does ship {n} arrive in Porto?\n\nDocuments:\n{documents}"))
        for n in range(8)
    ]
    fixed = list(fix_calls(lambda: calls, ["question"]))
    assert rate(fixed, Renderer()) > rate(calls, Renderer()) + 0.4


def test_thoughts_come_back() -> None:
    thought = Piece("reasoning", "the draught depends on the load and the water. " * 20)
    calls = []
    for one in chat(6):
        parts = one.parts
        calls.append(replace(one, answer=(thought, *one.answer), parts=parts))
    fixed = list(fix_calls(lambda: calls, ["reasoning"]))
    held = [p.kind for part in fixed[3].parts for p in part.pieces]
    assert held.count("reasoning") == 3
    assert [p.kind for part in calls[3].parts for p in part.pieces].count("reasoning") == 0


def test_documents_and_examples_keep_their_first_order() -> None:
    rng = random.Random(2)
    shots = [(f"say {i} in words", f"it is said as number {i}") for i in range(6)]
    calls = []
    for n in range(10):
        mixed = rng.sample(shots, len(shots))
        talk = [t for q, a in mixed for t in (("user", q), ("assistant", a))]
        calls.append(call(*talk, ("user", f"and {n + 50}?")))
    fixed = list(fix_calls(lambda: calls, ["examples"]))
    assert rate(fixed, Renderer()) > rate(calls, Renderer()) + 0.4
    pieces = [Piece("document", f"text of document {i}. " * 10, f"d{i}") for i in range(6)]
    rag = []
    for n in range(10):
        part = Part("messages[1]", "documents", "user", tuple(rng.sample(pieces, 6)))
        one = call(("user", f"question {n}"))
        rag.append(replace(one, parts=(one.parts[0], part, one.parts[1])))
    fixed = list(fix_calls(lambda: rag, ["documents"]))
    assert rate(fixed, Renderer()) > rate(rag, Renderer()) + 0.4


def test_skeleton_keeps_what_all_versions_share() -> None:
    found = Skeleton("Now 10:00:01. The rules of the house are these and no others. Bye Ada.")
    found.add("Now 11:23:59. The rules of the house are these and no others. Bye Bert.")
    found.add("Now 12:00:00. The rules of the house are these and no others. Bye Zoe.")
    split = found.split("Now 09:09:09. The rules of the house are these and no others. Bye Max.")
    assert split is not None
    assert "The rules of the house are these and no others" in split[0]
    assert any("Max" in v for _, v in split[1]) and any("09" in v for _, v in split[1])
    assert found.split("Something else") is None


def test_the_copy_is_a_new_file_and_reads_back(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    calls = shuffled_tools()
    assert write_calls(calls, log, []) == 12
    again = list(read([log]))
    assert [[p.text for p in c.parts] for c in again] == [[p.text for p in c.parts] for c in calls]
    with pytest.raises(FileExistsError, match="the log itself"):
        write_calls(calls, log, [log])
    with pytest.raises(FileExistsError):
        write_calls(calls, log, ["-"])


def test_an_unknown_mending_is_named() -> None:
    with pytest.raises(KeyError, match="no mending is called magic"):
        what_if(list, ["magic"], Renderer(), cache_model)
