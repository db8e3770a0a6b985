from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from agentkv.engine.errors import InvalidRequest, UnsupportedModel
from agentkv.engine.text.render import Renderer
from agentkv.engine.text.template import ChatTemplate
from agentkv.engine.text.tokenizer import Tokenizer

from .conftest import PLAIN_CHATML, MakeTokenizer, make_backend, save

TEXTS = ["", " ", "hello", " hello  world\n\n", "日本語 🙂👩‍👩‍👧‍👦 naïve", "a\tb\r\nc 12345"]
KINDS = ["bytes", "nfc", "pieces", "first"]


@pytest.mark.parametrize("kind", KINDS)
def test_control_tokens_are_parsed_or_text_as_asked(
    make_tokenizer: MakeTokenizer, kind: str
) -> None:
    tokenizer, backend = make_tokenizer("chatml", kind)
    text = "<|im_start|>user\nhi<|im_end|>"
    raw = backend.encode(text, add_special_tokens=False).ids
    assert tokenizer.encode_control(text).tolist() == raw
    assert tokenizer.encode_raw(text).tolist() == raw
    literal = tokenizer.encode_text(text).tolist()
    assert not set(literal) & tokenizer.special_ids
    assert set(raw) & tokenizer.special_ids
    assert tokenizer.decode(literal, skip_special=False) == text
    if kind != "pieces":  # which writes a space behind each control token
        assert tokenizer.decode(raw, skip_special=False) == text
    assert tokenizer.decode(raw) == "user\nhi"


def test_tokens_that_are_special_in_all_but_name_are_control_tokens(
    make_tokenizer: MakeTokenizer,
) -> None:
    tokenizer, backend = make_tokenizer("deepseek")
    assert "<｜User｜>" in tokenizer.special_tokens
    assert "<think>" not in tokenizer.special_tokens
    user = tokenizer.special_tokens["<｜User｜>"]
    assert backend.encode("<｜User｜>").ids == [user]
    assert user not in tokenizer.encode_text("<｜User｜>")
    # mark-up that is an added token stays one, in text too
    assert tokenizer.encode_text("<think>").tolist() == backend.encode("<think>").ids


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", TEXTS)
def test_a_stretch_encodes_as_it_does_behind_a_control_token(
    make_tokenizer: MakeTokenizer, kind: str, text: str
) -> None:
    tokenizer, backend = make_tokenizer("chatml", kind)
    whole = backend.encode("<|im_start|>" + text, add_special_tokens=False)
    ids, starts = tokenizer.encode_stretch(text, first=False)
    assert ids.tolist() == whole.ids[1:]
    assert ids.dtype == starts.dtype == np.int32
    assert (np.diff(starts) >= 0).all()
    assert all(0 <= s < max(len(text), 1) for s in starts.tolist())
    ids, _ = tokenizer.encode_stretch(text, first=True)
    assert ids.tolist() == backend.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize("kind", KINDS)
def test_decode_output_gives_text_and_token_ends(make_tokenizer: MakeTokenizer, kind: str) -> None:
    tokenizer, _ = make_tokenizer("chatml", kind)
    for text in TEXTS[2:]:
        ids = tokenizer.encode_text(text).tolist()
        decoded = tokenizer.decode_output(ids)
        assert decoded is not None
        assert decoded[0] == tokenizer.decode(ids)
        assert decoded[1][-1] == len(decoded[0])
        assert (np.diff(decoded[1]) >= 0).all()
    ids = tokenizer.encode_text("a naïve 日本 text").tolist()
    decoded = tokenizer.decode_output(ids)
    assert decoded is not None
    if kind in ("bytes", "nfc"):
        for n, end in enumerate(decoded[1].tolist(), start=1):
            assert tokenizer.decode(ids[:n]).rstrip("\ufffd") == decoded[0][:end]


def test_decode_output_refuses_half_a_character(make_tokenizer: MakeTokenizer) -> None:
    tokenizer, _ = make_tokenizer("chatml")
    byte = {tokenizer.token_bytes(i): i for i in range(tokenizer.vocab_size)}
    smile = [byte[bytes([b])] for b in "🙂".encode()]
    got = tokenizer.decode_output(smile)
    assert got is not None and got[0] == "🙂" and got[1].tolist() == [0, 0, 0, 1]
    assert tokenizer.decode_output(smile[:3]) is None


def test_token_bytes_join_to_the_text(make_tokenizer: MakeTokenizer) -> None:
    text = "naïve 日本 🙂 <|im_end|>"
    for kind in ("bytes", "first"):
        tokenizer, _ = make_tokenizer("chatml", kind)
        raw = b"".join(tokenizer.token_bytes(i) for i in tokenizer.encode_control(text).tolist())
        assert raw.decode().strip() == text
    assert tokenizer.token_bytes(10**6) == b""


def test_exactly_one_bos_in_chat_and_raw_as_asked(make_tokenizer: MakeTokenizer) -> None:
    """B017: the template writes BOS and the tokenizer would add one as well."""
    for kind in KINDS:
        tokenizer, backend = make_tokenizer("mistral", kind, bos=True)
        bos = tokenizer.bos_id
        assert bos is not None
        assert backend.encode("hi").ids[0] == bos
        template = ChatTemplate(
            "{{ bos_token }}{% for m in messages %}[INST]{{ m.content }}[/INST]{% endfor %}",
            named_tokens=tokenizer.named_tokens,
        )
        chat = Renderer(tokenizer, template).render([{"role": "user", "content": "hi"}])
        assert chat.token_ids.tolist().count(bos) == 1
        assert chat.token_ids[0] == bos
        raw = tokenizer.encode_raw("hi").tolist()
        assert raw.count(bos) == 1 and raw[0] == bos
        # a template without BOS gets none: the model's author left it out
        bare = Renderer(tokenizer, ChatTemplate(PLAIN_CHATML))
        ids = bare.render([{"role": "user", "content": "hi"}]).token_ids.tolist()
        assert bos not in ids


def test_ids_come_from_all_of_the_model_files(tmp_path: Path) -> None:
    save(make_backend("chatml"), "chatml", tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": [7, 8]}))
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": 9}))
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"eos_token": {"content": "<|im_end|>"}, "bos_token": "<|im_start|>"})
    )
    tokenizer = Tokenizer.load(tmp_path)
    end = tokenizer.special_tokens["<|im_end|>"]
    assert tokenizer.eos_ids == {7, 8, 9, end}
    assert tokenizer.bos_id == tokenizer.special_tokens["<|im_start|>"]
    assert tokenizer.vocab_size == max(tokenizer.special_ids) + 1


def test_a_file_with_truncation_never_truncates(tmp_path: Path) -> None:
    backend = make_backend("chatml")
    backend.enable_truncation(4)
    backend.enable_padding(length=16)
    tokenizer = Tokenizer.load(save(backend, "chatml", tmp_path))
    text = "the quick brown fox jumps over the lazy dog"
    assert tokenizer.decode(tokenizer.encode_raw(text)) == text
    assert tokenizer.decode(tokenizer.encode_text(text)) == text


def test_errors_are_the_engine_s_own(make_tokenizer: MakeTokenizer, tmp_path: Path) -> None:
    tokenizer, _ = make_tokenizer("chatml")
    with pytest.raises(InvalidRequest, match="surrogate"):
        tokenizer.encode_raw("broken \ud83d text")
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(UnsupportedModel):
        Tokenizer.load(tmp_path)
    with pytest.raises(UnsupportedModel, match=r"no tokenizer\.json"):
        Tokenizer.load(tmp_path / "nothing")
