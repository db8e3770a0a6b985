"""`agentkv chat`: one prompt and its answer, or a conversation in the terminal."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentkv.cli.main import USAGE, fail
from agentkv.cli.output import Json, print_json
from agentkv.engine.config import DEFAULT_MODEL

if TYPE_CHECKING:
    from agentkv.engine import Engine, RequestOutput, SamplingParams

Message = dict[str, Any]


def chat(
    prompt: Annotated[
        str | None,
        typer.Argument(
            help="What to say. Without it: standard input, or a conversation.", show_default=False
        ),
    ] = None,
    model: Annotated[
        str, typer.Option("-m", "--model", help="A known name, a directory, or a Hugging Face id.")
    ] = DEFAULT_MODEL,
    system: Annotated[
        str | None, typer.Option("-s", "--system", help="System message.", show_default=False)
    ] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="Most tokens of one answer.")] = 512,
    temperature: Annotated[
        float, typer.Option(min=0.0, help="0 always takes the likeliest token.")
    ] = 0.0,
    json: Json = False,
) -> None:
    """Chat with a model, or answer one prompt. Keeps the conversation, and so its cache."""
    interactive = prompt is None and sys.stdin.isatty()
    if interactive and json:
        fail(
            "--json answers one prompt, and none was given. Give one: agentkv chat --json 'hi'",
            USAGE,
        )
    if prompt is None and not interactive:
        prompt = sys.stdin.read().strip()
        if not prompt:
            fail(
                "Nothing to answer: no prompt, and standard input is empty. Give one: agentkv chat 'hi'",
                USAGE,
            )

    from agentkv.engine import Engine, SamplingParams

    messages: list[Message] = [{"role": "system", "content": system}] if system else []
    params = SamplingParams(max_tokens=max_tokens, temperature=temperature)
    with Engine(model=model) as engine:
        if prompt is not None:
            messages.append({"role": "user", "content": prompt})
            output = _answer(engine, messages, params, echo=not json)
            if json:
                print_json(_facts(output))
            return
        print(
            f"{engine.model_name}. An empty line or Ctrl-D ends the conversation.", file=sys.stderr
        )
        while said := _ask():
            messages.append({"role": "user", "content": said})
            output = _answer(engine, messages, params, echo=True)
            messages.append({"role": "assistant", "content": output.text})


def _ask() -> str:
    try:
        print("> ", end="", file=sys.stderr, flush=True)
        return sys.stdin.readline().strip()
    except UnicodeDecodeError:
        return ""


def _answer(
    engine: Engine, messages: list[Message], params: SamplingParams, *, echo: bool
) -> RequestOutput:
    output: RequestOutput | None = None
    for event in engine.stream(engine.render(messages), params, session="chat"):
        if echo and event.text:
            print(event.text, end="", flush=True)
        output = event.output or output
    assert output is not None  # the last event of a stream carries it
    if echo:
        print()
        print(summary(_facts(output)), file=sys.stderr)
    return output


def _facts(output: RequestOutput) -> dict[str, Any]:
    miss = output.cache.miss
    return {
        "schema": 1,
        "model": output.model,
        "text": output.text,
        "finish_reason": output.finish_reason,
        "prompt_tokens": output.cache.prompt_tokens,
        "cached_tokens": output.cache.cached_tokens,
        "completion_tokens": output.completion_tokens,
        "ttft_ms": round(output.times.ttft, 3),
        "miss": {"token": miss.token, "reason": miss.reason} if miss else None,
    }


def summary(facts: Mapping[str, Any]) -> str:
    """`prefill 412 tok · cached 398 (97 %) · TTFT 38 ms`"""
    prompt, cached = facts["prompt_tokens"], facts["cached_tokens"]
    return f"prefill {prompt} tok · cached {cached} ({100 * cached // prompt} %) · TTFT {facts['ttft_ms']:.0f} ms"
