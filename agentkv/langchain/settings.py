"""What `ChatAgentKV` and `AgentKV` have in common: settings, clients, and how they are copied."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Literal, Self

from langchain_core.utils.utils import from_env, secret_from_env
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, SecretStr, model_validator

from agentkv.client.base import Client, Timeouts
from agentkv.client.errors import InvalidCall
from agentkv.client.http import HttpClient
from agentkv.client.inproc import InProcessClient
from agentkv.client.server import Dialect, split_url
from agentkv.engine.config import DEFAULT_MODEL, EngineConfig
from agentkv.engine.errors import InvalidRequest
from agentkv.engine.types import SamplingParams
from agentkv.langchain import thread
from agentkv.langchain.price import Pricing
from agentkv.langchain.usage import ReportDetail
from agentkv.prompt.segment import content_hash

if TYPE_CHECKING:
    from agentkv.engine.engine import Engine

SAMPLING = ("temperature", "max_tokens", "min_tokens", "top_p", "top_k", "seed", "logprobs")

CONFIG = ConfigDict(arbitrary_types_allowed=True, extra="forbid")
"""Each class repeats it: with several bases pydantic takes the last one's."""


class Settings(BaseModel):
    """Which engine, how to sample, how long to wait, what to report.

    `engine`: `inproc` (in this process; engines of one configuration are shared), `http`
    (`base_url`, or `AGENTKV_BASE_URL`), `auto` (http when there is a base URL), or an `Engine` of
    your own. `engine_options` are fields of `EngineConfig`. Nothing is loaded or connected before
    the first call.

    `session` names the conversation for layout and report; without it a LangGraph `thread_id` does.
    `timeout`: seconds for the whole call, or `Timeouts`. `report`: how much of the cache report
    goes into `response_metadata["agentkv"]`. `price`: what tokens cost; each answer then has
    `response_metadata["cost"]`.

    For other servers: `dialect` (`auto` asks the server who it is), `prompt_cache_key` (send the
    session as OpenAI's key), `extra_body` (fields of its own).
    """

    model_config = CONFIG

    model: str = DEFAULT_MODEL
    engine: Any = Field(default="auto", repr=False)
    engine_options: dict[str, Any] = Field(default_factory=dict)
    base_url: str | None = Field(default_factory=from_env("AGENTKV_BASE_URL", default=None))
    api_key: SecretStr | None = Field(
        default_factory=secret_from_env("AGENTKV_API_KEY", default=None)
    )
    temperature: float = 0.0
    max_tokens: int | None = 256
    min_tokens: int = 1
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    logprobs: int | None = None
    stop: list[str] | None = None
    session: str | None = None
    cache_salt: str | None = Field(default=None, repr=False)
    timeout: Timeouts | float | None = None
    max_retries: int = 2
    streaming: bool = False
    report: ReportDetail = "summary"
    price: Pricing | None = None
    dialect: Dialect = "auto"
    prompt_cache_key: bool | None = None
    extra_body: dict[str, Any] | None = Field(default=None, repr=False)
    http_client: Any = Field(default=None, exclude=True, repr=False)
    http_async_client: Any = Field(default=None, exclude=True, repr=False)

    _clients: dict[str, Client] = PrivateAttr(default_factory=dict)
    _lock: threading.Lock = PrivateAttr(default_factory=threading.Lock)

    @model_validator(mode="after")
    def _check_engine(self) -> Self:
        if isinstance(self.engine, str) and self.engine not in ("auto", "inproc", "http"):
            raise ValueError(
                f'engine must be "auto", "inproc", "http" or an Engine, got {self.engine!r}.'
            )
        if self.engine == "http" and not self.base_url:
            raise ValueError('engine="http" needs base_url (or AGENTKV_BASE_URL).')
        if not isinstance(self.engine, str) and not hasattr(self.engine, "model_name"):
            kind = type(self.engine).__name__
            raise ValueError(f'engine must be "auto", "inproc", "http" or an Engine, got a {kind}.')
        if self.base_url and "@" in self.base_url.partition("://")[2].partition("/")[0]:
            raise ValueError("base_url must not hold a user name or password; use api_key.")
        if self.base_url:
            split_url(self.base_url)
        if self.max_retries < 0:
            raise ValueError(f"max_retries must be at least 0, got {self.max_retries}.")
        self._config(self.model)
        Timeouts.of(self.timeout)
        try:
            self._params(None, {})
        except InvalidCall as error:
            raise ValueError(str(error)) from error
        return self

    # -- engines ---------------------------------------------------------------------------------

    @property
    def engine_kind(self) -> Literal["inproc", "http"]:
        """Where calls go."""
        if self.engine == "http" or (self.engine == "auto" and self.base_url):
            return "http"
        return "inproc"

    def _config(self, model: str) -> EngineConfig:
        known = {f.name for f in fields(EngineConfig)} - {"model"}
        for name in self.engine_options:
            if name not in known:
                raise ValueError(
                    f"engine_options has {name!r}, which is no field of EngineConfig beside the "
                    f"model (there: {', '.join(sorted(known))})."
                )
        try:
            return EngineConfig(model=model, **self.engine_options)
        except (InvalidRequest, TypeError) as error:
            raise ValueError(f"engine_options: {error}") from error

    def _client(self, model: str | None = None) -> Client:
        """The client for a model; made at its first use, which is cheap."""
        name = model or self.model
        client = self._clients.get(name)
        if client is not None:
            return client
        with self._lock:
            client = self._clients.get(name)
            if client is None:
                client = self._clients[name] = self._new_client(name)
            return client

    def _new_client(self, model: str) -> Client:
        if self.engine_kind == "http":
            return HttpClient(
                self.base_url or "",
                api_key=self.api_key.get_secret_value() if self.api_key else None,
                model=model,
                max_retries=self.max_retries,
                dialect=self.dialect,
                prompt_cache_key=self.prompt_cache_key,
                extra_body=self.extra_body,
                http_client=self.http_client,
                http_async_client=self.http_async_client,
            )
        if not isinstance(self.engine, str):
            own: Engine = self.engine
            if model in (self.model, own.model_name, own.config.model):
                return InProcessClient(own)
        return InProcessClient(self._config(model))

    def close(self) -> None:
        """Let go of connections and of shared engines; the next call takes them up again."""
        with self._lock:
            clients = list(self._clients.values())
            self._clients.clear()
        for client in clients:
            client.close()

    async def aclose(self) -> None:
        with self._lock:
            clients = list(self._clients.values())
            self._clients.clear()
        for client in clients:
            await client.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    # -- parameters ------------------------------------------------------------------------------

    def _params(self, stop: Iterable[str] | None, kwargs: dict[str, Any]) -> SamplingParams:
        """Sampling parameters of a call; takes what it knows out of `kwargs`."""
        given = {name: kwargs.pop(name, None) for name in SAMPLING}
        values: dict[str, Any] = {}
        for name, value in given.items():
            value = getattr(self, name) if value is None else value
            if value is not None:
                values[name] = value
        most = values.get("max_tokens")
        least = values.get("min_tokens", 0)
        if isinstance(most, int) and isinstance(least, int):  # SamplingParams refuses the rest
            values["min_tokens"] = min(least, most)
        wanted = stop if stop is not None else self.stop
        values["stop"] = (wanted,) if isinstance(wanted, str) else tuple(wanted or ())
        try:
            return SamplingParams(**values)
        except InvalidRequest as error:
            wrong = InvalidCall(str(error))
            wrong.param = error.param
            raise wrong from error

    def _timeouts(self, kwargs: dict[str, Any]) -> Timeouts:
        """A call's limits, or the model's; takes its argument out of `kwargs`."""
        given = kwargs.pop("timeout", None)
        try:
            return Timeouts.of(self.timeout if given is None else given)
        except ValueError as error:
            wrong = InvalidCall(str(error))
            wrong.param = "timeout"
            raise wrong from error

    def _session(self, run_manager: Any, kwargs: dict[str, Any]) -> str | None:
        """The call's own session, the model's, or LangGraph's thread."""
        session = kwargs.pop("session", None) or self.session
        if session:
            return str(session)
        return thread.of_metadata(getattr(run_manager, "metadata", None)) or thread.current()

    def _sampling_identity(self) -> dict[str, Any]:
        """Everything here that changes an answer, without secrets."""
        return {
            "model": self.model,
            "engine": self.engine_kind,
            "base_url": self.base_url if self.engine_kind == "http" else None,
            "engine_options": dict(self.engine_options),
            **{name: getattr(self, name) for name in SAMPLING},
            "stop": self.stop,
            # An answer for one salt must not come out of a response cache for another.
            "cache_salt": content_hash(self.cache_salt) if self.cache_salt else None,
        }

    def __eq__(self, other: object) -> bool:
        """Equal settings; which connections are open does not count."""
        return type(self) is type(other) and self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]

    def __getstate__(self) -> dict[str, Any]:
        """State without what belongs to this process: clients, locks, an engine object."""
        state = super().__getstate__()
        values = dict(state["__dict__"])
        values["http_client"] = values["http_async_client"] = None
        engine = values["engine"]
        if not isinstance(engine, str):
            values["engine"] = "inproc"
            values["engine_options"] = {**_options(engine.config), **values["engine_options"]}
            values["model"] = engine.config.model
        return {**state, "__dict__": values, "__pydantic_private__": None}

    def __setstate__(self, state: dict[Any, Any]) -> None:
        super().__setstate__(state)
        self.__pydantic_private__ = {}
        for name, private in type(self).__private_attributes__.items():
            self.__pydantic_private__[name] = private.get_default(call_default_factory=True)

    def __copy__(self) -> Self:
        return self.__deepcopy__()

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        """The same settings with clients of its own; an engine object is shared, never copied."""
        out = type(self).__new__(type(self))
        state = super().__getstate__()
        shared = (
            "engine",
            "http_client",
            "http_async_client",
            "callbacks",
            "rate_limiter",
            "cache",
        )
        values = {k: v if k in shared else _copied(v, memo) for k, v in state["__dict__"].items()}
        out.__setstate__({**state, "__dict__": values})
        return out


def _copied(value: Any, memo: dict[int, Any] | None) -> Any:
    import copy

    return copy.deepcopy(value, memo)


def _options(config: EngineConfig) -> dict[str, Any]:
    """The fields of a configuration that are not its default, without the model's name."""
    default = EngineConfig()
    return {
        f.name: getattr(config, f.name)
        for f in fields(EngineConfig)
        if f.name != "model" and getattr(config, f.name) != getattr(default, f.name)
    }
