"""Two versions of a text: what changed, what stayed, what only moved."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from agentkv.trace.causes.text import chunks, common_stretch, diff

RULES = "\n".join(
    f"{i}. Rule {i} says that nobody may open door {i * 7} before the bell of the day rang."
    for i in range(1, 12)
)


def kinds(old: str, new: str) -> list[str]:
    return [e.kind for e in diff(old, new).edits]


def test_a_value_is_widened_and_its_label_kept() -> None:
    old = f"Current time: 2026-09-11T08:00:00Z\n{RULES}"
    new = f"Current time: 2026-09-11T08:00:07Z\n{RULES}"
    (edit,) = diff(old, new).edits
    assert (edit.kind, edit.was, edit.now) == (
        "clock",
        "2026-09-11T08:00:00Z",
        "2026-09-11T08:00:07Z",
    )
    assert edit.label == "Current time: "
    assert diff(old, new).runs[-1][1] == len(new)


def test_two_values_of_a_line_are_two_changes() -> None:
    found = diff(
        f"Request a1b2c3d4-1111-2222-3333-444455556666 at 10:05\n{RULES}",
        f"Request b1b2c3d4-1111-2222-3333-444455556677 at 10:09\n{RULES}",
    )
    assert [e.kind for e in found.edits] == ["uuid", "clock"]


def test_order_numbered_or_not() -> None:
    papers = [f"The {w} paper says that {w} is the best of all, in every town." for w in "abcdefg"]
    mixed = random.Random(3).sample(papers, len(papers))
    for form in ("{t}", "[{i}] {t}", "Document {i}: {t}", "<doc id='{i}'>\n{t}\n</doc>"):
        old = "\n".join(form.format(i=i, t=t) for i, t in enumerate(papers, 1)) + f"\n{RULES}"
        new = "\n".join(form.format(i=i, t=t) for i, t in enumerate(mixed, 1)) + f"\n{RULES}"
        assert kinds(old, new) == ["reorder"], form


def test_one_line_with_another_number_did_not_move() -> None:
    assert "reorder" not in kinds(
        f"[0] What is the best way to the old town?\n{RULES}",
        f"[1] What is the best way to the old town?\n{RULES}",
    )


def test_white_space_is_one_change_wherever_it_is() -> None:
    assert kinds(RULES, RULES.replace("\n", "\r\n")) == ["whitespace"]
    assert kinds(RULES, "\n\n" + RULES) == ["whitespace"]
    assert diff(RULES, "\n\n" + RULES).edits[0].at == 0


def test_json_with_other_keys_first() -> None:
    assert kinds('{"a": 1, "b": [1, 2]}', '{"b": [1, 2], "a": 1}') == ["json"]


def test_unrelated_texts_have_nothing_in_common() -> None:
    found = diff("What is the capital of France, please?", "Book a table for nine people tonight.")
    assert found.runs == () and len(found.edits) == 1


def test_common_stretch() -> None:
    other = "Quite another text, which goes on about ships and storms and the sea " * 8
    assert common_stretch(RULES, RULES.replace("bell", "gong"))
    assert common_stretch(other + RULES, RULES)
    assert not common_stretch(RULES, other)


lines = st.lists(st.text(alphabet="ab.?\n <>1:", max_size=12), max_size=8).map("\n".join)


@settings(max_examples=200, deadline=None)
@given(lines, lines)
def test_edits_and_runs_lie_inside_and_runs_are_true(old: str, new: str) -> None:
    assert "".join(chunks(new)) == new
    if old == new:
        return
    found = diff(old, new)
    assert found.edits, "texts that differ have a change"
    for edit in found.edits:
        assert 0 <= edit.at <= edit.end <= len(new) and 0 <= edit.old_at <= len(old)
    reach = 0
    for start, end in found.runs:
        assert reach <= start < end <= len(new)
        reach = end
        if not {"whitespace", "unicode", "json", "reorder"} & {e.kind for e in found.edits}:
            assert new[start:end] in old
