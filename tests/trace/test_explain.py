"""Explaining a pair of requests: where they part, what stood there, and which rule speaks of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from agentkv.trace.call import Call, Piece
from agentkv.trace.explain import NoSuchRequest, explain, explain_id, load
from agentkv.trace.readers import LogError, read
from agentkv.trace.render import Renderer
from tests.trace.build import call, chat
from tests.trace.causes.logs import EXPECTED, PLANTED, Shape, log

RULES = "Answer in one sentence. Name the ship. Never guess a date or a price. " * 6


def planted(kind: str, folder: Path, shape: Shape) -> list[Call]:
    path = folder / "log.jsonl"
    path.write_text("\n".join(json.dumps(x) for x in log(kind, shape)), "utf-8")
    return list(read([path]))


@pytest.mark.parametrize(
    "kind",
    # A locale, a window and white space that comes and goes show in later pairs of calls.
    [k for k in PLANTED if k not in ("sliding_window", "edited_history", "whitespace", "name")],
)
def test_two_calls_are_enough_to_name_the_cause(kind: str, tmp_path: Path) -> None:
    calls = planted(kind, tmp_path, Shape(seed=1, style=2))
    found = explain(calls[9], calls[10], Renderer())
    reasons, rules = EXPECTED[kind]
    assert found.reason in reasons
    assert found.rule in rules
    assert found.tokens_lost > 0 and not found.healthy
    assert found.name and found.advice


def test_the_first_token_that_differs_is_shown_on_both_sides() -> None:
    a = call(("user", "Where is she?"), system=f"Now: 10:15:02.\n{RULES}", answer="In Porto.")
    b = call(("user", "Where is she?"), system=f"Now: 10:16:44.\n{RULES}", number=4)
    renderer = Renderer()
    found = explain(a, b, renderer)
    ids = [renderer.render(c).prompt.token_ids for c in (a, b)]
    first = int(np.argmax(ids[0] != ids[1]))
    assert found.token == found.shared == first
    assert found.context is not None and found.context.endswith("Now: 10:")
    assert found.was is not None and found.was.startswith("15:02.\nAnswer in one sentence")
    assert found.now is not None and found.now.startswith("16:44.\nAnswer in one sentence")
    assert (found.was_token, found.now_token) == ("15", "16")
    assert (found.segment, found.reason, found.rule) == ("messages[0]", "text_changed", "KV101")
    assert found.after.line == 5
    rest = len(ids[1]) - first
    assert 0.8 * rest < found.tokens_lost <= rest
    assert json.loads(json.dumps(found.to_dict()))["now_token"] == "16"


def test_with_a_real_tokenizer_tokens_are_its_own(tiny_words_dir: Path) -> None:
    from tokenizers import Tokenizer

    real = Tokenizer.from_file(str(tiny_words_dir / "tokenizer.json"))
    for template in (None, tiny_words_dir):
        renderer = Renderer(tokenizer=tiny_words_dir, template=template)
        a = call(("user", "Where is the ship?"), system=f"Now: 10:15.\n{RULES}")
        b = call(("user", "Where is the ship?"), system=f"Now: 10:26.\n{RULES}")
        found = explain(a, b, renderer)
        assert found.exact and found.token is not None
        ids = renderer.render(b).prompt.token_ids
        assert found.now_token == real.decode([int(ids[found.token])], skip_special_tokens=False)
        assert found.now is not None and "26.\nAnswer in one" in found.now
        assert found.rule == "KV101"


def test_growth_is_healthy() -> None:
    one, two, three = chat(3, system=RULES)
    found = explain(one, two, Renderer())
    assert (found.reason, found.rule, found.tokens_lost) == ("appended", None, 0)
    assert found.healthy and found.segment == "messages[3]"
    assert found.token == found.shared
    again = explain(three, three, Renderer())
    assert (again.reason, again.token, again.changes) == (None, None, ())


def test_another_question_to_the_same_rules_is_healthy() -> None:
    a, b = (call(("user", f"Where is ship {n}?"), system=RULES) for n in (1, 2))
    found = explain(a, b, Renderer())
    assert found.healthy and found.rule is None
    assert found.segment == "messages[1]"


def test_another_model_shares_nothing() -> None:
    a, b = chat(2, system=RULES)
    found = explain(a, replace(b, model="n"), Renderer())
    assert (found.reason, found.rule, found.shared) == ("model_changed", "KV507", 0)
    assert (found.was, found.now) == ("m", "n")
    assert found.tokens_lost > 100
    found = explain(a, replace(b, salt="x"), Renderer())
    assert (found.reason, found.rule) == ("other_namespace", "KV707")


def test_all_changes_are_listed_and_none_is_counted_twice() -> None:
    a = call(("user", "hello"), system=f"Time: 10:15:02.\n{RULES}\nUser: Ada Byron.\n{RULES}")
    b = call(("user", "hello"), system=f"Time: 10:16:44.\n{RULES}\nUser: Max Frisch.\n{RULES}")
    found = explain(a, b, Renderer())
    assert [c.rule for c in found.changes] == ["KV101", "KV202"]
    assert found.changes[0].at < found.changes[1].at
    assert 0 < found.tokens_lost <= found.after_tokens - found.shared
    # Behind both stands the second half of the rules: each is to blame for half of it.
    assert found.changes[0].tokens_lost > found.changes[1].tokens_lost > 0


def test_sessions_that_differ_do_not_continue_each_other() -> None:
    a = replace(call(("user", "one"), system=RULES, answer="two"), session="x")
    b = replace(call(("user", "three"), system=RULES), session="y")
    assert not explain(a, b, Renderer()).same_session
    assert explain(a, replace(b, session="x"), Renderer()).same_session
    assert explain(a, replace(b, session=None), Renderer()).same_session


def test_what_was_not_recorded_is_not_shown() -> None:
    def hidden(one: Call) -> Call:
        return replace(
            one,
            parts=tuple(
                replace(
                    p,
                    pieces=tuple(
                        Piece(x.kind, "", x.name, redacted=True, key=x.key, size=x.size)
                        for x in p.pieces
                    ),
                )
                for p in one.parts
            ),
        )

    a = call(("user", "hello"), system=f"10:15\n{RULES}")
    b = call(("user", "hello"), system=f"10:16\n{RULES}")
    found = explain(hidden(a), hidden(b), Renderer())
    assert found.segment == "messages[0]"
    assert found.rule is None
    assert set((found.was or "") + (found.now or "")) <= {"…"}


def test_a_hash_trace_says_where_and_not_why(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    rows = [
        {"timestamp": i, "input_length": 1500, "output_length": 5, "hash_ids": [0, i, 9]}
        for i in (1, 2)
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    one, two = read([path])
    found = explain(one, two, Renderer())
    assert (found.token, found.reason, found.was) == (512, "unknown", None)
    assert found.detail is not None and "no text" in found.detail


def test_by_id_in_a_log() -> None:
    calls = [replace(c, id=f"req-{i}", session="s") for i, c in enumerate(chat(4, system=RULES))]
    found = explain_id(calls, "req-3", Renderer())
    assert (found.before.line, found.after.line, found.reason) == (3, 4, "appended")
    other = [replace(c, session=f"s{i}") for i, c in enumerate(calls)]
    clocked = [replace(c, parts=call(("user", "hello"), system=f"10:1{i}:00\n{RULES}").parts)
               for i, c in enumerate(other)]  # fmt: skip
    found = explain_id(clocked, "req-2", Renderer())
    assert found.rule == "KV101" and not found.same_session
    with pytest.raises(NoSuchRequest, match="req-0, req-1"):
        explain_id(calls, "nope", Renderer())
    with pytest.raises(NoSuchRequest, match="first call of its kind"):
        explain_id(calls, "req-0", Renderer())
    with pytest.raises(NoSuchRequest, match="no ids"):
        explain_id(chat(2), "x", Renderer())


def test_a_request_is_a_file_or_a_line_of_one(tmp_path: Path) -> None:
    one, two = tmp_path / "one.json", tmp_path / "two.jsonl"
    body = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
    one.write_text(json.dumps(body, indent=1))
    two.write_text("\n".join([json.dumps(body), "oh", json.dumps({**body, "model": "n"})]))
    assert load(str(one)).model == "m"
    assert load(f"{two}:3").model == "n"
    with pytest.raises(NoSuchRequest, match="more than one request"):
        load(str(two))
    with pytest.raises(NoSuchRequest, match="no request on line 2: not JSON"):
        load(f"{two}:2")
    with pytest.raises(NoSuchRequest, match="no request on line 0: lines count from 1"):
        load(f"{two}:0")
    with pytest.raises(NoSuchRequest, match=r"no request on line 9\."):
        load(f"{two}:9")
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(NoSuchRequest, match="no request that can be read"):
        load(str(tmp_path / "bad.json"))
    with pytest.raises(LogError):
        load(str(tmp_path / "none.json"))
