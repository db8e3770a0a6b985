"""LangChain's own suites for chat models: unit, and integration in process and over HTTP.

In process sockets are shut, so nothing there can come from anywhere else. The model is the embedded
one where an answer needs ability, and a random one elsewhere: it has to be the grammar that makes
calls and objects complete.

Each of the tests that need ability runs in process or over HTTP; `make test-slow` runs the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
import pytest_socket
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_tests.integration_tests import ChatModelIntegrationTests
from langchain_tests.unit_tests import ChatModelUnitTests

from agentkv.langchain import ChatAgentKV

if TYPE_CHECKING:
    from agentkv.engine import Engine

NAME = "smollm2-135m"


class TestUnit(ChatModelUnitTests):
    @property
    def chat_model_class(self) -> type[BaseChatModel]:
        return ChatAgentKV

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {"model": NAME}

    @property
    def init_from_env_params(self) -> tuple[dict[str, str], dict[str, Any], dict[str, Any]]:
        env = {"AGENTKV_API_KEY": "k", "AGENTKV_BASE_URL": "http://127.0.0.1:9"}
        return env, {"model": NAME}, {"api_key": "k", "base_url": "http://127.0.0.1:9"}

    @pytest.fixture
    def benchmark(self, benchmark: Any) -> Any:
        """Run once and not for a second of statistics; the bound is below."""
        benchmark.disabled = True
        return benchmark

    def test_making_models_loads_and_asks_nothing(self) -> None:
        pytest_socket.disable_socket()
        try:
            start = time.perf_counter()
            for _ in range(10):
                ChatAgentKV(**self.chat_model_params)
                ChatAgentKV(base_url="http://127.0.0.1:9", **self.chat_model_params)
            assert time.perf_counter() - start < 0.5
        finally:
            pytest_socket.enable_socket()


ABLE = ("tool_calling", "unicode", "agent_loop")
"""Tests that want one call and no other, or one argument."""


class _Integration(ChatModelIntegrationTests):
    where: dict[str, Any]
    tokens: int
    embedded: tuple[str, ...] = ABLE
    """Tests that the embedded model runs; a random one is ten times as fast."""
    slow: tuple[str, ...] = ()
    """Tests of the other suite too, at seconds each: conftest.py marks them."""

    @pytest.fixture
    def used(self, request: pytest.FixtureRequest) -> Engine:
        """Calls need room for their names; text is the same at any length."""
        name = request.node.name
        calls = any(word in name for word in ("tool", "agent", "few_shot"))
        objects = any(word in name for word in ("structured", "json"))
        able = any(word in name for word in self.embedded) and "no_arguments" not in name
        self.tokens = 64 if calls else 16 if objects else 4
        if not able:
            self.tokens *= 3  # a token of that model is a byte
        engine: Engine = request.getfixturevalue("engine" if able else "one_engine")
        return engine

    @property
    def chat_model_class(self) -> type[BaseChatModel]:
        return ChatAgentKV

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {"max_tokens": self.tokens, **self.where}

    @property
    def supports_json_mode(self) -> bool:
        return True

    @property
    def supports_anthropic_inputs(self) -> bool:
        return True

    @property
    def supported_usage_metadata_details(self) -> Any:
        details = ["cache_read_input", "cache_creation_input"]
        return {"invoke": details, "stream": details}

    def invoke_with_cache_creation_input(self, *, stream: bool = False) -> AIMessage:
        return self._twice(stream)[0]

    def invoke_with_cache_read_input(self, *, stream: bool = False) -> AIMessage:
        first, second = self._twice(stream)
        assert first.usage_metadata is not None
        assert second.usage_metadata is not None
        read = second.usage_metadata["input_token_details"]["cache_read"]
        assert read == second.usage_metadata["input_tokens"] - 1
        assert second.text == first.text
        return second

    def _twice(self, stream: bool) -> list[AIMessage]:
        model = ChatAgentKV(**self.chat_model_params, cache_salt=f"twice-{stream}")
        out = []
        for _ in range(2):
            if not stream:
                out.append(model.invoke("Tell me about bears."))
                continue
            whole: BaseMessage | None = None
            for chunk in model.stream("Tell me about bears."):
                whole = chunk if whole is None else cast("BaseMessage", whole + chunk)
            assert isinstance(whole, AIMessage)
            out.append(whole)
        return out


class TestInProcess(_Integration):
    other: str
    """Another model, which a call asks for by name: a folder here."""

    embedded = (*ABLE, "test_invoke", "test_stream[", "test_structured_output[pydantic]")
    slow = (
        "test_tool_calling[model1]",
        "test_tool_calling_async",
        "test_agent_loop[model0]",
        "test_unicode_tool_call_integration",
    )

    @pytest.fixture(autouse=True)
    def _engine(
        self, used: Engine, tiny_llama_dir: Path, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[None]:
        self.where = {"engine": used, "model": used.model_name}
        monkeypatch.chdir(tiny_llama_dir.parent)
        self.other = tiny_llama_dir.name
        # An event loop is made with a pair of local sockets; those stay.
        pytest_socket.disable_socket(allow_unix_socket=True)
        yield
        pytest_socket.enable_socket()

    @property
    def model_override_value(self) -> str:
        return self.other


class TestOverHttp(_Integration):
    """Behind the same engines."""

    slow = ("test_tool_calling[model0]", "test_agent_loop[model1]")

    @pytest.fixture(autouse=True)
    def _server(self, used: Engine, serve: Callable[..., str]) -> None:
        self.where = {"base_url": serve(used), "model": used.model_name}

    @property
    def model_override_value(self) -> str:
        return str(self.where["model"])
