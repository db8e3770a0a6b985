"""ChatAgentKV as a citizen of LangChain: copies, keys, caches, tools, documents, errors."""

from __future__ import annotations

import copy
import gc
import json
import pickle
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.caches import InMemoryCache
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.runnables import ConfigurableField

from agentkv.client import Timeouts
from agentkv.client import errors as e
from agentkv.engine.errors import EngineClosed
from agentkv.langchain import AgentKV, ChatAgentKV
from agentkv.prompt import Document, static, volatile
from agentkv.report import CacheReport

if TYPE_CHECKING:
    from agentkv.engine import Engine

SECRET = "sk-very-secret-0123456789"
PRIVATE = "The customer's diagnosis is confidential."


def find(place: str) -> str:
    """Find a parcel."""
    return place


@pytest.fixture
def llm(shared: Engine) -> ChatAgentKV:
    return ChatAgentKV(model="tiny", engine=shared, max_tokens=4)


def report(message: Any) -> CacheReport:
    found = CacheReport.from_message(message)
    assert found is not None
    return found


# -- construction --------------------------------------------------------------------------------


def test_nothing_is_loaded_before_the_first_call() -> None:
    for made in (
        ChatAgentKV(model="/no/such/model"),
        AgentKV(model="/no/such/model"),
        ChatAgentKV(base_url="http://127.0.0.1:9"),
    ):
        assert made._clients == {}
    with pytest.raises(e.UnknownModel):
        ChatAgentKV(model="/no/such/model").invoke("x")


