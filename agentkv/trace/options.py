"""What the trace commands share: which logs, which tokens, whose cache."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from agentkv.trace.caches.base import CacheModel
from agentkv.trace.caches.choose import SIZED, cache_model, names
from agentkv.trace.readers import LogError
from agentkv.trace.readers.files import name_of
from agentkv.trace.render import Renderer
from agentkv.trace.source import Logs
from agentkv.trace.tokens import TokenizerUnusable

OK, FAILED = 0, 1
KV_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4, "fp8": 1}
"""Bytes of one number of K or V."""


class WrongUsage(ValueError):
    """The options cannot be followed; the message says why."""


class Unavailable(RuntimeError):
    """Something that this machine lacks; the message says what, and how to get it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Common:
    """`pool`: bytes of KV memory (`8GiB`) of `model`; `pool_tokens`: the same in tokens."""

    logs: tuple[str, ...] = ()
    format: str | None = None
    session: str | None = None
    tokenizer: Path | None = None
    template: Path | None = None
    target: str = "agentkv"
    policy: str | None = None
    pool: str | None = None
    pool_tokens: int | None = None
    model: str | None = None
    kv_dtype: str | None = None

    def open(self) -> Logs:
        """The logs, to be used as a context. Raises WrongUsage for one that cannot be read."""
        if list(self.logs).count("-") > 1:
            raise WrongUsage("standard input can be read once: give `-` only once.")
        if not self.logs:
            raise WrongUsage("name a log file, or `-` for standard input.")
        return Logs(self.logs, format=self.format, session=self.session)

    def renderer(self) -> Renderer:
        try:
            return Renderer(self.tokenizer, self.template)
        except (TokenizerUnusable, FileNotFoundError) as error:
            raise WrongUsage(str(error)) from None

    def size(self) -> int | None:
        """Tokens that the cache holds; None for unlimited."""
        if self.pool is None:
            if self.model is not None or self.kv_dtype is not None:
                raise WrongUsage(
                    "--model and --kv-dtype say how large a token is: give --pool too."
                )
            return self.pool_tokens
        if self.pool_tokens is not None:
            raise WrongUsage("give --pool or --pool-tokens, not both.")
        if self.model is None:
            raise WrongUsage("--pool needs --model NAME|CONFIG: how many tokens fit depends on it.")
        from agentkv.trace.pool import UnknownModel, pool_tokens

        try:
            # A size that cannot be read is the engine's own error, which says what it should be.
            return pool_tokens(self.pool, self.model, kv_bytes=KV_BYTES[self.kv_dtype or "float16"])
        except UnknownModel as error:
            raise WrongUsage(str(error)) from None

    def cache(self) -> Callable[[], CacheModel]:
        """Makes the cache model that was asked for, as often as one is needed."""
        if self.target not in names():
            raise WrongUsage(f"no target is called {self.target}; there are {', '.join(names())}.")
        size = self.size()

        def make() -> CacheModel:
            return cache_model(self.target, size=size, policy=self.policy)

        try:
            make()
        except ValueError as error:
            raise WrongUsage(str(error)) from None
        return make

    def sized(self) -> None:
        """Raises WrongUsage for a target whose cache has no size that could be varied."""
        if self.target not in SIZED:
            raise WrongUsage(
                f"{self.target} has no size that could be varied; choose one of {', '.join(SIZED)}."
            )


def unreadable(error: LogError) -> Exception:
    """The error that a log which cannot be opened becomes for whoever runs the command."""
    if isinstance(error.__context__, ImportError):
        return Unavailable(str(error))
    return WrongUsage(f"{error}.".replace("..", "."))


def share(text: str) -> float:
    """`0.8`, `80` or `80%` as a share of 1. Raises WrongUsage."""
    plain = text.strip()
    bare = plain.removesuffix("%").strip()
    try:
        value = float(bare)
    except ValueError:
        raise WrongUsage(f"{text!r} is no rate: give 0.8, or 80%.") from None
    if plain.endswith("%") or value > 1:
        value /= 100
    if not 0 <= value <= 1:
        raise WrongUsage(f"{text!r} is no rate: it lies between 0 and 1, or 0% and 100%.")
    return value


def new_file(path: Path, logs: tuple[str, ...]) -> Path:
    """A file to write a copy of a log to. Raises WrongUsage when there is one: nothing is
    overwritten, a log least of all."""
    for log in logs:
        if name_of(log) == log and Path(log).resolve() == path.resolve():
            raise WrongUsage(f"{path} is the log itself; name another file.")
    if path.exists():
        raise WrongUsage(f"{path} exists; name a new file.")
    return path
