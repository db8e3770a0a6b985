"""Conversations that are rendered anew each time: what must still be known as one, and what not."""

from __future__ import annotations

import random
from dataclasses import replace

from agentkv.trace import threads as room
from agentkv.trace.call import Call, Part, Piece, Where
from agentkv.trace.sites import SITES, Sites
from agentkv.trace.threads import Threads
from tests.trace.build import Said, call, chat
from tests.trace.test_threads import sessions

RULES = " ".join(f"Rule {n}: keep the {w} dry and report it to the harbour master." for n, w in
                 enumerate(("cargo", "deck", "rope", "engine", "galley", "bridge", "hold", "mast")))  # fmt: skip


def unanswered(calls: list[Call]) -> list[Call]:
    return [replace(c, answer=()) for c in calls]


def test_white_space_punctuation_and_key_order_make_no_other_conversation() -> None:
    calls = unanswered(chat(6))
    drifting = []
    for number, one in enumerate(calls):
        parts = [
            replace(p, pieces=(Piece("text", p.text.replace(" ", "  \r\n") + "!" * number),))
            if number % 2
            else p
            for p in one.parts
        ]
        drifting.append(replace(one, parts=tuple(parts)))
    assert len(set(sessions(drifting))) == 1

    def asked(arguments: str, *more: Said) -> Call:
        first = call(("user", "find a ship"), ("assistant", ""), *more)
        piece = Piece("tool_call", arguments, "find")
        parts = list(first.parts)
        parts[2] = Part("messages[2]", "history", "assistant", (piece,))
        return replace(first, parts=tuple(parts))

    one = asked('{"a": 1, "b": 2}', ("tool", "ship 4"))
    two = asked('{"b": 2, "a": 1}', ("tool", "ship 4"), ("assistant", "4"), ("user", "more?"))
    assert len(set(sessions([one, two]))) == 1


def test_a_value_in_the_first_message_makes_no_other_conversation() -> None:
    def values(n: int) -> str:
        return f"It is 10:{n:02}:31, request 9f3c{n}-77aa. {RULES} My question: "

    calls = []
    for turn in range(5):
        talk = []
        for i in range(turn + 1):
            talk.append(("user", (values(turn) if i == 0 else "") + f"what of ship number {i}?"))
            if i < turn:
                talk.append(("assistant", f"ship number {i} is on her way to port {i + 3}"))
        calls.append(call(*talk))
    assert len(set(sessions(calls))) == 1


def test_other_questions_behind_the_same_rules_are_apart() -> None:
    asks = ["which lighthouse is the oldest", "how deep is the lock at Kiel", "who built the mole",
            "when does the night ferry sail", "what does a pilot cost"]  # fmt: skip
    calls = [call(("user", f"{RULES} {a}?")) for a in asks]
    assert len(set(sessions(calls))) == len(asks)
    # And each goes on by itself, whichever order they come back in.
    more = [
        call(("user", f"{RULES} {a}?"), ("assistant", f"answer {n}"), ("user", f"and then, {n}?"))
        for n, a in enumerate(asks)
    ]
    random.Random(1).shuffle(more)
    names = sessions([*calls, *more])
    assert len(set(names)) == len(asks)
    first = {c.parts[1].text: s for c, s in zip(calls, names, strict=False)}
    assert all(first[c.parts[1].text] == s for c, s in zip(more, names[len(calls) :], strict=True))


def test_documents_that_are_dropped_from_an_old_question_do_not_part_it() -> None:
    papers = " ".join(f"Paper {n} tells of harbours, tides and tolls." for n in range(30))
    one = call(("user", f"{papers}\nQuestion: which harbour has the highest tolls, and why so?"))
    two = call(
        ("user", "Question: which harbour has the highest tolls, and why so?"),
        ("assistant", "Hamburg, for its locks."),
        ("user", f"{papers}\nQuestion: and the lowest?"),
    )
    three = call(
        *[(p.role or "", p.text) for p in two.parts[1:-1]],
        ("user", "Question: and the lowest?"),
        ("assistant", "Emden."),
        ("user", "Question: since when?"),
    )
    assert len(set(sessions([one, two, three]))) == 1


def test_a_window_of_three_messages_is_one_conversation() -> None:
    windows = []
    for one in unanswered(chat(10)):
        talk = [p for p in one.parts if p.role != "system"]
        windows.append(replace(one, parts=(one.parts[0], *talk[-3:])))
    assert len(set(sessions(windows))) == 1