@pytest.mark.parametrize(
    "wrong",
    [
        {"engine": "remote"},
        {"engine": "http"},
        {"base_url": "http://user:pass@host"},
        {"engine_options": {"page_size": 3}},
        {"engine_options": {"pages": 3}},
        {"layout": "fast"},
        {"timeout": -1},
        {"max_token": 5},
        {"documents": [3]},
        {"documents": {"policy": "text"}},
        {"documents": 3},
        {"engine": 5},
        {"base_url": "localhost:8080"},
        {"max_retries": -1},
        {"max_tokens": -1},
        {"top_p": 5.0},
        {"logprobs": 99},
        {"timeout": float("inf")},
        {"drop_lines": [""]},
    ],
)
def test_wrong_settings_are_refused_at_once(
    wrong: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AGENTKV_BASE_URL", raising=False)
    with pytest.raises(ValueError, match=next(iter(wrong))):
        ChatAgentKV(**wrong)


def test_settings_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTKV_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("AGENTKV_API_KEY", SECRET)
    made = ChatAgentKV()
    assert made.engine_kind == "http"
    assert made.api_key is not None
    assert made.api_key.get_secret_value() == SECRET
    assert ChatAgentKV(engine="inproc").engine_kind == "inproc"


def test_standard_parameters() -> None:
    made = ChatAgentKV(
        model="m",
        temperature=0,
        max_tokens=100,
        timeout=60,
        stop=["x"],
        max_retries=2,
        api_key=SECRET,  # type: ignore[arg-type]
        streaming=True,
    )
    params = made._get_ls_params(stop=["y"], model="other")
    assert params["ls_provider"] == "agentkv"
    assert params["ls_model_name"] == "other"
    assert params["ls_model_type"] == "chat"
    assert params["ls_max_tokens"] == 100
    assert Timeouts.of(made.timeout).total == 60


def test_secrets_and_texts_are_shown_nowhere() -> None:
    made = ChatAgentKV(
        api_key=SECRET,  # type: ignore[arg-type]
        base_url="http://127.0.0.1:9",
        documents=[Document("d", PRIVATE)],
        cache_salt=SECRET,
        max_retries=0,
    )
    call = made._get_invocation_params(documents=[Document("e", PRIVATE)], stop=None)
    with pytest.raises(e.EngineUnavailable) as found:
        made.invoke("x")
    shown = [
        repr(made),
        str(made),
        repr(made._identifying_params),
        repr(call),
        json.dumps(made._serialized, default=repr),
        str(found.value),
        made._get_llm_string(documents=[Document("e", PRIVATE)]),
    ]
    for text in shown:
        assert SECRET not in text
        assert PRIVATE not in text


def test_the_profile_knows_the_window_without_loading(tiny_llama_dir: Path) -> None:
    made = ChatAgentKV(model=str(tiny_llama_dir), engine="inproc")
    assert made.profile is not None
    assert made.profile["max_input_tokens"] == 2048
    assert made.profile["structured_output"]
    assert made._clients == {}


def test_a_server_is_asked_for_its_window(shared: Engine, serve: Callable[..., str]) -> None:
    """A constructor never asks; middlewares that need the window get it this way."""
    url = serve(shared)
    plain = ChatAgentKV(model="tiny", base_url=url)
    assert plain.profile is not None
    assert plain.profile["tool_calling"]
    assert "max_input_tokens" not in plain.profile
    with ChatAgentKV.from_server(url, model="tiny", max_tokens=2) as made:
        assert made.profile is not None
        assert made.profile["max_input_tokens"] == shared.max_model_len
        assert made.invoke("Hello").text


def test_a_model_from_what_another_said() -> None:
    made = ChatAgentKV(model="m", temperature=0.5, layout="canonical", max_tokens=9)
    again = ChatAgentKV.from_config(made.asdict())
    assert again._identifying_params == made._identifying_params
    docs: Any = ["a text"]
    with pytest.raises(e.InvalidCall, match="documents"):
        ChatAgentKV.from_config(ChatAgentKV(model="m", documents=docs).asdict())
    assert ChatAgentKV.from_config(ChatAgentKV(documents=docs).asdict(), documents=docs).documents


# -- copies --------------------------------------------------------------------------------------


def test_pickle_and_deepcopy(llm: ChatAgentKV, tiny_llama_dir: Path) -> None:
    llm.invoke("Hello")
    twin = copy.deepcopy(llm)
    assert twin.engine is llm.engine, "an engine is shared, never copied"
    assert report(twin.invoke("Hello")).cached_tokens > 0
    back = pickle.loads(pickle.dumps(llm))
    assert back.engine == "inproc"
    assert back.model == str(tiny_llama_dir)
    assert back.engine_options["dtype"] == "float32"
    with back:
        assert back.invoke("Hello").text == llm.invoke("Hello").text
    http = ChatAgentKV(base_url="http://127.0.0.1:9", documents=["a text"])  # type: ignore[list-item]
    http._client()
    assert pickle.loads(pickle.dumps(http)) == http == copy.deepcopy(http)
    text = AgentKV(model="m", temperature=0.5)
    assert pickle.loads(pickle.dumps(text)) == text


def test_configurable_fields(llm: ChatAgentKV) -> None:
    changing = llm.configurable_fields(
        layout=ConfigurableField(id="layout"), max_tokens=ConfigurableField(id="max_tokens")
    )
    config: Any = {"configurable": {"layout": "off", "max_tokens": 1}}
    got = report(changing.invoke("Hello", config))
    assert got.layout is not None
    assert got.layout.level == "off"
    assert got.completion_tokens == 1


def test_models_that_are_made_for_one_call_keep_no_engine(tiny_llama_dir: Path) -> None:
    """Core makes a new model for each call with a configuration of its own."""
    llm = ChatAgentKV(model=str(tiny_llama_dir), engine_options={"pool_tokens": 2048}, max_tokens=2)
    changing = llm.configurable_fields(max_tokens=ConfigurableField(id="max_tokens"))
    for number in (1, 2):
        config: Any = {"configurable": {"max_tokens": number}}
        assert report(changing.invoke("Hello there", config)).completion_tokens == number
    assert report(llm.invoke("Hello there")).cached_tokens > 0, "one engine for all of them"
    gc.collect()
    engine = llm._client().engine  # type: ignore[attr-defined]
    llm.close()
    with pytest.raises(EngineClosed):
        engine.generate("x")


def test_layout_and_documents_may_change_from_call_to_call(llm: ChatAgentKV) -> None:
    """R15: in one session, in any order; each answer is that of a call by itself."""
    laid = llm.model_copy(update={"session": "changing"})
    ask = [
        SystemMessage([volatile("Now: 1.", name="clock"), static("Be kind.")]),
        HumanMessage("x"),
    ]
    changes: list[dict[str, Any]] = [
        {"layout": layout, "documents": [Document(i, f"Text of {i}. ") for i in ids]}
        for layout, ids in (
            ("static_first", "AB"),
            ("off", "BA"),
            ("canonical", "B"),
            ("static_first", "BAC"),
            ("off", "AB"),
            ("static_first", "AB"),
        )
    ]
    got = [laid.invoke(ask, **change) for change in changes]
    assert report(got[-1]).cached_tokens == report(got[-1]).prompt_tokens - 1
    for change, answer in zip(changes, got, strict=True):
        level = report(answer).layout
        assert level is not None
        assert level.level == change["layout"]
    alone = [
        llm.model_copy(update={"session": f"alone-{i}"}).invoke(ask, **change)
        for i, change in enumerate(changes)
        if change["layout"] == "off"
    ]
    assert [a.text for a in alone] == [got[1].text, got[4].text]


def test_close_lets_go_and_the_next_call_takes_up(llm: ChatAgentKV) -> None:
    want = llm.invoke("Hello").text
    llm.close()
    llm.close()
    assert llm.invoke("Hello").text == want


# -- parameters of a call ------------------------------------------------------------------------


def test_parameters_of_a_call(llm: ChatAgentKV) -> None:
    assert report(llm.invoke("Hello", max_tokens=2)).completion_tokens == 2
    seeded = [llm.invoke("Hello", temperature=1.5, seed=7).text for _ in range(2)]
    assert seeded[0] == seeded[1]
    stopped = llm.invoke("Hello", stop=[llm.invoke("Hello").text[:2]])
    assert stopped.text == ""
    assert stopped.response_metadata["finish_reason"] == "stop"
    scored = llm.invoke("Hello", logprobs=1, max_tokens=2)
    assert len(scored.response_metadata["logprobs"]["content"]) == 2
    with pytest.raises(e.InvalidCall, match="max_token"):
        llm.invoke("Hello", max_token=2)
    with pytest.raises(e.InvalidCall, match="temperature"):
        llm.invoke("Hello", temperature=-1)
    with pytest.raises(e.InvalidCall, match="layout"):
        llm.invoke("Hello", layout="fast")


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_tokens": "5"},
        {"timeout": 0},
        {"timeout": -1},
        {"timeout": "soon"},
        {"timeout": True},
        {"documents": [5]},
        {"documents": {"policy": "text"}},
        {"documents": iter(["text"])},
        {"allowed_tools": "find"},
        {"allowed_tools": [find]},
    ],
)
def test_wrong_arguments_are_named(llm: ChatAgentKV, wrong: dict[str, Any]) -> None:
    (name,) = wrong
    for call in (
        lambda: llm.invoke("Hello", tools=[find], **wrong),
        lambda: list(llm.stream("Hello", tools=[find], **wrong)),
    ):
        with pytest.raises(e.InvalidCall, match=name) as found:
            call()
        assert found.value.param == name


