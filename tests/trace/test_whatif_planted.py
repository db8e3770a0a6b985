"""Mendings of all planted causes: most of what was lost comes back, and the copy still reads well."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentkv.trace.analyse import analyse
from agentkv.trace.call import Call, Part, Piece
from agentkv.trace.fixes import fix_calls
from agentkv.trace.fixes.base import unlike
from agentkv.trace.fixes.skeleton import Skeleton
from agentkv.trace.readers import read
from agentkv.trace.render import Renderer
from tests.trace.build import call
from tests.trace.causes.logs import FORMATS, HEALTHY, PLANTED, Shape, log

SHAPES = {
    "one session": Shape(seed=1, sessions=1, place="head", style=1),
    "three, interleaved": Shape(seed=4, sessions=3, place="block", style=2, interleaved=True),
    "24, unnamed": Shape(seed=5, sessions=24, named=False, place="user", domain="kitchen"),
}
RULES = "Answer in one sentence.\nName the ship.\nNever guess a date or a price.\n" * 6


def planted(kind: str, shape: Shape, form: str, folder: Path) -> list[Call]:
    path = folder / "log.jsonl"
    path.write_text("\n".join(json.dumps(x) for x in log(kind, shape, form)), "utf-8")
    return list(read([path]))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", PLANTED)
def test_most_of_what_was_lost_comes_back(kind: str, shape: str, tmp_path: Path) -> None:
    calls = planted(kind, SHAPES[shape], "openai", tmp_path)
    found = analyse(lambda: calls, renderer=Renderer())
    rates = found.rates
    assert rates.fixed is not None
    assert rates.now <= rates.fixed <= rates.ceiling + 1e-9
    lost = rates.ceiling - rates.now
    # A value that moves is sent, and computed, in its new place: it cannot all come back.
    assert rates.ceiling - rates.fixed <= max(0.3 * lost, 0.02)
    assert found.causes == () or all(c.fix for c in found.causes)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("kind", HEALTHY)
def test_nothing_is_mended_where_nothing_is_wrong(kind: str, form: str, tmp_path: Path) -> None:
    calls = planted(kind, SHAPES["three, interleaved"], form, tmp_path)
    rates = analyse(lambda: calls, renderer=Renderer()).rates
    assert rates.fixed == rates.now


def test_a_value_moves_with_its_line() -> None:
    calls = [
        call(("user", f"Where is ship {n}?"), system=f"Rules:\nNow: 10:{n:02}:{n * 7 % 60:02} UTC.\n{RULES}")
        for n in range(6)
    ]  # fmt: skip
    for n, fixed in enumerate(fix_calls(lambda: calls, ["volatile"])):
        assert fixed.parts[0].text == f"Rules:\n{RULES}"
        assert [p.text for p in fixed.parts[-1].pieces] == [
            f"Where is ship {n}?", f"Now: 10:{n:02}:{n * 7 % 60:02} UTC.",
        ]  # fmt: skip


def test_what_a_session_keeps_stays_in_front_of_its_history() -> None:
    calls = []
    for n in range(12):
        name = ("Ada Byron", "Max Frisch", "Zoe Kern")[n // 4]
        talk = [("user", f"{name[0]} asks {i}?") for i in range(n % 4 + 1)]
        one = call(*talk, system=f"You talk to {name}.\n{RULES}")
        calls.append(Call(**{**one.__dict__, "session": name}))
    fixed = list(fix_calls(lambda: calls, ["volatile"]))
    last = fixed[-1]
    assert last.parts[0].text.startswith("Answer in one sentence.")
    assert last.parts[0].pieces[-1].text == "You talk to Zoe Kern."
    assert "Zoe" not in last.parts[-1].text


def test_a_changing_block_and_a_changing_message_go_behind_fixed_ones() -> None:
    calls = []
    for n in range(6):
        system = Part("system", "instructions", "system", (
            Piece("text", f"Request {n * 7919:08x}"), Piece("text", RULES)))  # fmt: skip
        ask = Part("messages[0]", "history", "user", (Piece("text", f"Where is ship {n}?"),))
        docs = Part("messages[1]", "question", "user", (Piece("text", "Documents:\n" + RULES),))
        calls.append(Call(call().where, parts=(system, ask, docs)))
    for n, fixed in enumerate(fix_calls(lambda: calls, ["question"])):
        texts = [[p.text for p in part.pieces] for part in fixed.parts]
        assert texts[0] == [RULES]
        assert texts[1][0].startswith("Documents:")
        assert texts[2] == [f"Where is ship {n}?", f"Request {n * 7919:08x}"]


@pytest.mark.parametrize(
    ("fix", "now"),
    [
        ("whitespace", RULES.replace("\n", "\r\n")),
        ("whitespace", "  " + RULES.replace("\n", " \n\n")),
        ("whitespace", RULES.replace("price", "pri\u200bce")),
        ("locale", RULES),
    ],
)
def test_a_form_is_taken_back_and_nothing_else(fix: str, now: str) -> None:
    was, is_now = (
        ("Limit 12,345.60 EUR.\n", "Limit 12.345,60 EUR.\n") if fix == "locale" else ("", "")
    )
    calls = [
        call(("user", "one"), system=was + RULES),
        call(("user", "two  2"), system=is_now + now),
    ]
    first, second = fix_calls(lambda: calls, [fix])
    assert second.parts[0].text == first.parts[0].text == was + RULES
    assert second.parts[1].text == "two  2"
    assert list(fix_calls(lambda: calls, ["json"]))[1].parts[0].text == is_now + now


def test_other_words_are_no_form() -> None:
    calls = [
        call(("user", "x"), system=RULES),
        call(("user", "x"), system=RULES.replace("ship", "boat")),
    ]
    fixed = list(fix_calls(lambda: calls, ["whitespace", "locale"]))
    assert [c.parts[0].text for c in fixed] == [c.parts[0].text for c in calls]


def test_documents_with_tags_and_numbers_stand_as_they_first_did() -> None:
    texts = [
        f"The harbour of town {w} is open on weekdays.\nIts pilot is {w * 2}." for w in "abcde"
    ]

    def written(order: str, ask: str) -> str:
        papers = "\n".join(
            f'<document index="{i}">\n{texts["abcde".index(w)]}\n</document>'
            for i, w in enumerate(order, 1)
        )
        return f"Documents:\n{papers}\n\nQuestion: {ask}"

    calls = [call(("user", written("abcde", "When?"))), call(("user", written("dbeca", "Who?")))]
    fixed = list(fix_calls(lambda: calls, ["documents"]))
    assert fixed[1].parts[1].text == written("abcde", "Who?")


def test_one_model_for_a_site() -> None:
    calls = [
        call(("user", f"q{n}"), system=RULES, model=("a", "b")[n % 2], salt=str(n))
        for n in range(4)
    ]
    fixed = list(fix_calls(lambda: calls, ["model"]))
    assert {(c.model, c.salt) for c in fixed} == {("a", "0")}


def test_a_skeleton_learns_fast_and_says_so_when_a_text_does_not_fit() -> None:
    found = Skeleton(f"Now: 10:00.\n{RULES}Bye, Ada.")
    for n in range(50):
        found.add(f"Now: 11:{n:02}.\n{RULES}Bye, {'Max' if n % 2 else 'Zoe'}.")
    split = found.split(f"Now: 12:30.\n{RULES}Bye, Kim.")
    assert split == (RULES, [(0, "Now: 12:30."), (1, "Bye, Kim.")])
    assert found.split(f"Then: 12:30.\n{RULES[5:]}") is None


def test_lines_that_two_texts_begin_and_end_with() -> None:
    assert unlike("a\nb\nc\nd", "a\nx\nc\nd") == (2, 3)
    assert unlike("a\nbc", "a\nbd") == (2, 0)
    assert unlike("a\na\na", "a\na") == (2, 0)
    assert unlike("x", "x") == (0, 0)
