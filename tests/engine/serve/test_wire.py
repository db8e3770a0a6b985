"""JSON in and out."""

from __future__ import annotations

import json

import pytest

from agentkv.engine.serve.errors import ApiError
from agentkv.engine.serve.wire import MAX_DEPTH, decode, encode


def refused(body: bytes) -> ApiError:
    with pytest.raises(ApiError) as caught:
        decode(body)
    assert caught.value.status == 400
    return caught.value


def test_line_separators_leave_as_escapes_and_come_back_equal() -> None:
    text = "a\u0085b\u2028c\u2029d\r\ne\x00f\x0b\x0c\x1c\x1d\x1e 你好 😀"
    data = encode({"t": text})
    assert len(data.decode("utf-8").splitlines()) == 1
    assert json.loads(data) == {"t": text}
    assert "😀" in data.decode("utf-8")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (rb'{"messages":[{"role":"user","content":"\ud83d"}]}', "messages[0].content"),
        (rb'{"messages":[{"content":"a\ude00b"}]}', "messages[0].content"),
        (rb'{"stop":["ok","\ud83dx"]}', "stop[1]"),
        (rb'{"a":{"\ud83d":1}}', "a"),
        (rb'{"\ud83d":1}', "body"),
        (rb'{"a":"\ud83d\ud83d\ude00"}', "a"),
    ],
)
def test_a_lone_surrogate_is_refused_by_field(body: bytes, field: str) -> None:
    error = refused(body)
    assert error.code == "invalid_unicode"
    assert error.param == field


def test_a_surrogate_pair_is_a_character() -> None:
    assert decode(rb'{"a":"\ud83d\ude00"}') == {"a": "😀"}


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"nope",
        b'{"a":NaN}',
        b'{"a":Infinity}',
        b'{"a":-Infinity}',
        b'{"a":1e999}',
        b'{"a":"\xff"}',
        b"[1]",
        b'"x"',
        b"null",
        b'{"a":1}x',
        b"",
    ],
)
def test_what_is_not_json_is_refused(body: bytes) -> None:
    assert refused(body).code == "invalid_json"


def test_depth_is_bounded() -> None:
    fits, over = MAX_DEPTH - 1, MAX_DEPTH + 1
    assert decode(b'{"a":' + b"[" * fits + b"]" * fits + b"}")
    for depth in (over, 900, 100_000):
        for opening, closing in ((b"[", b"]"), (b'{"k":', b"}")):
            inner = opening * depth + (b"1" if closing == b"}" else b"") + closing * depth
            assert refused(b'{"a":' + inner + b"}").code == "json_too_deep"