def test_a_text_model_refuses_the_same(shared: Engine) -> None:
    llm = AgentKV(model="tiny", engine=shared, max_tokens=2)
    for wrong in ({"timeout": 0}, {"timeout": "soon"}, {"max_tokens": "5"}):
        with pytest.raises(e.InvalidCall, match=next(iter(wrong))):
            llm.invoke("Hello", **wrong)


def test_one_document_is_a_list_of_one(llm: ChatAgentKV) -> None:
    """A text is iterable too: letter by letter it would be as many documents."""
    alone = llm.explain("Hello", documents="Open from ten to six.")
    listed = llm.explain("Hello", documents=["Open from ten to six."])
    assert alone.messages == listed.messages
    assert str(alone.messages).count("<document ") == 1
    made = ChatAgentKV(documents=Document("hours", "Open from ten to six."))  # type: ignore[arg-type]
    assert [d.id for d in made.documents] == ["hours"]


def test_lines_may_be_patterns(llm: ChatAgentKV) -> None:
    head = "x-billing: 1; cch=3f1a0\nThe time is 12:03.\nYou are kind."
    made = llm.model_copy(
        update={"drop_lines": ("x-billing:",), "move_lines": (re.compile(r"The time is .*"),)}
    )
    checked = ChatAgentKV(drop_lines=["x-billing:"], move_lines=[re.compile(r"The time is .*")])
    assert (checked.drop_lines, checked.move_lines) == (made.drop_lines, made.move_lines)
    assert pickle.loads(pickle.dumps(checked)) == checked
    plan = checked.explain([SystemMessage(head), HumanMessage("Hello")])
    assert plan.messages[0]["content"] == "You are kind."
    assert "The time is 12:03." in str(plan.messages[-1]["content"])
    other = ChatAgentKV(move_lines=[re.compile(r"The time is .*", re.IGNORECASE)])
    assert (
        other._identifying_params
        != ChatAgentKV(move_lines=[re.compile(r"The time is .*")])._identifying_params
    )


