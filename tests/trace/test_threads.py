"""Which conversation a call belongs to, where the log does not say."""

from __future__ import annotations

import random
from dataclasses import replace

from agentkv.trace.call import Call
from agentkv.trace.threads import Threads
from tests.trace.build import call, chat


def sessions(calls: list[Call]) -> list[str]:
    threads = Threads()
    return [threads.place(c).session for c in calls]


def test_the_log_s_own_names_are_taken() -> None:
    named = [replace(c, session="s1") for c in chat(2)] + [replace(chat(1)[0], session="s2")]
    assert sessions(named) == ["s1", "s1", "s2"]


def test_interleaved_conversations_are_told_apart() -> None:
    rng = random.Random(0)
    queues = {n: chat(6, name=n) for n in ("anna", "bert", "carl")}
    order = [n for n in queues for _ in range(6)]
    rng.shuffle(order)
    found: dict[str, set[str]] = {n: set() for n in queues}
    threads = Threads()
    for name in order:
        found[name].add(threads.place(queues[name].pop(0)).session)
    assert all(len(s) == 1 for s in found.values())
    assert len(set.union(*found.values())) == 3


def test_answers_that_were_not_logged_do_not_matter() -> None:
    assert len(set(sessions([replace(c, answer=()) for c in chat(6)]))) == 1


def test_a_sliding_window_is_one_conversation() -> None:
    whole = chat(12)
    windows = []
    for one in whole:
        talk = [p for p in one.parts if p.role != "system"]
        windows.append(replace(one, parts=(one.parts[0], *talk[-5:])))
    assert len(set(sessions(windows))) == 1


def test_an_edited_message_is_the_same_conversation() -> None:
    calls = chat(5)
    edited = []
    for number, one in enumerate(calls):
        parts = list(one.parts)
        if number > 2:
            parts[2] = replace(
                parts[2], pieces=(replace(parts[2].pieces[0], text="[cleared]", key=""),)
            )
        edited.append(replace(one, parts=tuple(parts)))
    assert len(set(sessions(edited))) == 1


def test_a_branch_is_a_conversation_of_its_own() -> None:
    base = chat(3)
    other = call(
        *[(p.role or "", p.text) for p in base[1].parts[1:-1]],
        ("user", "something else entirely, in another direction"),
    )
    names = sessions([base[0], base[1], other, base[2]])
    assert names[0] == names[1] == names[3] != names[2]


def test_questions_to_one_prompt_are_apart() -> None:
    calls = [call(("user", f"question number {n}")) for n in range(5)]
    assert len(set(sessions(calls))) == 5
    threads = Threads()
    assert len({threads.place(c).group for c in calls}) == 1


def test_a_clock_at_the_head_makes_no_other_call_site() -> None:
    threads = Threads()
    groups = {
        threads.place(call(("user", f"q{n}"), system=f"10:0{n}:17 {n}\nYou sort mail.")).group
        for n in range(5)
    }
    assert len(groups) == 1
