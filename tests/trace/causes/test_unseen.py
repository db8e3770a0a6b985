"""Wordings and logs that once were named wrongly, or named at all."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from agentkv.trace.analyse import analyse
from agentkv.trace.call import Call, Part, Piece, Where
from agentkv.trace.causes.change import Change
from agentkv.trace.causes.standing import Standing
from agentkv.trace.causes.text import chunks
from agentkv.trace.causes.values import kind_of_change, scan
from agentkv.trace.causes.words import matcher
from agentkv.trace.report import CauseRow
from agentkv.trace.tokens import Encoder
from tests.trace.build import call

RULES = " ".join(
    f"Rule {i}: the {a} of the {b} is never shown to a guest before noon."
    for i, (a, b) in enumerate(
        zip(
            ["key", "door", "lamp", "rug", "vase", "chair", "clock", "stair"],
            "bcdefghi",
            strict=True,
        )
    )
)


def causes(calls: Sequence[Call]) -> list[CauseRow]:
    return list(analyse(lambda: calls, fixed=False).causes)


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ("14 h 05", "14 h 09"),
        ("14h05", "15h12"),
        ("9 Uhr 30", "10 Uhr 15"),
        ("14.05 Uhr", "14.09 Uhr"),
        ("9时05分", "10时07分"),
        ("오후 2시 5분", "오후 3시 40분"),
    ],
)
def test_clocks_of_other_places(was: str, now: str) -> None:
    assert kind_of_change(was, now) == "clock"


def test_hours_in_words_are_one_value() -> None:
    (value,) = [v for v in scan("Il est 14 h 05 à la mairie.") if v.kind == "clock"]
    assert (value.start, value.end) == (7, 14)


def test_a_japanese_date_is_the_same_date() -> None:
    assert kind_of_change("17/03/2025", "2025年03月17日") == "locale"
    assert kind_of_change("17/03/2025", "2025年03月18日") != "locale"


@pytest.mark.parametrize(
    "form", ["Il est {} h {:02}. ", "本日は2026年6月11日、現在{}時{:02}分です。"]
)
def test_a_clock_is_named(form: str) -> None:
    calls = [
        call(("user", f"Question {i}?"), system=form.format(9 + i // 6, (i * 7) % 60) + RULES)
        for i in range(12)
    ]
    assert [(c.reason, c.rule) for c in causes(calls)] == [("text_changed", "KV101")]


def passages(seed: int, count: int) -> list[str]:
    rng = random.Random(seed)
    words = [
        f"{a}{b}"
        for a in ["ka", "lo", "mi", "nu", "pe", "ra", "si", "tu"]
        for b in ["bel", "dor", "fin", "gam"]
    ]
    return [" ".join(rng.choice(words) for _ in range(60)) for _ in range(count)]


def test_a_passage_found_twice_is_no_loss() -> None:
    """Two questions in a row have one passage of four in common: luck, and no layout's fault."""
    pool = passages(1, 60)
    rng = random.Random(2)
    calls = []
    for i in range(24):
        found = [*rng.sample(pool, 3), pool[i // 2]]
        body = "\n\n".join(f"({k + 1}) {p}" for k, p in enumerate(found))
        calls.append(call(("user", f"Passages:\n\n{body}\n\nQuestion: is it {i}?"), system=RULES))
    assert causes(calls) == []


def test_fixed_words_behind_new_passages_are_a_loss() -> None:
    """Though they are the smaller part of the turn."""
    pool = passages(3, 96)
    calls = []
    for i in range(24):
        body = "\n\n".join(pool[4 * i : 4 * i + 4])
        calls.append(call(("user", f"Passages:\n\n{body}\n\n{RULES}"), system="Be brief."))
    (cause,) = causes(calls)
    assert cause.reason == "text_changed" and cause.count >= 20


def test_what_stands_is_learnt_and_forgotten_by_number() -> None:
    standing = Standing()
    text = "these nine words stand behind the question every time"
    assert standing.knows(text, same=False)  # nothing to be measured by
    standing.note(["quite another text of nine words is what stood"])
    assert not standing.knows(text, same=True)
    standing.note([text])
    standing.note([text])
    assert standing.knows(text, same=True) and standing.knows("And " + text, same=False)
    for i in range(40):
        standing.note([f"text number {i} of some other call that holds passage {i}"])
    assert standing.knows(text, same=True) and not standing.knows(text, same=False)


def test_a_cause_counts_a_call_once() -> None:
    """However many of its tools are written with other bytes."""
    rng = random.Random(4)

    def tool(name: str) -> tuple[str, str]:
        keys = [f'"{k}": {{"type": "string"}}' for k in rng.sample("abcdefgh", 8)]
        return name, f'{{"name": "{name}", "parameters": {{{", ".join(keys)}}}}}'

    calls = [
        call(("user", f"Question {i}?"), tools=[tool(n) for n in ("one", "two", "three", "four")])
        for i in range(12)
    ]
    (cause,) = causes(calls)
    assert (cause.rule, cause.count) == ("KV504", 11)


def test_chunks_are_the_text() -> None:
    text = "One. Two!\r\n<doc id='1'>\nx <b>y</b>. z\n\n\u2028a\u0085b. c"
    assert "".join(chunks(text)) == text
    assert chunks("a. b\nc\n") == ["a. ", "b\n", "c\n"]


def test_blank_bits_of_long_lists_only_join_matches() -> None:
    a = [w for i in range(120) for w in (f"a{i}", " ")]
    b = [w for i in range(120) for w in (f"b{i}", " ")]
    assert [op for op, *_ in matcher(a, b).get_opcodes()] == ["replace"]
    b[100:110] = a[50:60]
    assert any(size >= 10 for _, _, size in matcher(a, b).get_matching_blocks())


# -- digests without text --------------------------------------------------------------------------


def mute(calls: Sequence[Call], *, blocks: bool = False) -> list[Call]:
    """The calls as a recording without text holds them."""
    out = []
    for c in calls:
        parts = tuple(
            Part(p.name, p.kind, p.role, tuple(_mute(x) for x in p.pieces)) for p in c.parts
        )
        out.append(Call(c.where, c.model, session="s" if blocks else c.session, parts=parts))
    return out


def _mute(piece: Piece) -> Piece:
    return Piece(piece.kind, "", piece.name, redacted=True, key=piece.key, size=piece.size)


def say(role: str, *texts: str, index: int) -> Part:
    return Part(f"messages[{index}]", "history", role, tuple(Piece("text", t) for t in texts))


def talk(*messages: tuple[str, tuple[str, ...]], number: int = 0) -> Call:
    parts = [say(role, *texts, index=i) for i, (role, texts) in enumerate(messages)]
    return Call(Where("log", number + 1), model="m", session="s", parts=tuple(parts))


WORDS = passages(5, 40)


def pair(*, first: Sequence[tuple[str, tuple[str, ...]]], then: Sequence[tuple[str, tuple[str, ...]]]) -> list[CauseRow]:  # fmt: skip
    return causes(mute([talk(*first), talk(*then, number=1)]))


TURNS = [
    ("system", (RULES,)),
    *(("user" if i % 2 == 0 else "assistant", (WORDS[i],)) for i in range(8)),
    ("user", (WORDS[8],)),
]


def test_messages_gone_are_proven_by_digests() -> None:
    (cause,) = pair(first=TURNS, then=[TURNS[0], *TURNS[3:], ("user", (WORDS[9],))])
    assert (cause.reason, cause.rule) == ("history_truncated", "KV401")


def test_an_answer_without_a_block_is_not_a_message_gone() -> None:
    """Thoughts that were stripped look so; so may anything, and no rule is named."""
    first = [TURNS[0], TURNS[1], ("assistant", (WORDS[20], WORDS[21])), *TURNS[3:]]
    then = [TURNS[0], TURNS[1], ("assistant", (WORDS[21],)), *TURNS[3:], ("user", (WORDS[9],))]
    (cause,) = pair(first=first, then=then)
    assert (cause.reason, cause.rule) == ("history_edited", None)


def test_another_answer_of_unknown_words_has_no_rule() -> None:
    then = [*TURNS[:2], ("assistant", (WORDS[1][:-3],)), *TURNS[3:], ("user", (WORDS[9],))]
    (cause,) = pair(first=TURNS, then=then)
    assert (cause.reason, cause.rule) == ("history_edited", None)


@pytest.mark.parametrize(("cut", "rule"), [(40, "KV402"), (-2, None)])
def test_a_message_that_shrank_was_edited(cut: int, rule: str | None) -> None:
    """A few characters less may be white space or another format."""
    then = [*TURNS[:3], ("user", (WORDS[2][:cut],)), *TURNS[4:], ("user", (WORDS[9],))]
    (cause,) = pair(first=TURNS, then=then)
    assert (cause.reason, cause.rule) == ("history_edited", rule)


def test_examples_and_lists_of_unknown_words_have_no_rule() -> None:
    """That messages stand in another order is all that digests show."""
    shots = [[("user", (WORDS[i],)), ("assistant", (WORDS[i + 1],))] for i in range(0, 12, 2)]
    calls = []
    for i in range(8):
        order = random.Random(i).sample(shots, len(shots))
        said = [("system", (RULES,)), *(m for s in order for m in s), ("user", (f"q{i}",))]
        one = talk(*said, number=i)
        calls.append(Call(one.where, "m", session=f"s{i}", parts=one.parts))
    named = causes(calls)
    assert [(c.reason, c.rule) for c in named] == [("text_changed", "KV308")]
    assert {c.rule for c in causes(mute(calls))} == {None}


def test_tools_without_names_that_changed_have_no_rule() -> None:
    def one(texts: Sequence[str], number: int) -> Call:
        pieces = tuple(Piece("tool", t) for t in texts)
        parts = (Part("tools", "tools", None, pieces), say("user", f"q{number}", index=1))
        return Call(Where("log", number + 1), model="m", session="s", parts=parts)

    other = causes(mute([one(WORDS[:6], 0), one([WORDS[7], *WORDS[1:6]], 1)]))
    assert [(c.reason, c.rule) for c in other] == [("tool_changed", None)]
    fewer = causes(mute([one(WORDS[:6], 0), one(WORDS[1:6], 1)]))
    assert [(c.reason, c.rule) for c in fewer] == [("tool_changed", "KV502")]


def test_the_question_of_the_last_call_reworded_is_an_edit() -> None:
    """Its answer stood behind it, and cannot be reused."""
    calls, said = [], [("user", "Hello."), ("assistant", "Good day.")]
    for i in range(6):
        asked = f"What of room {i}?"
        calls.append(
            call(*said, ("user", f"{asked}\n{WORDS[i]}"), system=RULES, answer=WORDS[20 + i])
        )
        said += [("user", asked), ("assistant", WORDS[20 + i])]
    assert [(c.reason, c.rule) for c in causes(calls)] == [("history_edited", "KV402")]


# -- exact account ---------------------------------------------------------------------------------


def test_half_a_value_is_not_overcome() -> None:
    """The date of a clock is the same in all calls, and matched; the time is not, and is to blame
    together with the name behind it, to the token."""
    head, middle, tail = "You guide guests. It is ", f". {RULES[:200]} Guest: ", f".\n{RULES}"
    said = [("2026-06-11 10:05:33", "Ada Obi"), ("2026-06-11 11:17:48", "Bruno Silva")]
    calls = [
        call(("user", f"Question {i}?"), system=f"{head}{clock}{middle}{name}{tail}", number=i)
        for i, (clock, name) in enumerate(said)
    ]
    encode = Encoder().encode
    between, behind = len(encode(middle.rstrip())), len(encode(tail))
    lost = {c.rule: c.tokens_lost for c in causes(calls)}
    assert set(lost) == {"KV101", "KV202"}
    assert lost["KV101"] - lost["KV202"] == pytest.approx(between, abs=1)
    assert sum(lost.values()) == pytest.approx(between + behind, abs=6)  # and the turn's own marks


def test_a_value_is_overcome_when_all_of_it_was_matched() -> None:
    change = Change(10, "text_changed", None, "clock", "system", "system", end=16)
    assert [change.overcome(n) for n in (10, 12, 15, 16)] == [False, False, False, True]
    gone = Change(10, "text_changed", None, "words", "system", "system")
    assert [gone.overcome(n) for n in (10, 11)] == [False, True]