def test_an_overlong_prompt_says_both_numbers(llm: ChatAgentKV) -> None:
    from langchain_core.exceptions import ContextOverflowError

    with pytest.raises(ContextOverflowError, match="2048") as found:
        llm.invoke("x" * 5000)
    assert isinstance(found.value, e.ContextOverflow)


def test_a_response_cache_is_no_kv_hit(shared: Engine) -> None:
    """B055: the second call does not reach the engine, and other tools are another call."""
    llm = ChatAgentKV(model="tiny", engine=shared, max_tokens=4, cache=InMemoryCache())
    first = llm.invoke("Hello")
    before = shared.stats()["requests_total"]
    second = llm.invoke("Hello")
    assert shared.stats()["requests_total"] == before
    assert second.text == first.text
    assert second.usage_metadata is not None
    assert second.usage_metadata.get("total_cost") == 0, "core's mark of a response-cache hit"
    for other in (
        llm.bind_tools([{"name": "f", "description": "d"}]),
        llm.bind_documents(["a text"]),
        llm.bind(max_tokens=3),
        llm.bind(layout="off"),
        llm.bind_tools([{"name": "f", "description": "d"}], tool_choice="none"),
        llm.bind(response_format={"type": "json_object"}, max_tokens=60),
        llm.model_copy(update={"cache_salt": "another"}),
    ):
        before = shared.stats()["requests_total"]
        other.invoke("Hello")
        assert shared.stats()["requests_total"] == before + 1


# -- tools and documents -------------------------------------------------------------------------


def test_tools_are_in_the_prompt_whatever_the_choice(llm: ChatAgentKV) -> None:
    def find(zip_code: str) -> str:
        """Find a parcel."""
        return zip_code

    def send(zip_code: str) -> str:
        """Send a parcel."""
        return zip_code

    bare = report(llm.invoke("Hello")).prompt_tokens
    first = report(llm.bind_tools([find, send]).invoke("Hello", max_tokens=100))
    assert first.prompt_tokens > bare
    assert first.segments[0].kind == "tools"
    for choice, only, names in (
        ("none", None, []),
        ("any", None, None),
        ("find", None, ["find"]),
        ("any", ["send"], ["send"]),
        (None, [], []),
    ):
        bound = llm.bind_tools([find, send], tool_choice=choice, allowed_tools=only)
        answer = bound.invoke("Hello", max_tokens=100)
        got = report(answer)
        assert got.prompt_tokens == first.prompt_tokens
        assert got.cached_tokens == got.prompt_tokens - 1
        called = [c["name"] for c in answer.tool_calls]
        assert called == names if names is not None else called


