"""What a raw prompt's continuation must look like, in the fields that other servers have for it.

`/v1/completions` takes `response_format` (OpenAI's) and `structured_outputs` (vLLM's), `/generate`
takes `json_schema` and `regex` (SGLang's). Chat requests have `response_format` and tools, which
`agentkv.engine.chat` reads.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agentkv.engine.errors import InvalidRequest
from agentkv.engine.serve.errors import invalid, unsupported
from agentkv.engine.types import Grammar, SamplingParams

if TYPE_CHECKING:
    from agentkv.engine.engine import Engine

_OBJECT = '{"type":"object"}'
_STRUCTURED = ("json", "json_object", "regex", "choice")
_KINDS = '"text", "json_object" or "json_schema"'


def of_response_format(value: Mapping[str, Any] | None) -> Grammar | None:
    """The grammar of OpenAI's `response_format`; None where it asks for text."""
    if value is None:
        return None
    kind = value.get("type")
    if kind == "text":
        return None
    if kind == "json_object":
        return Grammar("json_schema", _OBJECT)
    if kind != "json_schema":
        raise invalid(f"`response_format.type` must be {_KINDS}.", param="response_format")
    holder = value.get("json_schema")
    schema = holder.get("schema") if isinstance(holder, Mapping) else None
    return _schema(schema, "response_format")


def of_structured_outputs(value: Mapping[str, Any] | None) -> Grammar | None:
    """The grammar of vLLM's `structured_outputs`, which has exactly one kind of constraint."""
    name = "structured_outputs"
    given = {k: v for k, v in (value or {}).items() if v is not None and v is not False}
    if not given:
        return None
    for key in given:
        if key not in _STRUCTURED:
            raise unsupported(f"{name}.{key}", f"use one of {', '.join(_STRUCTURED)}.")
    if len(given) > 1:
        raise invalid(f"`{name}` takes one constraint, not {len(given)}.", param=name)
    ((key, asked),) = given.items()
    if key == "json":
        return _schema(asked, f"{name}.json")
    if key == "json_object":
        return Grammar("json_schema", _OBJECT)
    if key == "regex":
        return _regex(asked, f"{name}.regex")
    return _choice(asked, f"{name}.choice")


def of_sampling(json_schema: str | None, regex: str | None) -> Grammar | None:
    """The grammar of SGLang's `sampling_params`."""
    if json_schema is not None and regex is not None:
        raise invalid("Give `json_schema` or `regex`, not both.", param="sampling_params.regex")
    if json_schema is not None:
        return _schema(json_schema, "sampling_params.json_schema")
    return None if regex is None else _regex(regex, "sampling_params.regex")


def one_of(grammars: Mapping[str, Grammar | None]) -> tuple[str, Grammar] | None:
    """The field that asks for a grammar, and it. Raises 400 where several do."""
    asked = [(name, grammar) for name, grammar in grammars.items() if grammar is not None]
    if len(asked) > 1:
        names = " and ".join(f"`{name}`" for name, _ in asked)
        raise invalid(f"{names} both say what the output looks like: give one.", param=asked[1][0])
    return asked[0] if asked else None


async def constrain(
    engine: Engine, params: SamplingParams, asked: tuple[str, Grammar] | None
) -> SamplingParams:
    """`params` with the grammar, compiled in a thread. Raises 400 naming the field."""
    if asked is None:
        return params
    name, grammar = asked
    try:
        await asyncio.to_thread(engine.compile, grammar)
    except InvalidRequest as error:
        raise invalid(str(error), param=name) from error
    return replace(params, grammar=grammar)


def _schema(value: Any, param: str) -> Grammar:
    """A schema as an object, or as the text of one."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise invalid(f"`{param}` is not JSON: {error}.", param=param) from None
    if not isinstance(value, (Mapping, bool)):
        raise invalid(f"`{param}` needs a JSON schema.", param=param)
    return Grammar("json_schema", json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def _regex(value: Any, param: str) -> Grammar:
    if not isinstance(value, str) or not value:
        raise invalid(f"`{param}` needs a regular expression.", param=param)
    return Grammar("regex", value)


def _choice(value: Any, param: str) -> Grammar:
    good = isinstance(value, list) and value and all(isinstance(v, str) and v for v in value)
    if not good:
        raise invalid(f"`{param}` needs a list of texts.", param=param)
    # Lark's strings have JSON's escapes.
    return Grammar("lark", "start: " + " | ".join(json.dumps(v) for v in value))
