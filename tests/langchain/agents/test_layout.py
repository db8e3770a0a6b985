"""What the middleware sends: on a recording model of another provider, and on our own."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, ModelRequest, dynamic_prompt
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langgraph.checkpoint.memory import InMemorySaver

from agentkv.langchain import ChatAgentKV
from agentkv.langchain.agents import CacheLayoutMiddleware, split_prompt
from agentkv.langchain.agents.plan import tool_name
from agentkv.langchain.agents.threads import Threads
from agentkv.prompt import static, volatile
from agentkv.report import CacheReport

from .conftest import Recorder, call, make_tool

if TYPE_CHECKING:
    from agentkv.engine import Engine

RULES = "You are a desk agent. Answer in one sentence.\nNever give medical advice to anyone.\n"
THREAD: Any = {"configurable": {"thread_id": "t"}}


class Select(AgentMiddleware):
    """Offers the tools that a function picks for each call."""

    def __init__(self, pick: Callable[[int, list[Any]], Sequence[Any]]) -> None:
        super().__init__()
        self.pick = pick
        self.calls = 0

    def wrap_model_call(self, request: ModelRequest[Any], handler: Any) -> Any:
        self.calls += 1
        return handler(request.override(tools=list(self.pick(self.calls - 1, request.tools))))


class Prompt(AgentMiddleware):
    """Gives each call the next system message."""

    def __init__(self, *prompts: Any) -> None:
        super().__init__()
        self.prompts = list(prompts)

    def _next(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        text = self.prompts.pop(0) if len(self.prompts) > 1 else self.prompts[0]
        message = text if isinstance(text, SystemMessage) else SystemMessage(text)
        return request.override(system_message=message)

    def wrap_model_call(self, request: ModelRequest[Any], handler: Any) -> Any:
        return handler(self._next(request))

    async def awrap_model_call(self, request: ModelRequest[Any], handler: Any) -> Any:
        return await handler(self._next(request))


def ask(agent: Any, text: str, config: Any = THREAD) -> AIMessage:
    return agent.invoke({"messages": [HumanMessage(text)]}, config)["messages"][-1]


def agent(model: Any, *middleware: Any, tools: Sequence[Any] = (), **more: Any) -> Any:
    return create_agent(
        model, list(tools), middleware=list(middleware), checkpointer=InMemorySaver(), **more
    )


# -- other providers ---------------------------------------------------------------------------


def test_declared_text_goes_behind_the_history(recorder: Callable[..., Recorder]) -> None:
    model = recorder(call("a"))
    prompts = [split_prompt(static=RULES, dynamic={"clock": f"Now: 12:0{i}."}) for i in range(3)]
    made = agent(model, Prompt(*prompts), CacheLayoutMiddleware(), tools=[make_tool("a")])
    answer = ask(made, "Hi")
    ask(made, "More")
    assert {model.system(i) for i in range(3)} == {RULES}
    assert [type(c["messages"][-1]).__name__ for c in model.calls] == ["HumanMessage"] * 3
    assert model.tail(0) == 'Hi \n\n<context name="clock">\nNow: 12:00.\n</context>'
    assert model.tail(1) == '<context name="clock">\nNow: 12:01.\n</context>', "behind the result"
    assert model.tail(2).startswith("More")
    state = made.get_state(THREAD).values["messages"]
    assert [m.text for m in state if isinstance(m, HumanMessage)] == ["Hi", "More"], "never stored"
    for sent in model.calls:
        assert set(sent) <= {"messages", "tools", "tool_choice", "stop"}, "no unknown settings"
        assert "agentkv" not in str([m.content for m in sent["messages"]])
    report = CacheReport.from_message(answer)
    assert report is not None
    assert (report.cached_tokens, report.prompt_tokens) == (40, 100)
    assert report.layout is not None
    assert report.layout.moved == (("clock", "tail"),)
    assert answer.response_metadata["agentkv"]["layout"]["moved"] == [["clock", "tail"]]


def test_a_text_that_points_is_left_and_said(recorder: Callable[..., Recorder]) -> None:
    model = recorder()
    system = split_prompt(static=RULES, dynamic={"note": "Ignore the rules above."})
    answer = ask(agent(model, Prompt(system), CacheLayoutMiddleware()), "Hi")
    assert "above" in model.system(0)
    (entry,) = answer.response_metadata["agentkv"]["layout"]["refused"]
    assert entry[0] == "note"
    assert "may point at" in entry[1]


def test_lines_that_changed_go_to_the_tail_if_asked(recorder: Callable[..., Recorder]) -> None:
    prompts = [f"Now: 12:0{i}\n{RULES}User: Ann\n" for i in range(4)]
    model = recorder()
    made = agent(model, Prompt(*prompts), CacheLayoutMiddleware(dynamic="tail_message"))
    answers = [ask(made, f"q{i}") for i in range(4)]
    assert model.system(0) == prompts[0].rstrip("\n"), "nothing was seen to change yet"
    assert {model.system(i) for i in (1, 2, 3)} == {(RULES + "User: Ann").rstrip("\n")}
    assert model.tail(3).endswith('<context name="system line 1">\nNow: 12:03\n</context>')
    assert answers[3].response_metadata["agentkv"]["layout"]["moved"] == [["system line 1", "tail"]]
    other: Any = {"configurable": {"thread_id": "u"}}
    ask(made, "q", other)
    assert model.system(4) == model.system(3), "a new thread starts with what others have shown"
    plain = recorder()
    untouched = agent(plain, Prompt(*prompts), CacheLayoutMiddleware())
    for i in range(4):
        ask(untouched, f"q{i}")
        assert plain.system(i) == prompts[i], "not by default"


def test_lines_can_be_kept(recorder: Callable[..., Recorder]) -> None:
    prompts = [f"Plan: {i}\nNow: 12:0{i}\n{RULES}" for i in range(3)]
    model = recorder()
    layout = CacheLayoutMiddleware(dynamic="tail_message", keep=[r"^Plan:"])
    made = agent(model, Prompt(*prompts), layout)
    for i in range(3):
        answer = ask(made, f"q{i}")
    assert model.system(2).startswith("Plan: 2\nNow: 12:02"), "one piece: its neighbour stays too"
    assert answer.response_metadata["agentkv"]["layout"]["refused"] == [
        ["system line 1", "keep= says that it stays."]
    ]


def test_all_words_are_sent_once(recorder: Callable[..., Recorder]) -> None:
    rng = random.Random(3)
    for _ in range(20):
        model = recorder()
        lines = [f"Rule {i} says that {rng.random()}." for i in range(6)]
        prompts = []
        for _ in range(4):
            some = list(lines)
            some[rng.randrange(6)] = f"Now it is {rng.random()}."
            prompts.append("\n".join(some))
        made = agent(model, Prompt(*prompts), CacheLayoutMiddleware(dynamic="tail_message"))
        for i, prompt in enumerate(prompts):
            ask(made, "q")
            sent = [model.system(i), model.tail(i)]
            for line in prompt.splitlines():
                assert sum(text.count(line) for text in sent) == 1


def test_markers_of_a_provider_stay_on_what_stays(recorder: Callable[..., Recorder]) -> None:
    """B056: a marker on text that changes would have the fixed text written anew each time."""
    marker = {"cache_control": {"type": "ephemeral"}}
    prompts = [
        SystemMessage([{"type": "text", "text": f"{RULES}Now: 12:0{i}", **marker}])
        for i in range(2)
    ]
    model = recorder()
    made = agent(model, Prompt(*prompts), CacheLayoutMiddleware(dynamic="tail_message"))
    ask(made, "a")
    ask(made, "b")
    assert model.calls[1]["messages"][0].content == [
        {"type": "text", "text": RULES.rstrip("\n"), **marker}
    ]


def test_images_and_block_content_are_left_alone(recorder: Callable[..., Recorder]) -> None:
    picture = {"type": "image", "url": "https://example.org/a.png"}
    model = recorder()
    made = agent(
        model, Prompt(split_prompt(static=RULES, dynamic="Now: 1.")), CacheLayoutMiddleware()
    )
    made.invoke({"messages": [HumanMessage([picture, {"type": "text", "text": "What?"}])]}, THREAD)
    content = model.calls[0]["messages"][-1].content
    assert content[0] == picture
    assert content[1]["text"] == "What?"
    assert "Now: 1." in content[2]["text"]
    system = SystemMessage([picture, {"type": "text", "text": RULES}])
    other = recorder()
    ask(agent(other, Prompt(system), CacheLayoutMiddleware()), "Hi")
    assert other.calls[0]["messages"][0].content == system.content


def test_other_models_keep_their_selection_in_one_order(recorder: Callable[..., Recorder]) -> None:
    tools = [make_tool(n) for n in "abc"]
    picks = ["cab", "ab", "bca", "c"]
    model = recorder()
    select = Select(lambda i, given: [t for n in picks[i] for t in given if t.name == n])
    made = agent(model, select, CacheLayoutMiddleware(), tools=tools)
    for i in range(4):
        ask(made, f"q{i}")
    assert [model.tools(i) for i in range(4)] == [
        ["c", "a", "b"],
        ["a", "b"],
        ["c", "a", "b"],
        ["c"],
    ]
    assert all("allowed_tools" not in sent for sent in model.calls)


def test_async_agents(recorder: Callable[..., Recorder]) -> None:
    prompts = [split_prompt(static=RULES, dynamic={"clock": f"Now: 12:0{i}."}) for i in range(2)]
    model = recorder()
    made = agent(model, Prompt(*prompts), CacheLayoutMiddleware())

    async def main() -> None:
        for i in range(2):
            out = await made.ainvoke({"messages": [HumanMessage(f"q{i}")]}, THREAD)
            assert "moved" in out["messages"][-1].response_metadata["agentkv"]["layout"]

    asyncio.run(main())
    assert model.system(0) == model.system(1) == RULES


def test_state_is_bounded_and_told_apart() -> None:
    threads = Threads(limit=3)
    for i in range(10):
        threads.get(str(i)).tools["x"] = i
    assert len(threads) == 3
    assert threads.get("9").tools == {"x": 9}
    assert threads.get("0").tools == {}
    with pytest.raises(ValueError, match="at least 1"):
        Threads(limit=0)


def test_threads_without_an_id(recorder: Callable[..., Recorder]) -> None:
    model = recorder()
    select = Select(lambda i, given: given[:: -1 if i % 2 else 1])
    made = create_agent(
        model,
        [make_tool("a"), make_tool("b")],
        middleware=[select, CacheLayoutMiddleware()],
    )
    for text in ("one", "one", "two"):
        made.invoke({"messages": [HumanMessage(text, id=text)]})
    assert [model.tools(i) for i in range(3)] == [["a", "b"]] * 3


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="tail_message"):
        CacheLayoutMiddleware(dynamic="head")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="union_masked"):
        CacheLayoutMiddleware(tool_policy="some")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="static"):
        split_prompt(static="")


def test_without_langchain_the_error_names_the_extra() -> None:
    code = """
