"""What a call lost, and how the loss is shared out."""

from __future__ import annotations

import random

import pytest

from agentkv.trace.caches.base import namespace_of
from agentkv.trace.caches.choose import cache_model
from agentkv.trace.call import Call, Part, Piece
from agentkv.trace.causes.change import Change, Comparison, Run
from agentkv.trace.causes.finder import Finder, Loss, share
from agentkv.trace.causes.memory import Memory, Past
from agentkv.trace.render import Renderer
from agentkv.trace.threads import Threads
from tests.trace.build import call, chat

RULES = " ".join(
    f"Rule {i}: keep the {w} of the ship dry." for i, w in enumerate("abcdefghijklmno")
)


def change(at: int, rule: str | None, *, label: str = "", closing: bool = False) -> Change:
    return Change(
        at, "text_changed", rule, "words", "system", "user" if closing else "system", label,
        closing=closing,
    )  # fmt: skip


def test_a_stretch_is_shared_by_what_stands_in_front_of_it() -> None:
    changes = (change(10, "KV101"), change(30, "KV103"), change(60, "KV202"))
    runs = (
        Run(0, 10, "system"),
        Run(12, 30, "system"),
        Run(35, 60, "system"),
        Run(70, 100, "system"),
    )
    shares, _ = share(Comparison(changes, runs), 10, 200, same=True)
    assert shares == {0: 18 + 25 / 2 + 10, 1: 25 / 2 + 10, 2: 10}
    assert sum(shares.values()) == pytest.approx(18 + 25 + 30)


def test_changes_of_one_place_count_once() -> None:
    changes = (
        change(10, None, label="now: "),
        change(20, None, label="now: "),
        change(25, "KV202"),
    )
    shares, _ = share(Comparison(changes, (Run(30, 90, "system"),)), 10, 200, same=True)
    assert shares == {0: 30.0, 2: 30.0}


def test_what_another_call_already_matched_is_not_lost() -> None:
    changes = (change(10, "KV101"), change(50, "KV202"))
    runs = (Run(12, 50, "system"), Run(60, 100, "system"))
    shares, _ = share(Comparison(changes, runs), 45, 200, same=True)
    # The first change was overcome; only the second is to blame for what is behind it.
    assert shares == {0: 5.0, 1: 40.0}
    assert share(Comparison(changes, runs), 150, 200, same=True)[0] == {}


def test_a_new_question_with_little_fixed_text_behind_it_is_healthy() -> None:
    asks = (change(10, None, closing=True),)
    for size, lost in ((20, False), (60, True)):
        runs = (Run(20, 20 + size, "user", closing=True),)
        assert bool(share(Comparison(asks, runs), 10, 200, same=True)[0]) is lost


def judged(calls: list[Call]) -> tuple[Finder, list[Loss]]:
    finder, threads, renderer, cache = Finder(), Threads(), Renderer(), cache_model("agentkv")
    out: list[Loss] = []
    for one in calls:
        rendered = renderer.render(one)
        namespace = namespace_of(one)
        matched = cache.call(one, rendered, namespace).cached
        out.append(
            finder.call(
                one, rendered, session=threads.place(one).session, namespace=namespace, matched=matched
            )
        )  # fmt: skip
    return finder, out


def test_growing_is_no_loss() -> None:
    finder, losses = judged(chat(6))
    assert [x.reason for x in losses] == ["first_call", *["appended"] * 5]
    assert finder.ledger.rows() == ()


def test_loss_is_not_more_than_the_prompt_and_rows_sum_to_it() -> None:
    rng = random.Random(5)
    calls = []
    for i in range(40):
        words = [f"Clock 10:{rng.randrange(60):02d}.", f"Id {rng.getrandbits(64):016x}."]
        rng.shuffle(words)
        calls.append(
            call(("user", f"q{i}?"), system=f"{words[0]} {RULES} {words[1]} {RULES}", number=i)
        )
    finder, losses = judged(calls)
    renderer = Renderer()
    for one, loss in zip(calls, losses, strict=True):
        assert 0 <= loss.tokens < renderer.render(one).tokens
        assert sum(loss.by_reason.values()) == pytest.approx(loss.tokens, abs=1)
    rows = finder.ledger.rows()
    assert {"KV101", "KV103"} <= {r.rule for r in rows}
    assert sum(r.tokens_lost for r in rows) == pytest.approx(finder.ledger.lost, abs=8 * len(rows))
    assert sum(r.share for r in rows) == pytest.approx(1)


def test_another_model_is_named_before_anything_else() -> None:
    calls = [call(("user", "hello?"), system=RULES, model=f"m{i % 2}", number=i) for i in range(4)]
    finder, _ = judged(calls)
    (row,) = finder.ledger.rows()
    assert (row.reason, row.rule, row.count) == ("model_changed", "KV507", 1)


def test_another_salt_is_another_cache() -> None:
    calls = [call(("user", "hello?"), system=RULES, salt=f"key{i}", number=i) for i in range(4)]
    finder, _ = judged(calls)
    (row,) = finder.ledger.rows()
    assert (row.reason, row.rule, row.count) == ("other_namespace", "KV707", 3)


def test_a_picture_with_a_new_signature_in_a_single_turn() -> None:
    def one(i: int) -> Call:
        picture = Piece("image", f"https://img.example/plan.png?sig={i * 7919:x}")
        said = (picture, Piece("text", f"What is in room {i}?"))
        return Call(
            call().where, model="m",
            parts=(Part("messages[0]", "instructions", "system", (Piece("text", RULES),)),
                   Part("messages[1]", "question", "user", said)),
        )  # fmt: skip

    finder, _ = judged([one(i) for i in range(5)])
    (row,) = finder.ledger.rows()
    assert row.rule == "KV112" and row.tokens_lost >= 4 * 200


def test_where_a_value_stays_the_same() -> None:
    calls = []
    for i in range(12):
        who = ["Ada Byron", "Bo Li", "Cy Twombly"][i % 3]
        talk = [("user", f"{who} asks about pier {k}?") if k % 2 == 0 else ("assistant", f"Pier {k} of {who}.")
                for k in range(2 * (i // 3) + 1)]  # fmt: skip
        calls.append(call(*talk, system=f"You help {who}. {RULES}", session=f"s{i % 3}", number=i))
    finder, _ = judged(calls)
    (row,) = finder.ledger.rows()
    assert (row.rule, row.constant, row.count) == ("KV202", "session", 2)
    assert row.first.compared_with is not None and row.first.was and row.first.now


def test_another_site_is_not_compared() -> None:
    other = "Write titles of five words. " + " ".join(
        f"Never use the word {w}." for w in "pqrstuvw"
    )
    calls = [call(("user", f"t{i}"), system=RULES if i % 2 else other, number=i) for i in range(10)]
    assert judged(calls)[0].ledger.rows() == ()


def test_long_prompts_are_remembered_for_fewer_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentkv.trace.causes.memory.HELD_IDS", 500)
    memory = Memory()
    for number in range(20):
        one = call(("user", f"question {number} " * 30), session=f"s{number}")
        memory.keep(Past(number, one, Renderer().render(one), (), f"s{number}"), alike=False)
    kept = [n for n in range(20) if memory.previous(f"s{n}") is not None]
    assert kept == list(range(20 - len(kept), 20)) and 1 <= len(kept) < 10
    held = [memory.previous(f"s{n}") for n in kept]
    assert sum(len(p.ids) for p in held if p is not None) <= 500
