"""transformers' `generate`, the baseline: same weights, same dtype, its own defaults."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
import transformers

from agentkv.engine.types import IntArray


@dataclass(frozen=True, slots=True)
class PeerOutput:
    """Greedy tokens of one prompt and the float32 logits of each step: `[steps, vocab]`."""

    token_ids: tuple[int, ...]
    logits: torch.Tensor


class StepClock(transformers.LogitsProcessor):
    """Notes when the logits of each step are there; changes nothing."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        self.times.append(time.perf_counter())
        return scores


class Peer:
    """`AutoModelForCausalLM` with scaled-dot-product attention and its KV cache, greedy."""

    def __init__(self, model_dir: Path, dtype: str) -> None:
        library: Any = transformers  # most of it is untyped
        library.utils.logging.set_verbosity_error()
        library.utils.logging.disable_progress_bar()
        self.model: Any = library.AutoModelForCausalLM.from_pretrained(
            model_dir, dtype=getattr(torch, dtype), attn_implementation="sdpa"
        ).eval()
        # Nothing may end a run early: both sides generate exactly as many tokens as were asked for.
        self.model.generation_config.eos_token_id = None
        self.model.generation_config.pad_token_id = 0

    def first_token(self, prompt: IntArray) -> float:
        """Seconds from the call to the first token."""
        start = time.perf_counter()
        self._generate([prompt], 1)
        return time.perf_counter() - start

    def decode_rate(self, prompts: Sequence[IntArray], new_tokens: int) -> float:
        """Tokens per second of all prompts together, after their first token."""
        clock = StepClock()
        self._generate(prompts, new_tokens, processor=clock)
        return len(prompts) * (len(clock.times) - 1) / (clock.times[-1] - clock.times[0])

    def greedy(self, prompt: IntArray, new_tokens: int) -> PeerOutput:
        """The tokens of one prompt, with the logits that chose them."""
        out = self._generate([prompt], new_tokens, logits=True)
        logits = torch.stack([step[0].float() for step in out.logits])
        return PeerOutput(tuple(out.sequences[0, len(prompt) :].tolist()), logits)

    def _generate(
        self,
        prompts: Sequence[IntArray],
        new_tokens: int,
        *,
        processor: StepClock | None = None,
        logits: bool = False,
    ) -> Any:
        ids = torch.tensor([prompt.tolist() for prompt in prompts], dtype=torch.long)
        with torch.inference_mode():
            return self.model.generate(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=new_tokens,
                do_sample=False,
                logits_processor=transformers.LogitsProcessorList([processor] if processor else []),
                return_dict_in_generate=True,
                output_logits=logits,
            )


class PeerProcess:
    """A `Peer` in a process of its own, for timings: one call at a time, the caller waits.

    In one process each side's thread team, heap and pages are in the other's way, and which of
    them pays depends on who was loaded first.
    """

    def __init__(self, model_dir: Path, dtype: str, threads: int | None = None) -> None:
        self._pool = ProcessPoolExecutor(
            1, get_context("spawn"), initializer=_load, initargs=(model_dir, dtype, threads)
        )

    def first_token(self, prompt: IntArray) -> float:
        """Seconds from the call to the first token, taken in that process."""
        return self._pool.submit(_first_token, prompt).result()

    def decode_rate(self, prompts: Sequence[IntArray], new_tokens: int) -> float:
        """Tokens per second of all prompts together, after their first token."""
        return self._pool.submit(_decode_rate, prompts, new_tokens).result()

    def __enter__(self) -> PeerProcess:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._pool.shutdown()


_here: Peer | None = None


def _load(model_dir: Path, dtype: str, threads: int | None) -> None:
    global _here
    if threads:
        torch.set_num_threads(threads)
    _here = Peer(model_dir, dtype)


def _first_token(prompt: IntArray) -> float:
    assert _here is not None
    return _here.first_token(prompt)


def _decode_rate(prompts: Sequence[IntArray], new_tokens: int) -> float:
    assert _here is not None
    return _here.decode_rate(prompts, new_tokens)