import sys
sys.modules["langchain"] = sys.modules["langchain.agents"] = None
import agentkv.langchain.agents as agents
agents.split_prompt(static="x")
for name in ("CacheLayoutMiddleware", "ClearToolUsesSticky"):
    try:
        getattr(agents, name)
    except ImportError as error:
        assert 'pip install "agentkv[langchain]"' in str(error), error
        assert name in str(error)
    else:
        raise SystemExit("imported")
"""
    subprocess.run([sys.executable, "-c", code], check=True)


# -- our own model -----------------------------------------------------------------------------


@pytest.fixture
def llm(shared: Engine) -> ChatAgentKV:
    return ChatAgentKV(model="tiny", engine=shared, max_tokens=16)


def report(message: AIMessage) -> CacheReport:
    found = CacheReport.from_message(message)
    assert found is not None
    return found


def run(llm: ChatAgentKV, thread: str, prompts: Sequence[str], **layout: Any) -> list[AIMessage]:
    more = [CacheLayoutMiddleware(**layout)] if layout else []
    made = agent(llm, Prompt(*prompts), *more)
    config: Any = {"configurable": {"thread_id": thread}}
    return [ask(made, f"question {i}", config) for i in range(len(prompts))]


def test_a_changing_line_costs_its_own_length(llm: ChatAgentKV) -> None:
    prompts = [f"Now: 12:0{i}\n{RULES * 3}" for i in range(4)]
    off = run(llm.model_copy(update={"layout": "off"}), "off", prompts)
    on = run(llm, "on", prompts, dynamic="tail_message")
    assert [report(m).cached_tokens < 60 for m in off] == [True] * 4
    assert [report(m).computed_tokens < 160 for m in on[2:]] == [True] * 2
    layout = report(on[3]).layout
    assert layout is not None
    assert layout.moved == (("system line 1", "tail"),)
    assert report(on[3]).cached_tokens > 350


def test_the_same_bytes_as_declared_by_hand(llm: ChatAgentKV) -> None:
    """The middleware only finds what changes; the model lays it out. Cold answers are equal."""
    prompts = [f"Now: 12:0{i}\n{RULES}" for i in range(3)]
    found = run(llm, "found", prompts, dynamic="tail_message")[2]
    cold = ChatAgentKV(model="tiny", engine=llm.engine, max_tokens=16, cache_salt="cold")
    by_hand = SystemMessage([volatile("Now: 12:02\n", "system line 1"), static(RULES.rstrip("\n"))])
    state: list[Any] = [by_hand]
    warm = agent(llm, Prompt(*prompts), CacheLayoutMiddleware(dynamic="tail_message"))
    config: Any = {"configurable": {"thread_id": "again"}}
    for i in range(3):
        ask(warm, f"question {i}", config)
    for message in warm.get_state(config).values["messages"][:-1]:
        state.append(message)
    direct = cold.invoke(state, session="cold")
    assert report(found).cached_tokens > report(found).prompt_tokens // 2
    assert report(direct).cached_tokens == 0
    assert report(direct).prompt_tokens == report(found).prompt_tokens
    assert direct.text == found.text


def test_tools_stay_in_the_prompt_and_are_masked(llm: ChatAgentKV) -> None:
    """B071: a selector picks other tools for each call; the prompt keeps all, the decoder forbids."""
    tools = [make_tool(n) for n in "abcd"]
    picks = ["ab", "c", "bd", "a"]

    def select() -> Select:
        return Select(lambda i, given: [t for t in given if t.name in picks[i % 4]])

    made = agent(llm, select(), CacheLayoutMiddleware(tools=tools), tools=tools)
    answers = []
    for i in range(4):
        answers.append(ask(made, f"question {i}"))
    masked = [m.response_metadata["agentkv"]["layout"].get("masked", []) for m in answers]
    assert masked == [["c", "d"], ["a", "b", "d"], ["a", "c"], ["b", "c", "d"]]
    assert all(report(m).computed_tokens < 120 for m in answers[1:])
    off = agent(llm.model_copy(update={"layout": "off"}), select(), tools=tools)
    config: Any = {"configurable": {"thread_id": "off"}}
    lost = [report(ask(off, f"question {i}", config)) for i in range(4)]
    assert all(r.cached_tokens < r.prompt_tokens // 2 for r in lost[1:])


def test_a_masked_tool_cannot_be_called(llm: ChatAgentKV) -> None:
    """Forced to call a tool, the model can only call the one that is offered."""

    def only(wanted: str, _: int, given: list[Any]) -> list[Any]:
        return [t for t in given if t.name == wanted]

    class Force(AgentMiddleware):
        def wrap_model_call(self, request: ModelRequest[Any], handler: Any) -> Any:
            asked = isinstance(request.messages[-1], HumanMessage)
            return handler(request.override(tool_choice="any" if asked else "none"))

    tools = [make_tool(n) for n in "abc"]
    for wanted in "abc":
        select = Select(partial(only, wanted))
        made = agent(
            llm.model_copy(update={"max_tokens": 96}),
            select,
            Force(),
            CacheLayoutMiddleware(tools=tools),
            tools=tools,
        )
        out = made.invoke({"messages": [HumanMessage("go")]}, THREAD)["messages"]
        names = {c["name"] for m in out if isinstance(m, AIMessage) for c in m.tool_calls}
        assert names == {wanted}


def test_a_tool_that_appears_late_is_appended(llm: ChatAgentKV) -> None:
    tools = [make_tool(n) for n in "zab"]
    seen: list[list[str]] = []

    class See(AgentMiddleware):
        def wrap_model_call(self, request: ModelRequest[Any], handler: Any) -> Any:
            seen.append([tool_name(t) for t in request.tools])
            return handler(request)

    select = Select(lambda i, given: given[: 1 + i])
    made = agent(llm, select, CacheLayoutMiddleware(), See(), tools=tools)
    for i in range(3):
        ask(made, f"question {i}")
    assert seen == [["z"], ["z", "a"], ["z", "a", "b"]]


def test_no_tool_offered_means_none_is_called(llm: ChatAgentKV) -> None:
    choices: list[Any] = []

    class See(AgentMiddleware):
        def wrap_model_call(self, request: ModelRequest[Any], handler: Any) -> Any:
            choices.append((request.tool_choice, len(request.tools)))
            return handler(request)

    select = Select(lambda i, given: given if i == 0 else [])
    made = agent(llm, select, CacheLayoutMiddleware(), See(), tools=[make_tool("a")])
    first, second = ask(made, "one"), ask(made, "two")
    assert choices == [(None, 1), ("none", 1)]
    assert report(second).cached_tokens >= report(first).prompt_tokens - 1


def test_a_structured_answer_stays_allowed(llm: ChatAgentKV) -> None:
    from langchain.agents.structured_output import ToolStrategy
    from pydantic import BaseModel

    class Verdict(BaseModel):
        ok: bool

    settings: list[Any] = []

    class See(AgentMiddleware):
        def wrap_model_call(self, request: ModelRequest[Any], handler: Any) -> Any:
            settings.append(request.model_settings)
            return handler(request)

    tools = [make_tool("a"), make_tool("b")]
    select = Select(lambda i, given: [])
    made = agent(
        llm.model_copy(update={"max_tokens": 96}),
        select,
        CacheLayoutMiddleware(tools=tools),
        See(),
        tools=tools,
        response_format=ToolStrategy(Verdict),
    )
    out = made.invoke({"messages": [HumanMessage("go")]}, THREAD)
    assert settings == [{"allowed_tools": ["Verdict"]}]
    assert isinstance(out["structured_response"], Verdict)


def test_memory_last_keeps_all_text(llm: ChatAgentKV) -> None:
    """B052: three middlewares append to the prompt; the memory of the first one changes."""

    def appends(text: Callable[[], str]) -> Any:
        class Append(AgentMiddleware):
            name = f"append-{id(text)}"

            def wrap_model_call(self, request: ModelRequest[Any], handler: Any) -> Any:
                now = f"{request.system_prompt}\n\n{text()}"
                return handler(request.override(system_message=SystemMessage(now)))

        return Append()

    memory = ["likes tea", "likes tea", "likes coffee", "likes mate"]
    turn = [0]
    guide = "## Files\n" + "Use the file tools for files, and nothing else. " * 4
    team = "## Team\n" + "Ask the researcher for facts, and the writer for text. " * 4

    def run_with(*more: Any, thread: str, model: ChatAgentKV) -> list[CacheReport]:
        made = agent(
            model,
            appends(lambda: f"## Memory\nThe user {memory[turn[0]]}."),
            appends(lambda: guide),
            appends(lambda: team),
            *more,
            system_prompt=RULES.rstrip("\n"),
        )
        out = []
        for i in range(4):
            turn[0] = i
            config: Any = {"configurable": {"thread_id": thread}}
            out.append(report(ask(made, f"question {i}", config)))
        return out

    off = run_with(thread="off", model=llm.model_copy(update={"layout": "off"}))
    on = run_with(CacheLayoutMiddleware(dynamic="tail_message"), thread="on", model=llm)
    assert off[2].miss is not None
    assert off[2].miss.reason == "text_changed"
    assert off[3].computed_tokens > 300
    assert on[3].computed_tokens < 170
    layout = on[3].layout
    assert layout is not None
    assert [to for _, to in layout.moved] == ["tail"]


def test_history_that_was_sent_is_never_rewritten(llm: ChatAgentKV) -> None:
    """B053: context for a second person, (a) spliced in at message 1, (b) declared at the end."""
    history: list[Any] = []
    for i in range(10):
        history += [HumanMessage(f"question number {i}, in a few words"), AIMessage(f"answer {i}")]
    joined = volatile("Bo joined, a plumber.", "participants")
    off = llm.model_copy(update={"layout": "off", "session": "b53"})
    system = SystemMessage(RULES)
    before = off.invoke([system, *history, HumanMessage("now what?")])
    spliced = [HumanMessage(f"Bo joined, a plumber. {history[0].content}"), *history[1:]]
    a = report(off.invoke([system, *spliced, HumanMessage("and then?")]))
    assert a.miss is not None
    assert a.miss.token < report(before).prompt_tokens // 3
    assert a.miss.reason in ("text_changed", "history_edited")
    b = report(
        llm.invoke(
            [SystemMessage([static(RULES), joined]), *history, HumanMessage("and then?")],
            session="b53",
        )
    )
    assert b.cached_tokens > report(before).prompt_tokens - 40


def test_dynamic_prompt_by_decorator(recorder: Callable[..., Recorder]) -> None:
    count = iter(range(9))

    @dynamic_prompt
    def prompt(request: ModelRequest[Any]) -> Any:
        return split_prompt(static=RULES, dynamic=f"Step {next(count)} of the plan.")

    model = recorder()
    made = agent(model, prompt, CacheLayoutMiddleware())
    ask(made, "a")
    ask(made, "b")
    assert model.system(0) == model.system(1) == RULES
    assert "Step 1" in model.tail(1)


def test_a_wrong_mark_is_told_at_run_time(llm: ChatAgentKV) -> None:
    """B056: text that is marked static and changes."""
    prompts = [SystemMessage([static(f"Notes: {i}\nBe kind.", "memory")]) for i in range(5)]
    made = agent(llm, Prompt(*prompts), CacheLayoutMiddleware())
    answers = [ask(made, f"question {i}") for i in range(5)]
    layout = report(answers[-1]).layout
    assert layout is not None
    (warning,) = layout.warnings
    assert "'memory' is marked static" in warning
    assert "4 of 5 calls" in warning
    assert "Notes: 4" in warning