def test_one_call_where_only_one_is_wanted(llm: ChatAgentKV) -> None:
    def find(n: bool) -> str:
        """Find a parcel."""
        return str(n)

    bound = llm.bind_tools([find], tool_choice="any", parallel_tool_calls=False)
    assert len(bound.invoke("Hello", max_tokens=200).tool_calls) == 1


def test_shuffled_tools_hit_as_unshuffled(llm: ChatAgentKV, shared: Engine, traces: Path) -> None:
    """B070, with the first tools of a real MCP server that fit this small model's window."""
    tools = json.loads((traces / "tools" / "github_mcp_tools.json").read_text())
    tools = sorted(tools, key=lambda t: len(json.dumps(t)))[:4]
    order = random.Random(3)
    reports = []
    for _ in range(5):
        order.shuffle(tools)
        reports.append(report(llm.bind_tools(tools).invoke("Hello")))
    assert reports[0].cached_tokens == 0
    assert all(r.cached_tokens == r.prompt_tokens - 1 for r in reports[1:])
    shared.flush()
    off = llm.model_copy(update={"layout": "off", "session": "off"})
    last = report(off.bind_tools(tools).invoke("Hello"))
    tools.reverse()
    turned = report(off.bind_tools(tools).invoke("Hello"))
    assert last.prompt_tokens == turned.prompt_tokens
    assert turned.reason == "tool_order"
    assert turned.miss is not None
    assert "canonical" in (turned.miss.advice or "")


def test_documents_in_another_order(llm: ChatAgentKV) -> None:
    """B025: only the common prefix is claimed, the report says why; the layout keeps the order."""
    docs = {n: Document(n, f"Text of {n}: " + f"{n} says so. " * 9) for n in "ABC"}

    def ask(model: ChatAgentKV, ids: str, question: str) -> CacheReport:
        return report(model.invoke(question, documents=[docs[i] for i in ids]))

    off = llm.model_copy(update={"layout": "off", "session": "given"})
    first = ask(off, "ABC", "One?")
    second = ask(off, "ACB", "Two?")
    third = ask(off, "BAC", "Three?")
    assert (second.reason, third.reason) == ("document_order", "document_order")
    assert 0 < third.cached_tokens < second.cached_tokens < first.prompt_tokens // 2
    assert second.miss is not None
    assert "static_first" in (second.miss.advice or "")
    laid = llm.model_copy(update={"session": "laid"})
    for k, ids in enumerate(("ABC", "ACB", "BAC")):
        got = ask(laid, ids, f"Question {k}?")
        if k:
            assert got.reason != "document_order"
            assert got.cached_tokens > got.prompt_tokens - 60
    # A document that is new is appended: what was there stays where it was.
    docs["D"] = Document("D", "Text of D.")
    got = ask(laid, "DCBA", "And now?")
    by_name = {s.name: s for s in got.segments}
    assert by_name["documents"].cached > 0.8 * by_name["documents"].tokens


def test_a_conversation_keeps_its_history(llm: ChatAgentKV) -> None:
    """With a clock in the system message: every turn reuses all but its tail and the last answer."""
    laid, off = (
        llm.model_copy(update={"layout": x, "session": x}) for x in ("static_first", "off")
    )
    computed = {}
    for model in (laid, off):
        history: list[Any] = []
        counts = []
        for k in range(4):
            clock = volatile(f"Now: 12:0{k}.", name="clock")
            head = SystemMessage([clock, static("You are a support agent. " * 10)])
            history.append(HumanMessage(f"Question number {k}?"))
            answer = model.invoke([head, *history])
            counts.append(report(answer))
            history.append(AIMessage(answer.content))
        computed[model.layout] = [r.computed_tokens for r in counts[1:]]
        reasons = {r.reason for r in counts[1:]}
        assert reasons == ({"appended"} if model is laid else {"text_changed"})
    # A byte-level vocabulary: an answer of 4 tokens, a question of 20, a block of 40.
    assert max(computed["static_first"]) < 160
    assert min(computed["off"]) > 250


