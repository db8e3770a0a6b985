"""Grammars compiled for a model's tokenizer: the part of constrained decoding that takes time.

Grammar --vet, build--> CompiledGrammar --copy--> Matcher (one for each choice) --> masks
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any, cast

import llguidance

from agentkv.engine.errors import InvalidRequest
from agentkv.engine.run.closing import Closer
from agentkv.engine.run.grammar_builder import TIME_LIMIT, build
from agentkv.engine.run.grammar_cache import ByteLru
from agentkv.engine.run.grammar_matcher import Matcher
from agentkv.engine.run.grammar_shorter import shorter
from agentkv.engine.run.grammar_tokens import GrammarTokens, Vocabulary
from agentkv.engine.run.schema import GUIDANCE, vet_schema
from agentkv.engine.run.schema_least import Least, match_size
from agentkv.engine.types import Grammar

CACHE_BYTES = 64 * 1024 * 1024
MAX_REGEX = 16 * 1024
MAX_LARK = 1024 * 1024
_FIRST_WAY = 4096
"""Tokens that the shortest output may have for its way to be looked for."""
_BYTES_PER_CHARACTER = 192
"""Memory of a built grammar per character of its text, by measurement, rounded up."""
_MARKS = 16
_STOPS = re.compile(r'suffix\s*=\s*"([^"\\]+)"')
_NO_WAY_BACK = re.compile(r"\w\s*\[[^\]]*\b(?:stop|max_tokens)\s*=")
"""Attributes of rules behind which a matcher cannot take a token back, which closing must do."""
_TAGS = re.compile(r"<[^<>\s\\]{1,40}>|```|\[/[A-Z_]+\]")
_EMBEDDED = re.compile(r"%json\s*(?=\{)")

__all__ = ["CompiledGrammar", "GrammarCompiler", "Matcher"]


class CompiledGrammar:
    """A grammar, ready to be matched. Thread-safe; made by `GrammarCompiler`."""

    def __init__(
        self, matcher: llguidance.LLMatcher, closer: Closer, *, jump: int, param: str
    ) -> None:
        self._matcher = matcher
        self._closer = closer
        self._jump = jump
        self._param = param
        self._lock = threading.Lock()
        self._way = closer.close(matcher, _FIRST_WAY, patient=True)
        self._least: int | None = None

    @property
    def enough(self) -> int | None:
        """So many tokens hold a whole output for certain (fewer may do); None: nothing is certain."""
        with self._lock:
            return None if self._way is None else len(self._way)

    def matcher(self, *, ends: frozenset[int], max_new: int) -> Matcher:
        """A matcher at the start of an output of at most `max_new` tokens (at least 1).

        `ends`: the ids that end the choice. Raises `InvalidRequest`, with the least number, when
        no output that fits into `max_new` tokens is found.
        """
        with self._lock:
            way = self._fitting(max_new)
            copy = self._matcher.deep_copy()
        return Matcher(copy, self._closer, ends=ends, max_new=max_new, way=way, jump=self._jump)

    def _fitting(self, max_new: int) -> list[int] | None:
        if self._way is not None and len(self._way) <= max_new:
            return self._way
        if self._least is None:
            self._least = self._look_further()
        if self._least > max_new:
            allows = "the grammar" if self._param == "grammar" else self._param
            raise InvalidRequest(
                f"max_tokens is {max_new}, and the shortest output that {allows} allows takes "
                f"{self._least} tokens. Set max_tokens to {self._least} or more, or allow "
                "something shorter.",
                param="max_tokens",
            )
        return self._way

    def _look_further(self) -> int:
        """Find a way that is as short as can be, and say how many tokens an output needs.

        Where there is too much choice to look at all of it, that is the shortest way found: a
        shorter one may exist, but nobody could lead an output along it.
        """
        matcher, closer = self._matcher, self._closer
        least, best = closer.search(matcher, _FIRST_WAY)
        ways = [] if best is None else [best]
        if best is None or len(best) > least:
            _, best = closer.search(matcher, _FIRST_WAY, narrow=True)
            ways += [way for way in (self._way, best) if way is not None]
            ways = [shorter(closer, matcher, min(ways, key=len))] if ways else []
        if not ways:
            return least  # an output may end well, and none is known that does
        self._way = ways[0]
        return len(self._way)


class GrammarCompiler:
    """Compiles grammars for one tokenizer, and keeps the latest. Thread-safe.

    `vocab_size`: of the model; `eos`: its end tokens. The tokenizer's table is built on first use,
    on the thread that needs it.
    """

    def __init__(
        self,
        tokenizer: Vocabulary,
        *,
        vocab_size: int | None = None,
        eos: frozenset[int] | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = tokenizer.vocab_size if vocab_size is None else vocab_size
        self._eos = tokenizer.eos_ids if eos is None else eos
        self._tokens: GrammarTokens | None = None
        self._building = threading.Lock()
        self._cache: ByteLru[CompiledGrammar] = ByteLru(CACHE_BYTES)

    def compile(self, grammar: Grammar) -> CompiledGrammar:
        """Compile, or find what was compiled before.

        Raises `InvalidRequest` when the grammar is wrong, too large, or takes longer than 5 s.
        """
        key = (grammar.kind, grammar.text)
        found = self._cache.get(key)
        if found is None:
            found = self._compile(grammar)
            self._cache.put(key, found, 65536 + _BYTES_PER_CHARACTER * len(grammar.text))
        return found

    def tokens(self) -> GrammarTokens:
        """The tokenizer's table, built now if need be."""
        with self._building:
            if self._tokens is None:
                self._tokens = GrammarTokens(self._tokenizer, self._vocab_size, self._eos)
            return self._tokens

    def _compile(self, grammar: Grammar) -> CompiledGrammar:
        param = "response_format" if grammar.kind == "json_schema" else "grammar"
        source, jump = _sources[grammar.kind](grammar.text, param)
        tokens = self.tokens()

        def work() -> CompiledGrammar:
            limits = llguidance.LLParserLimits(verbose_errors=False)
            matcher = llguidance.LLMatcher(tokens.table, source, log_level=0, limits=limits)
            if matcher.is_error():
                raise InvalidRequest(
                    f"The grammar cannot be used: {' '.join(matcher.get_error().split())[:300]}.",
                    param=param,
                )
            marks = _marks(grammar.text) if grammar.kind == "lark" else ()
            closer = Closer(tokens, [tokens.table.tokenize_str(mark) for mark in marks])
            return CompiledGrammar(matcher, closer, jump=jump, param=param)

        try:
            return build(work)
        except TimeoutError:
            raise InvalidRequest(
                f"The grammar takes longer than {TIME_LIMIT:.0f} s to compile. Make it smaller.",
                param=param,
            ) from None