def test_cleared_results_that_read_alike_do_not_join_conversations() -> None:
    names = []
    threads = Threads()
    for name in ("anna", "bert"):
        for one in unanswered(chat(6, name=name)):
            parts = list(one.parts)
            for i, part in enumerate(parts[:-3]):
                if part.role == "assistant":
                    parts[i] = replace(part, pieces=(Piece("text", "[cleared]"),))
            names.append(threads.place(replace(one, parts=tuple(parts))).session)
    assert len(set(names[:6])) == 1 and len(set(names[6:])) == 1 and len(set(names)) == 2


def picture(data: str, *more: Said) -> Call:
    one = call(("user", "describe this picture, please"), *more)
    parts = list(one.parts)
    parts[1] = Part("messages[1]", "question", "user", (*parts[1].pieces, Piece("image", data)))
    return replace(one, parts=tuple(parts))


def test_a_picture_of_other_bytes_is_the_same_message_in_a_history_but_not_alone() -> None:
    first = picture("data:image/png;base64,AAAA")
    assert len(set(sessions([first, picture("data:image/png;base64,BBBB")]))) == 2
    assert len(set(sessions([first, first]))) == 1
    later = picture("data:image/png;base64,CCCC", ("assistant", "a ship"), ("user", "which one?"))
    assert len(set(sessions([first, later]))) == 1


def test_agents_under_one_name_are_threads_of_it() -> None:
    main = [replace(c, session="run") for c in chat(4, system=RULES)]
    title = call(("user", "a title for this talk"), system="Write titles of at most five words each, "
                 "without quotation marks or full stops, in the language of the talk.")  # fmt: skip
    threads = Threads()
    order = [main[0], replace(title, session="run"), main[1], main[2], main[3]]
    places = [threads.place(c) for c in order]
    assert {p.session for p in places} == {"run"} and threads.count == 1
    assert [p.thread for p in places] == ["run", "run #2", "run", "run", "run"]


def test_memory_is_bounded() -> None:
    threads = Threads()
    for n in range(room.THREADS + 500):
        threads.place(call(("user", f"question {n} of {n * 7}"), ("user", f"more {n}")))
        threads.place(call(("user", f"alone {n} {n}"), session=f"s{n}"))
    assert len(threads._threads) == room.THREADS
    assert len(threads._holders) <= 2 * room.THREADS
    assert len(threads._named) <= 2 * room.THREADS
    assert threads.count == 2 * (room.THREADS + 500)
    for n in range(200):
        threads.place(call(("user", "hi"), system=" ".join(f"{chr(97 + n % 26)}w{i}" for i in range(9))
                           + " ".join(chr(97 + (n * 31 + i * i) % 26) * 4 for i in range(9))))  # fmt: skip
    assert len(threads._sites._sites) <= SITES


def test_a_site_is_its_instructions_whatever_name_or_clock_they_hold() -> None:
    sites = Sites()
    anna = call(("user", "q"), system=f"User: Anna Smith. It is Monday, 10:31.\n{RULES}")
    carl = call(("user", "r"), system=f"User: Carl Jones. It is Friday, 11:59.\n{RULES}")
    assert sites.of(anna) == sites.of(carl)
    other = call(("user", "q"), system="Translate what follows into French, word for word, and keep "
                 "names, numbers, units and links as they stand in the original text.")  # fmt: skip
    assert sites.of(other) != sites.of(anna)


def test_short_instructions_are_one_site_only_with_the_same_kind_of_tools() -> None:
    sites = Sites()
    help_ = "You are a helpful assistant."
    ships = [(n, "{}") for n in ("find_ship", "book_ship", "list_ships")]
    mails = [(n, "{}") for n in ("send_mail", "read_mail")]
    a = sites.of(call(("user", "q"), system=help_, tools=ships))
    assert sites.of(call(("user", "r"), system=help_, tools=ships[::-1])) == a
    assert sites.of(call(("user", "r"), system=help_, tools=ships[:2])) == a
    assert sites.of(call(("user", "q"), system=help_, tools=mails)) != a


def test_calls_of_nothing_have_a_place_too() -> None:
    threads = Threads()
    assert threads.place(Call(Where("l", 1))).session
    assert threads.place(call(system=None)).session