def test_an_agent_loop_reuses_up_to_its_tail(llm: ChatAgentKV) -> None:
    laid = llm.model_copy(update={"session": "loop"})
    head = SystemMessage([static("You are a support agent. " * 10), volatile("Now: 1.", "clock")])
    messages: list[Any] = [head, HumanMessage("Where is my parcel?")]
    last = 0
    for step in range(4):
        got = report(laid.invoke(messages))
        if step:
            # All of the last prompt but its block is there again.
            assert got.cached_tokens >= last - 75
            assert got.reason == "appended"
        last = got.prompt_tokens
        call = {"name": "find", "args": {"step": step}, "id": f"call-{random.random()}"}
        messages.append(AIMessage("", tool_calls=[call]))
        messages.append(ToolMessage(f"result {step}", tool_call_id=call["id"]))


def test_a_template_that_takes_no_block_behind_a_tool_result(
    tiny_llama_dir: Path, traces: Path, tmp_path: Path
) -> None:
    """Mistral's insists on alternating roles: the block goes into the last user message instead."""
    import shutil

    folder = tmp_path / "strict"
    shutil.copytree(tiny_llama_dir, folder)
    source = traces / "chat_templates" / "mistralai-Mistral-Nemo-Instruct-2407.jinja"
    shutil.copy(source, folder / "chat_template.jinja")
    options = {"dtype": "float32", "pool_tokens": 2048}
    call = {"name": "find", "args": {}, "id": "call00001"}
    messages = [
        SystemMessage([volatile("Now: 1.", name="clock"), static("Be kind.")]),
        HumanMessage("Where is it?"),
        AIMessage("", tool_calls=[call]),
        ToolMessage("here", tool_call_id="call00001"),
    ]
    with ChatAgentKV(model=str(folder), engine_options=options, max_tokens=2) as strict:
        tools = [{"name": "find", "description": "d"}]
        bound = strict.bind_tools(tools)
        for answer in (bound.invoke(messages), list(bound.stream(messages))[-1]):
            got = report(answer)
            assert got.layout is not None
            assert [name for name, _ in got.layout.refused] == ["tail"]
        assert strict.get_num_tokens_from_messages(messages, tools) == got.prompt_tokens
        with pytest.raises(e.InvalidCall):
            strict.invoke([*messages, HumanMessage("a"), HumanMessage("b")])


# -- looking ahead -------------------------------------------------------------------------------


def test_counting_is_exact(llm: ChatAgentKV) -> None:
    tools = [{"name": "f", "description": "d"}]
    messages = [SystemMessage("Be kind."), HumanMessage("Hello")]
    counted = llm.get_num_tokens_from_messages(messages, tools)
    assert counted == report(llm.bind_tools(tools).invoke(messages)).prompt_tokens
    assert llm.get_num_tokens("Hello") == len(llm.get_token_ids("Hello")) > 0


def test_explain_runs_nothing_and_remembers_nothing(llm: ChatAgentKV, shared: Engine) -> None:
    before = shared.stats()["requests_total"]
    plan = llm.explain(
        [SystemMessage([volatile("Now: 1.", name="clock")]), HumanMessage("x")],
        [{"name": "z"}],
        session="explained",
    )
    assert [(m.name, m.to) for m in plan.moves] == [("clock", "tail")]
    assert shared.stats()["requests_total"] == before
    plan = llm.explain("x", [{"name": "z"}, {"name": "a"}], session="explained")
    assert [t["function"]["name"] for t in plan.tools] == ["a", "z"]


def test_warm_computes_what_the_first_call_needs(llm: ChatAgentKV) -> None:
    head = SystemMessage([volatile("Now: 1.", name="clock"), static("You are kind. " * 10)])
    tools = [{"name": "f", "description": "d"}]
    documents = [Document("d", "Some text. " * 10)]
    warmed = llm.warm([head], tools, documents=documents)
    assert warmed.completion_tokens == 0
    bound = llm.bind_tools(tools)
    got = report(bound.invoke([head, HumanMessage("Hello")], documents=documents))
    assert got.cached_tokens == warmed.prompt_tokens
    assert llm.warm("Hello there").prompt_tokens > 0
