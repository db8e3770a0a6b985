"""Text to token ids and back, over the model's own `tokenizer.json`.

Two backend objects are kept. `_parser` knows every added token; `_literal` treats control tokens
as text. They are two because the switch between the behaviours is state of a backend object, and
flipping it while another thread encodes is a race.

Control tokens split the input of a tokenizer: what stands between two of them is encoded as if it
were alone. Everything here relies on that: a stretch of text between two control tokens can be
encoded (and remembered) by itself. `_GUARD` plays the control token in front of such a stretch,
because some tokenizers treat the very start of their input differently.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from tokenizers import AddedToken
from tokenizers.decoders import DecodeStream

from agentkv.engine.errors import InvalidRequest, UnsupportedModel
from agentkv.engine.types import IntArray

# Structure tokens that a tokenizer does not declare special, such as DeepSeek's `<｜User｜>`.
# Plain mark-up (`<think>`, `<tool_call>`) is not among them: models write it as text themselves.
_BARRED = re.compile(r"<[|｜][^<>]*[|｜]>")
# Unguessable, so that no request can contain it; it never reaches a model.
_GUARD = f"\U0010fffd{secrets.token_hex(12)}\U0010fffd"


class Tokenizer:
    """The tokenizer of one model. Safe to use from many threads.

    `special_tokens`: every control token and its id. `control`: a pattern that matches one control
    token. `added_tokens`: those and all other tokens that stand outside the vocabulary proper, such
    as plain mark-up. `chars_encoded` counts the characters that went through a backend, which is what a turn
    really cost.
    """

    def __init__(
        self,
        parser: tokenizers.Tokenizer,
        literal: tokenizers.Tokenizer,
        *,
        bos_token: str | None = None,
        eos_ids: Sequence[int] = (),
        named_tokens: dict[str, str] | None = None,
    ) -> None:
        """`parser` and `literal` must be two objects made from the same file; both are changed."""
        self._parser = parser
        self._literal = literal
        self.chars_encoded = 0
        self.named_tokens = dict(named_tokens or {})
        added = parser.get_added_tokens_decoder()
        self.added_tokens: dict[str, int] = {t.content: i for i, t in added.items() if t.content}
        control = {
            i: token
            for i, token in added.items()
            if token.content and (token.special or _BARRED.fullmatch(token.content))
        }
        self.special_tokens: dict[str, int] = {token.content: i for i, token in control.items()}
        self.special_ids: frozenset[int] = frozenset(control)
        self.vocab_size: int = parser.get_vocab_size(with_added_tokens=True)
        self.bos_id: int | None = parser.token_to_id(bos_token) if bos_token else None
        self.eos_ids: frozenset[int] = frozenset(eos_ids)
        self.control = _pattern(list(control.values()))
        self._swallows_left = {t.content for t in control.values() if t.lstrip}
        self._swallows_right = {t.content for t in control.values() if t.rstrip}
        for backend in (parser, literal):
            backend.no_truncation()
            backend.no_padding()
        barred = [token for token in control.values() if not token.special]
        if barred:
            literal.add_special_tokens([_as_special(token) for token in barred])
        literal.encode_special_tokens = True
        literal.add_tokens([AddedToken(_GUARD, special=False, normalized=False)])
        self._byte_level = "ByteLevel" in _decoder_types(parser)
        self._chars = _byte_alphabet()

    @classmethod
    def load(cls, model_dir: Path) -> Tokenizer:
        """The tokenizer of the model in `model_dir`.

        Reads `tokenizer.json`, and ids from `tokenizer_config.json`, `config.json` and
        `generation_config.json`. A directory without `tokenizer.json` goes through transformers'
        converter, which is slow. Raises `UnsupportedModel` when neither works.
        """
        model_dir = Path(model_dir)
        settings = _read_json(model_dir / "tokenizer_config.json")
        path = model_dir / "tokenizer.json"
        if path.is_file():
            try:
                parser = tokenizers.Tokenizer.from_file(str(path))
                literal = tokenizers.Tokenizer.from_file(str(path))
            except Exception as error:  # the backend raises bare Exception
                raise UnsupportedModel(f"{path} cannot be read: {error}") from error
        else:
            text = _convert(model_dir)
            parser = tokenizers.Tokenizer.from_str(text)
            literal = tokenizers.Tokenizer.from_str(text)
        named = {
            key: content
            for key in ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token")
            if (content := _content(settings.get(key)))
        }
        eos: list[int] = []
        for name in ("generation_config.json", "config.json"):
            value = _read_json(model_dir / name).get("eos_token_id")
            for item in value if isinstance(value, list) else [value]:
                if isinstance(item, int) and not isinstance(item, bool):
                    eos.append(item)
        if "eos_token" in named:
            found = parser.token_to_id(named["eos_token"])
            if found is not None:
                eos.append(found)
        return cls(
            parser, literal, bos_token=named.get("bos_token"), eos_ids=eos, named_tokens=named
        )

    def encode_raw(self, text: str) -> IntArray:
        """Ids of a raw prompt: control tokens are parsed, and the tokenizer's own rule adds BOS."""
        return self._ids(self._parser, text, add_special_tokens=True)

    def encode_control(self, text: str) -> IntArray:
        """Ids with control tokens parsed, and nothing added."""
        return self._ids(self._parser, text, add_special_tokens=False)

    def encode_text(self, text: str) -> IntArray:
        """Ids of text in which nothing is a control token."""
        return self._ids(self._literal, text, add_special_tokens=False)

    def swallowed(self, text: str, start: int, end: int) -> tuple[int, int]:
        """The control token at `[start, end)` of `text`, with the white space that it swallows."""
        content = text[start:end]
        if content in self._swallows_left:
            while start > 0 and text[start - 1].isspace():
                start -= 1
        if content in self._swallows_right:
            while end < len(text) and text[end].isspace():
                end += 1
        return start, end

    def encode_stretch(self, text: str, *, first: bool) -> tuple[IntArray, IntArray]:
        """Ids of a text that stands between two control tokens, and where each token starts.

        `first` says that no control token precedes it. Both arrays are int32 `[n]`; the starts are
        character offsets in `text`, never falling.
        """
        skip = 0 if first else len(_GUARD)
        encoded = self._encode(
            self._literal, text if first else _GUARD + text, add_special_tokens=False
        )
        self.chars_encoded += len(text)
        ids = np.asarray(encoded.ids, dtype=np.int32)
        starts = np.fromiter((a for a, _ in encoded.offsets), np.int32, len(ids))
        if not first:
            ids, starts = ids[1:], starts[1:] - skip
        np.maximum.accumulate(starts, out=starts)
        return ids, np.clip(starts, 0, max(len(text) - 1, 0))

    def decode(self, ids: Sequence[int] | IntArray, *, skip_special: bool = True) -> str:
        """Text of `ids`; ids that the tokenizer does not know give no text."""
        return str(self._parser.decode(_as_list(ids), skip_special_tokens=skip_special))

    def decode_output(self, ids: Sequence[int]) -> tuple[str, IntArray] | None:
        """Text of sampled ids as a client gets it, and where each token's text ends.

        The ends are int32 `[n]`, in characters; a token that ends inside a character ends where
        that character starts. None when the ids do not decode to valid text.
        """
        if self._byte_level:
            pieces = [self.token_bytes(i) for i in ids]
            raw = b"".join(pieces)
            try:
                text = raw.decode("utf-8")
            except UnicodeDecodeError:
                return None
            heads = (np.frombuffer(raw, np.uint8) & 0xC0) != 0x80
            # before[k]: characters that begin before byte k
            before = np.concatenate([np.zeros(1, np.int64), np.cumsum(heads)])
            ends = np.cumsum([len(p) for p in pieces], dtype=np.int64)
            inside = np.append(~heads, False)[ends]
            return text, (before[ends] - inside).astype(np.int32)
        text = self.decode(ids, skip_special=False)
        if "\ufffd" in text:
            return None
        # Where tokens end within the text is not known here; the last one ends where it ends.
        ends = np.zeros(len(ids), np.int64)
        ends[-1:] = len(text)
        return text, ends.astype(np.int32)

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that one token stands for (`b""` for an id without a token)."""
        token = self._parser.id_to_token(int(token_id))
        if token is None:
            return b""
        if self._byte_level:
            try:
                return bytes(self._chars[c] for c in token)
            except KeyError:  # an added token that is not written in the byte alphabet
                return token.encode("utf-8")
        if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
            try:
                return bytes([int(token[3:5], 16)])
            except ValueError:
                pass
        return token.replace("\u2581", " ").encode("utf-8")

    def to_json(self) -> str:
        """The tokenizer as the text of a `tokenizer.json`."""
        return str(self._parser.to_str())

    def vocabulary(self) -> dict[str, int]:
        """Every token as the tokenizer writes it, with its id."""
        return dict(self._parser.get_vocab(with_added_tokens=True))

    def stream(self) -> TokenStream:
        """A fresh incremental decoder."""
        return TokenStream(self._parser)

    def _ids(self, backend: Any, text: str, *, add_special_tokens: bool) -> IntArray:
        encoded = self._encode(backend, text, add_special_tokens=add_special_tokens)
        self.chars_encoded += len(text)
        return np.asarray(encoded.ids, dtype=np.int32)

    def _encode(self, backend: Any, text: str, *, add_special_tokens: bool) -> Any:
        try:
            return backend.encode(text, add_special_tokens=add_special_tokens)
        except TypeError as error:
            # The backend takes UTF-8 only: a lone surrogate shows up as a type error.
            raise InvalidRequest(
                "The text holds a lone surrogate, which is not valid Unicode.", param="prompt"
            ) from error


class TokenStream:
    """Text of one token after another; None while a character is incomplete."""

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        self._backend = backend
        self._stream = DecodeStream(skip_special_tokens=True)

    def step(self, token_id: int) -> str | None:
        """The text that `token_id` completes, if any."""
        try:
            return self._stream.step(self._backend, int(token_id))
        except Exception as error:  # the backend raises bare Exception
            if "prefix" not in str(error).lower():
                raise
            # Its state is lost when a decoder rewrites what it gave before, as some do with broken
            # UTF-8. Start anew from this token.
            self._stream = DecodeStream(skip_special_tokens=True)
            return self._stream.step(self._backend, int(token_id))


def _pattern(tokens: list[AddedToken]) -> re.Pattern[str]:
    """Matches one control token; longest first, as the backend prefers the longer of two."""
    longest = sorted((token.content for token in tokens), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest)) or "(?!)")


def _as_special(token: AddedToken) -> AddedToken:
    return AddedToken(
        token.content,
        special=True,
        normalized=token.normalized,
        lstrip=token.lstrip,
        rstrip=token.rstrip,
        single_word=token.single_word,
    )


def _as_list(ids: Sequence[int] | IntArray) -> list[int]:
    return ids.tolist() if isinstance(ids, np.ndarray) else [int(i) for i in ids]


def _content(value: Any) -> str | None:
    """The text of a token in `tokenizer_config.json`, which is a string or an object."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) and value else None


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise UnsupportedModel(f"{path} is not valid JSON: {error}") from error
    return value if isinstance(value, dict) else {}


def _convert(model_dir: Path) -> str:
    """`tokenizer.json` text of a directory that has only older tokenizer files."""
    try:
        from transformers import AutoTokenizer

        slow = AutoTokenizer.from_pretrained(
            str(model_dir), use_fast=True, local_files_only=True, trust_remote_code=False
        )
        return str(slow.backend_tokenizer.to_str())
    except Exception as error:
        raise UnsupportedModel(
            f"{model_dir} has no tokenizer.json, and its tokenizer cannot be converted to one: "
            f"{error}"
        ) from error


def _decoder_types(backend: tokenizers.Tokenizer) -> set[str]:
    """The names of the decoders in a backend's pipeline."""
    decoder = backend.decoder
    if decoder is None:
        return set()
    state = json.loads(decoder.__getstate__())
    parts = state.get("decoders") or [state]
    return {str(part.get("type")) for part in parts}


def _byte_alphabet() -> dict[str, int]:
    """The byte that each character of byte-level BPE stands for (GPT-2's printable alphabet)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(byte): byte for byte in printable}
    others = (byte for byte in range(256) if byte not in set(printable))
    table.update({chr(256 + n): byte for n, byte in enumerate(others)})
    return table