def _from_schema(text: str, param: str) -> tuple[str, int]:
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"The schema is not valid JSON: {error}.", param=param) from error
    vetted = vet_schema(schema, param=param)
    source = llguidance.LLMatcher.grammar_from_json_schema(
        json.dumps(vetted, ensure_ascii=False), overrides=cast(Any, GUIDANCE)
    )
    return source, int(Least(vetted).largest())


def _from_lark(text: str, param: str) -> tuple[str, int]:
    _at_most(text, MAX_LARK, param)
    if _NO_WAY_BACK.search(_without_schemas(text)):
        raise InvalidRequest(
            "The grammar uses stop= or max_tokens= on a rule, which constrained output cannot "
            "promise to complete. Use suffix=, or a literal behind the rule.",
            param=param,
        )
    jump, rest = 0.0, len(text)
    for schema, schema_text in _embedded(text):
        rest -= len(schema_text)
        try:
            jump = max(jump, Least(vet_schema(schema, param=param)).largest())
        except InvalidRequest:
            jump += len(schema_text)
    # Counts outside of schemas, too: a rule may be short and what it stands for long.
    rest += int(match_size(_without_schemas(text))) - len(_without_schemas(text))
    return llguidance.LLMatcher.grammar_from_lark(text), int(jump) + rest


def _from_regex(text: str, param: str) -> tuple[str, int]:
    _at_most(text, MAX_REGEX, param)
    return llguidance.LLMatcher.grammar_from_regex(text), int(match_size(text))


_sources: dict[str, Callable[[str, str], tuple[str, int]]] = {
    "json_schema": _from_schema,
    "lark": _from_lark,
    "regex": _from_regex,
}


def _embedded(text: str) -> Iterator[tuple[Any, str]]:
    """Schemas inside a Lark grammar, and their texts."""
    decoder = json.JSONDecoder()
    for found in _EMBEDDED.finditer(text):
        try:
            schema, end = decoder.raw_decode(text, found.end())
        except (ValueError, RecursionError):
            continue
        yield schema, text[found.start() : end]


def _without_schemas(text: str) -> str:
    for _, schema_text in list(_embedded(text)):
        text = text.replace(schema_text, "%json {}")
    return text


def _marks(text: str) -> list[str]:
    """Literals of a Lark grammar that may end running text, those in its own attributes first."""
    text = _without_schemas(text)
    found = [*_STOPS.findall(text), *_TAGS.findall(text)]
    return list(dict.fromkeys(found))[:_MARKS]


def _at_most(text: str, limit: int, param: str) -> None:
    if len(text) > limit:
        raise InvalidRequest(
            f"The grammar has {len(text)} characters; at most {limit} are allowed.", param=param
        )
