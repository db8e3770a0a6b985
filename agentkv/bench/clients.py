"""The clients of the load bench: what they ask, when they leave, and what they saw."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import httpx

BRANCHES = (3, 3, 3, 3)
MAX_NEW = 48
MIX = (
    ("stream", 0.48),
    ("whole", 0.17),
    ("leave before the first token", 0.12),
    ("leave in mid-answer", 0.12),
    ("abort", 0.08),
    ("too long", 0.03),
)
LIMIT = 120.0
"""Seconds after which a request counts as hung."""


@dataclass(slots=True)
class Tree:
    """Prompts as paths of a tree: the same path is always the same tokens."""

    levels: Sequence[int]
    vocab: int
    seed: int

    @property
    def longest(self) -> int:
        return sum(self.levels)

    def prompt(self, rng: random.Random) -> list[int]:
        """A random path, cut inside its last piece one time in four."""
        depth = rng.randint(1, len(self.levels))
        path = tuple(rng.randrange(BRANCHES[i]) for i in range(depth))
        ids = [t for i in range(depth) for t in self._piece(path[: i + 1])]
        return ids[: -rng.randint(1, 40)] if rng.random() < 0.25 else ids

    def _piece(self, path: tuple[int, ...]) -> list[int]:
        rng = random.Random(f"{self.seed}:{path}")
        return [
            rng.randrange(self.vocab // 8, self.vocab) for _ in range(self.levels[len(path) - 1])
        ]


@dataclass(slots=True)
class Outcome:
    """What the clients saw."""

    kinds: Counter[str] = field(default_factory=Counter)
    completed: int = 0
    cached_tokens: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    errors: list[str] = field(default_factory=list)
    answers: dict[tuple[int, ...], list[int]] = field(default_factory=dict)
    compared: int = 0
    unequal: int = 0

    def finished(self, prompt: list[int], usage: dict[str, Any], answer: list[int]) -> None:
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        if usage["prompt_tokens"] != len(prompt) or not 0 <= cached < len(prompt):
            self.errors.append(f"usage {usage} for a prompt of {len(prompt)} tokens")
        self.completed += 1
        self.cached_tokens += cached
        self.prompt_tokens += len(prompt)
        self.completion_tokens += usage["completion_tokens"]
        before = self.answers.setdefault(tuple(prompt), answer)
        if before is not answer:
            shared = min(len(before), len(answer))
            self.compared += 1
            self.unequal += before[:shared] != answer[:shared]
            if len(answer) > len(before):
                self.answers[tuple(prompt)] = answer


class Client:
    """One of the clients: asks, reads or leaves, and asks again until the time is up."""

    def __init__(
        self, url: str, model: str, tree: Tree, outcome: Outcome, seed: int, context: int
    ) -> None:
        self.rng = random.Random(seed)
        self.tree = tree
        self.outcome = outcome
        self.model = model
        self.context = context
        self.name = f"load-{seed}"
        self.asked = 0
        self.http = httpx.AsyncClient(base_url=url, timeout=LIMIT, trust_env=False)

    async def run(self, until: float) -> None:
        kinds, weights = zip(*MIX, strict=True)
        async with self.http:
            while time.monotonic() < until:
                kind = self.rng.choices(kinds, weights)[0]
                self.asked += 1
                try:
                    await asyncio.wait_for(self._once(kind), LIMIT)
                    self.outcome.kinds[kind] += 1
                except Exception as error:
                    self.outcome.errors.append(f"{kind}: {type(error).__name__}: {error}")
                    if len(self.outcome.errors) > 50:
                        return

    async def _once(self, kind: str) -> None:
        prompt = self.tree.prompt(self.rng)
        body = {
            "model": self.model,
            "prompt": prompt,
            "max_tokens": self.rng.randint(1, MAX_NEW),
            "temperature": 0,
            "ignore_eos": True,
            "return_token_ids": True,
        }
        if kind == "too long":
            await self._too_long(body)
        elif kind == "whole":
            reply = await self.http.post("/v1/completions", json=body)
            reply.raise_for_status()
            data = reply.json()
            self.outcome.finished(prompt, data["usage"], data["choices"][0]["token_ids"])
        elif kind == "leave before the first token":
            task = asyncio.create_task(self._stream(prompt, body))
            await asyncio.sleep(self.rng.uniform(0.0, 0.4))
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        elif kind == "leave in mid-answer":
            body["max_tokens"] = MAX_NEW
            await self._stream(prompt, body, leave_after=self.rng.randint(1, 12))
        elif kind == "abort":
            body["max_tokens"] = MAX_NEW
            await self._aborted(prompt, body)
        else:
            await self._stream(prompt, body)

    async def _stream(
        self,
        prompt: list[int],
        body: dict[str, Any],
        *,
        leave_after: int | None = None,
        request_id: str | None = None,
    ) -> str:
        """Read a stream; to the end, or until `leave_after` chunks. Returns the finish reason."""
        body = {**body, "stream": True, "stream_options": {"include_usage": True}}
        headers = {"x-request-id": request_id} if request_id else {}
        answer: list[int] = []
        finish = ""
        chunks = 0
        async with self.http.stream("POST", "/v1/completions", json=body, headers=headers) as reply:
            if reply.status_code != 200:
                await reply.aread()
                reply.raise_for_status()
            async for data in events(reply):
                if "error" in data:
                    code = data["error"].get("code")
                    if request_id and code == "request_aborted":
                        return "abort"
                    raise RuntimeError(f"the stream carried an error: {data['error']}")
                for choice in data["choices"]:
                    answer += choice.get("token_ids") or []
                    finish = choice.get("finish_reason") or finish
                chunks += 1
                if leave_after is not None and chunks >= leave_after:
                    return "left"
                if data.get("usage") and finish in ("stop", "length"):
                    self.outcome.finished(prompt, data["usage"], answer)
        if not finish:
            raise RuntimeError(f"the stream ended after {chunks} chunks without a finish reason")
        return finish

    async def _aborted(self, prompt: list[int], body: dict[str, Any]) -> None:
        name = f"{self.name}-{self.asked}"
        task = asyncio.create_task(self._stream(prompt, body, request_id=name))
        await asyncio.sleep(self.rng.uniform(0.0, 0.5))
        reply = await self.http.post("/abort_request", json={"rid": name})
        reply.raise_for_status()
        try:
            # It may have finished before the abort came, or have been queued after it.
            await task
        except httpx.HTTPStatusError as error:
            if error.response.json()["error"]["code"] != "request_aborted":
                raise

    async def _too_long(self, body: dict[str, Any]) -> None:
        beyond_context = self.rng.random() < 0.5
        length = self.context + 1 if beyond_context else int(self.tree.longest * 1.5)
        expected = "context_length_exceeded" if beyond_context else "kv_pool_too_small"
        body["prompt"] = [self.tree.vocab // 2] * length
        reply = await self.http.post("/v1/completions", json=body)
        code = reply.json().get("error", {}).get("code")
        if reply.status_code != 400 or code != expected:
            raise RuntimeError(f"{length} tokens: {reply.status_code} {code}, expected {expected}")


async def events(reply: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    """The JSON objects of a server-sent event stream, until `[DONE]`."""
    async for line in reply.aiter_lines():
        if line.startswith("data: "):
            if line == "data: [DONE]":
                return
            yield json.loads(line[6:])
