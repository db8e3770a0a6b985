from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentkv.engine.text.detok import OutputText
from agentkv.engine.text.tokenizer import Tokenizer

from .conftest import CONTROL, MakeTokenizer, make_backend


@pytest.fixture(scope="module")
def tokenizer(make_tokenizer: MakeTokenizer) -> Tokenizer:
    return make_tokenizer("chatml")[0]


_CACHE: list[tuple[Tokenizer, dict[bytes, int]]] = []


def small() -> tuple[Tokenizer, dict[bytes, int]]:
    """A tokenizer, and its tokens by their bytes (outside fixtures, for hypothesis)."""
    if not _CACHE:
        tokenizer = Tokenizer(make_backend("chatml"), make_backend("chatml"))
        table = {
            tokenizer.token_bytes(i): i
            for i in range(tokenizer.vocab_size)
            if i not in tokenizer.special_ids
        }
        _CACHE.append((tokenizer, table))
    return _CACHE[0]


def cut(text: str, table: dict[bytes, int], rng: random.Random) -> list[int]:
    """`text` as tokens, cut at random: not the tokenizer's own choice."""
    raw = text.encode()
    ids: list[int] = []
    at = 0
    while at < len(raw):
        sizes = [n for n in range(1, 9) if raw[at : at + n] in table and at + n <= len(raw)]
        size = rng.choice(sizes)
        ids.append(table[raw[at : at + size]])
        at += size
    return ids


def batch(text: str, stops: tuple[str, ...], include: bool) -> tuple[str, str | None]:
    """What the text comes to when all of it is known: letter by letter, up to the first stop."""
    for end in range(1, len(text) + 1):
        hits = [s for s in stops if text[:end].endswith(s)]
        if hits:
            longest = max(hits, key=len)
            return text[: end if include else end - len(longest)], longest
    return text, None


TEXT = st.text(alphabet=st.sampled_from("aabbcc \nX日é🙂"), max_size=30)
STOPS = st.lists(st.text(alphabet="abc日X\n", min_size=1, max_size=4), max_size=4).map(tuple)


@settings(max_examples=400, deadline=None)
@given(TEXT, STOPS, st.booleans(), st.integers(0, 2**32))
def test_how_text_is_cut_into_tokens_makes_no_difference(
    text: str, stops: tuple[str, ...], include: bool, seed: int
) -> None:
    tokenizer, table = small()
    out = OutputText(tokenizer, stops, include)
    emitted = ""
    longest = max((len(s) for s in stops), default=1)
    ids = cut(text, table, random.Random(seed))
    for n, i in enumerate(ids):
        emitted += out.feed(i)
        assert "\ufffd" not in emitted
        if out.stopped is None:
            # held back: less than a stop string, and tokens that end inside a character
            known = [tokenizer.decode(ids[:k]) for k in range(n + 2)]
            sure = next(t for t in reversed(known) if not t.endswith("\ufffd"))
            assert len(sure) - len(emitted) <= longest - 1
        else:
            break
    emitted += out.finish()
    expected, stopped = batch(text, stops, include)
    assert emitted == out.text == expected
    assert out.stopped == stopped
    assert out.feed(ids[0] if ids else 0) == "" and out.finish() == ""


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 255), max_size=12), st.integers(0, 2**32))
def test_broken_bytes_give_what_batch_decoding_gives(raw: list[int], seed: int) -> None:
    tokenizer, table = small()
    ids = [table[bytes([b])] for b in raw]
    out = OutputText(tokenizer)
    streamed = "".join(out.feed(i) for i in ids)
    streamed += out.finish()
    assert streamed == tokenizer.decode(ids).rstrip("\ufffd") or streamed == tokenizer.decode(ids)


@pytest.mark.parametrize(
    ("text", "stops", "expected", "stopped"),
    [
        ("A B C D E F G H I J K", ("D E F G H I J",), "A B C ", "D E F G H I J"),
        ("alpha beta gamma", ("beta gamma",), "alpha ", "beta gamma"),
        ("Hi there\nUser: me", ("\nUser:",), "Hi there", "\nUser:"),
        ("foobar", ("foobaz", "foobar", "foo!"), "", "foobar"),
        ("abcabd", ("abd", "abcd"), "abc", "abd"),
        ('{"a": "STOP"}', ("STOP",), '{"a": "', "STOP"),
        ("nothing here", ("absent",), "nothing here", None),
        ("ends with ST", ("STOP",), "ends with ST", None),
        ("aaab", ("aab",), "a", "aab"),
        ("xabcx", ("abcd", "bc"), "xa", "bc"),
    ],
)
def test_stop_strings_over_several_tokens(
    tokenizer: Tokenizer, text: str, stops: tuple[str, ...], expected: str, stopped: str | None
) -> None:
    """B034: nothing of a stop string is emitted, however it is cut."""
    for ids in (
        tokenizer.encode_text(text).tolist(),
        [i for c in text for i in tokenizer.encode_text(c).tolist()],
    ):
        out = OutputText(tokenizer, stops)
        pieces = [out.feed(i) for i in ids]
        pieces.append(out.finish())
        assert "".join(pieces) == expected == out.text
        assert out.stopped == stopped


def test_include_stop_ends_behind_the_stop(tokenizer: Tokenizer) -> None:
    out = OutputText(tokenizer, ("lo",), include_stop=True)
    for c in "hello there":
        for i in tokenizer.encode_text(c).tolist():
            out.feed(i)
    assert out.text + out.finish() == "hello"


def test_special_tokens_give_no_text(tokenizer: Tokenizer) -> None:
    end = tokenizer.special_tokens["<|im_end|>"]
    out = OutputText(tokenizer)
    ids = [*tokenizer.encode_text("hello").tolist(), end]
    assert "".join(out.feed(i) for i in ids) + out.finish() == "hello"


def test_an_incomplete_character_at_the_end_is_dropped(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode_text("ok 🙃").tolist()
    smile = tokenizer.encode_text("👍").tolist()
    assert len(smile) > 1
    out = OutputText(tokenizer)
    text = "".join(out.feed(i) for i in [*ids, *smile[:-1]]) + out.finish()
    assert text == "ok 🙃"


@pytest.mark.parametrize("kind", ["bytes", "nfc", "pieces", "first"])
@pytest.mark.parametrize("control", sorted(CONTROL))
def test_streamed_text_equals_the_batch(
    make_tokenizer: MakeTokenizer, kind: str, control: str
) -> None:
    tokenizer, _ = make_tokenizer(control, kind)
    text = "日本語 👩‍👩‍👧‍👦 hello  world\n\n\tnaïve 12345 привет"
    ids = tokenizer.encode_text(text).tolist()
    out = OutputText(tokenizer)
    assert "".join(out.feed(i) for i in ids) + out.finish() == tokenizer.decode(ids)
