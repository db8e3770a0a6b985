"""Every reason of a miss, planted in a real engine: rendered prompts, real pages, real eviction.

`test_why.py` checks the comparison alone; here the whole way is walked, from messages to the facts
that go back to the agent. And the other half: on recorded healthy traffic, nothing is made up.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentkv.demo.traces import read_traces
from agentkv.engine import Engine, SamplingParams
from agentkv.engine.errors import ContextLengthExceeded
from agentkv.engine.types import CacheFacts, Miss

PREFILL = SamplingParams(max_tokens=1, temperature=0)

Message = dict[str, Any]


def tool(name: str, text: str = "") -> Message:
    parameters = {"type": "object", "properties": {"key": {"type": "string"}}}
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": text or f"Does {name}.",
            "parameters": parameters,
        },
    }


TOOLS = [tool("alpha"), tool("beta"), tool("gamma")]
SYSTEM = {"role": "system", "content": "You are a careful assistant of a small shop."}


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def bot(text: str) -> Message:
    return {"role": "assistant", "content": text}


class Agent:
    """Calls of one session on one engine."""

    def __init__(self, engine: Engine, session: str = "a") -> None:
        self.engine = engine
        self.session = session

    def facts(self, messages: list[Message], tools: Any = None, **how: Any) -> CacheFacts:
        salt = how.pop("salt", None)
        params = how.pop("params", PREFILL)
        prompt = self.engine.render(messages, tools, salt=salt, **how)
        out = self.engine.generate(prompt, params, session=self.session, salt=salt)
        assert 0 <= out.cache.cached_tokens <= out.cache.prompt_tokens - 1
        return out.cache

    def miss(self, messages: list[Message], tools: Any = None, **how: Any) -> Miss:
        miss = self.facts(messages, tools, **how).miss
        assert miss is not None
        return miss


@pytest.fixture(params=[1, 16])
def agent(make_engine: Callable[..., Engine], request: pytest.FixtureRequest) -> Agent:
    return Agent(make_engine(page_size=request.param))


TALK = [SYSTEM, user("Do you sell red lamps?"), bot("Yes, two kinds."), user("Which is cheaper?")]


def test_first_call(agent: Agent) -> None:
    assert agent.miss(TALK, TOOLS).reason == "first_call"


def test_appended(agent: Agent) -> None:
    agent.facts(TALK[:2], TOOLS)
    miss = agent.miss(TALK, TOOLS)
    assert miss.reason == "appended"
    assert miss.token > agent.engine.page_size


def test_text_changed(agent: Agent) -> None:
    clock = [{"role": "system", "content": f"It is 12:0{i}. Be kind."} for i in range(2)]
    agent.facts([clock[0], *TALK[1:2]], TOOLS)
    miss = agent.miss([clock[1], *TALK[1:2]], TOOLS)
    assert (miss.reason, miss.segment) == ("text_changed", "messages[0]")
    assert "12:00" in (miss.was or "") and "12:01" in (miss.now or "")


def test_tool_changed(agent: Agent) -> None:
    agent.facts(TALK[:2], TOOLS)
    miss = agent.miss(TALK[:2], [TOOLS[0], tool("beta", "Does something new."), TOOLS[2]])
    assert (miss.reason, miss.segment) == ("tool_changed", "tools")
    more = agent.miss(TALK[:2], [tool("zeta"), *TOOLS])
    assert more.reason == "tool_changed" and "zeta" in (more.detail or "")


def test_tool_order(agent: Agent) -> None:
    agent.facts(TALK[:2], TOOLS)
    miss = agent.miss(TALK[:2], TOOLS[::-1])
    assert (miss.reason, miss.segment) == ("tool_order", "tools")
    assert "alpha" in (miss.detail or "") and "gamma" in (miss.detail or "")


def document(name: str) -> Message:
    mark = {"name": f"documents.{name}", "kind": "documents", "stability": "session"}
    text = f"<document>{name * 40}</document>\n"
    return {"type": "text", "text": text, "agentkv": {**mark, "items": [name]}}


def test_document_order(agent: Agent) -> None:
    def ask(order: str) -> list[Message]:
        return [{"role": "system", "content": [document(c) for c in order]}, user("Which one?")]

    agent.facts(ask("ABC"))
    miss = agent.miss(ask("ACB"))
    assert miss.reason == "document_order"
    assert miss.segment == "documents.C", "B025: it names the first document that moved"
    assert agent.miss(ask("ABD")).reason == "text_changed"


def test_history_edited(agent: Agent) -> None:
    agent.facts(TALK)
    edited = [*TALK[:2], bot("No, none at all."), TALK[3]]
    miss = agent.miss(edited)
    assert (miss.reason, miss.segment) == ("history_edited", "messages[2]")


def test_context_spliced_into_an_old_message_is_an_edit_b053(agent: Agent) -> None:
    agent.facts(TALK)
    joined = user("[Ann joined the talk]\nDo you sell red lamps?")
    spliced = agent.miss([SYSTEM, joined, *TALK[2:], bot("The small one."), user("Thanks!")])
    assert (spliced.reason, spliced.segment) == ("history_edited", "messages[1]")
    appended = agent.miss([*TALK, bot("The small one."), user("[Ann joined] Thanks!")])
    assert appended.reason == "appended"


def test_history_truncated(agent: Agent) -> None:
    turns = [m for i in range(5) for m in (user(f"Question {i}?"), bot(f"Answer {i}."))]
    agent.facts([SYSTEM, *turns, user("And now?")])
    miss = agent.miss([SYSTEM, *turns[4:], user("And now?")])
    assert miss.reason == "history_truncated"
    assert miss.detail == "4 messages are gone from its beginning"


def test_a_sliding_window_is_named_and_jumping_pays_b077(
    make_engine: Callable[..., Engine],
) -> None:
    """Trimming to the last N on each call loses the history every time; in jumps, now and then."""
    engine = make_engine(pool_tokens=32768)
    turns = [m for i in range(42) for m in (user(f"Question {i}?"), bot(f"Answer {i}. " * 6))]

    def rate(session: str, jump: int) -> tuple[float, Counter[str]]:
        agent = Agent(engine, session)
        prompt = cached = start = 0
        reasons: Counter[str] = Counter()
        for end in range(2, 82, 2):
            if end - start > 24:
                start = end - 24 + jump
            facts = agent.facts([SYSTEM, *turns[start:end], user("And now?")])
            prompt += facts.prompt_tokens
            cached += facts.cached_tokens
            reasons[facts.miss.reason if facts.miss else "none"] += 1
        return cached / prompt, reasons

    sliding, why = rate("slide", 0)
    engine.flush()
    jumping, _ = rate("jump", 18)
    assert why["history_truncated"] >= 9
    assert jumping > 0.8 > 0.5 > sliding


def test_white_space_that_a_client_tidies_is_named_b080(make_engine: Callable[..., Engine]) -> None:
    engine = make_engine()
    bias = {int(engine.tokenizer.encode_text(c)[0]): 100.0 for c in "ab\n "}
    params = SamplingParams(max_tokens=40, seed=5, logit_bias=bias)
    out = engine.generate(engine.render(TALK[:2]), params, session="a")
    tidy = "\n".join(line.strip() for line in out.text.split("\n") if line.strip())
    assert tidy != out.text and tidy.split() == out.text.split()
    prompt = engine.render([*TALK[:2], bot(tidy), user("Sure?")])
    cache = engine.generate(prompt, PREFILL, session="a").cache
    assert cache.miss is not None
    assert (cache.miss.reason, cache.miss.segment) == ("history_edited", "messages[2]")
    assert "white space" in (cache.miss.detail or "")
    assert cache.miss.was != cache.miss.now
    same = next(i for i, (a, b) in enumerate(zip(tidy, out.text, strict=False)) if a != b)
    assert cache.cached_tokens >= len(engine.render(TALK[:2]).token_ids), "all of the last prompt"
    assert cache.cached_tokens <= len(engine.render(TALK[:2]).token_ids) + same + 1


def test_two_system_messages_that_change_places_b076(agent: Agent) -> None:
    fixed, live = SYSTEM, {"role": "system", "content": "Stock: 4 red lamps, 2 green lamps."}
    agent.facts([fixed, live, *TALK[1:]])
    miss = agent.miss([live, fixed, *TALK[1:]])
    assert (miss.reason, miss.segment) == ("text_changed", "messages[0]")
    assert miss.detail == "what is messages[0] now was messages[1] before"


def test_a_hash_line_at_the_very_front_b068(agent: Agent) -> None:
    def ask(mark: str) -> list[Message]:
        return [
            {"role": "system", "content": f"x-billing: v=1; cch={mark};\n" + "rule. " * 60},
            TALK[1],
        ]

    agent.facts(ask("0a1b2"))
    miss = agent.miss(ask("9f8e7"))
    assert miss.reason == "text_changed" and miss.token < 100
    assert "0a1b2" in (miss.was or "") and "9f8e7" in (miss.now or "")


def test_near_the_window_a_call_is_refused_and_the_prefix_stays_b079(
    make_engine: Callable[..., Engine],
) -> None:
    engine = make_engine(max_model_len=400)
    agent = Agent(engine)
    history = [SYSTEM]
    with pytest.raises(ContextLengthExceeded):
        for i in range(40):
            history += [user(f"Question {i}?"), bot(f"Answer {i}.")]
            agent.facts([*history, user("Next?")])
    shorter = agent.facts([SYSTEM, user("Next?")])
    system = len(engine.render([SYSTEM], add_generation_prompt=False).token_ids)
    assert shorter.cached_tokens >= system - 1, "nothing was shifted: the system text is a hit"


def test_reasoning_stripped(make_engine: Callable[..., Engine]) -> None:
    engine = make_engine()
    thought = "<think>two are four</think>\n\nFour."
    prompt = engine.render(TALK[:2])
    forced = engine.tokenizer.encode_text(thought)
    record = _say(engine, prompt, forced)
    assert record == thought
    miss = Agent(engine).miss([*TALK[:2], bot("Four."), user("Sure?")])
    assert miss.reason == "reasoning_stripped"


def _say(engine: Engine, prompt: Any, ids: Any) -> str:
    """Make the model say `ids`, one bias a step, as one call of session `a`."""
    text = engine.tokenizer.decode(ids)
    from agentkv.engine.types import Grammar

    pattern = "".join(f"[{c}]" if c.isalnum() or c in " .<>/" else "\\n" for c in text)
    params = SamplingParams(
        max_tokens=len(ids) + 32, temperature=0, grammar=Grammar("regex", pattern)
    )
    return engine.generate(prompt, params, session="a").text


def test_retokenized(make_engine: Callable[..., Engine], monkeypatch: Any) -> None:
    """The answer comes back as the same text, and is encoded to other tokens than were sampled."""
    engine = make_engine()
    prompt = engine.render(TALK[:2])
    monkeypatch.setattr(engine.renderer, "remember", lambda *_, **__: None)
    bias = {int(engine.tokenizer.encode_text(c)[0]): 100.0 for c in "th"}
    params = SamplingParams(max_tokens=12, seed=3, logit_bias=bias)
    out = engine.generate(prompt, params, session="a")
    again = engine.tokenizer.encode_text(out.text).tolist()
    assert len(again) < len(out.token_ids), "t and h were sampled apart, and th is one token"
    miss = Agent(engine).miss([*TALK[:2], bot(out.text), user("Sure?")])
    assert miss.reason == "retokenized"


def test_evicted(make_engine: Callable[..., Engine]) -> None:
    engine = make_engine(pool_tokens=1024)
    agent, other = Agent(engine), Agent(engine, "b")
    first = agent.facts(TALK)
    for i in range(6):
        other.facts([user(f"{i} " + "something else " * 40)])
    miss = agent.miss([*TALK, bot("The small one."), user("Thanks!")])
    assert miss.reason == "evicted" and miss.token < first.prompt_tokens


def test_other_namespace(agent: Agent) -> None:
    agent.facts(TALK, salt="one")
    miss = agent.miss(TALK, salt="two")
    assert (miss.reason, miss.token) == ("other_namespace", 0)


def test_model_changed(
    make_engine: Callable[..., Engine], tiny_llama_dir: Path, tmp_path: Path
) -> None:
    """A fallback model: another engine of the process, the same session."""
    other = tmp_path / "other"
    shutil.copytree(tiny_llama_dir, other)
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**config, "rope_theta": 20000.0}))
    Agent(make_engine()).facts(TALK)
    miss = Agent(make_engine(model=str(other))).miss(TALK)
    assert (miss.reason, miss.token) == ("model_changed", 0)
    same = Agent(make_engine(model=str(other)))
    assert same.miss(TALK).reason == "first_call", "a restart with the same model changes none"


def test_sub_page_tail(make_engine: Callable[..., Engine]) -> None:
    agent = Agent(make_engine(page_size=16))
    first = agent.facts(TALK)
    assert (first.prompt_tokens - 1) % 16, "the prompt must not end on a page"
    facts = agent.facts(TALK)
    assert facts.miss is not None and facts.miss.reason == "sub_page_tail"
    assert facts.cached_tokens == (first.prompt_tokens - 1) // 16 * 16


def test_unknown_when_tokens_were_asked_to_be_computed(agent: Agent) -> None:
    agent.facts(TALK)
    scored = SamplingParams(max_tokens=1, temperature=0, prompt_logprobs=1)
    assert agent.miss(TALK, params=scored).reason == "unknown"


def test_template_that_writes_a_date_b074(
    make_engine: Callable[..., Engine], tiny_llama_dir: Path, tmp_path: Path
) -> None:
    """The caller's text is the same; what differs was written by the template."""
    folder = tmp_path / "dated"
    shutil.copytree(tiny_llama_dir, folder)
    (folder / "chat_template.jinja").write_text(
        "<|im_start|>system\nToday is {{ date_string or '26 July 2024' }}.\n"
        "{{ messages[0].content }}<|im_end|>\n"
        "{% for m in messages[1:] %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
        "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    agent = Agent(make_engine(model=str(folder)))
    agent.facts(TALK, template_kwargs={"date_string": "29 Nov 2026"})
    miss = agent.miss(TALK, template_kwargs={"date_string": "30 Nov 2026"})
    assert miss.reason == "template"
    assert "29" in (miss.was or "") and "30" in (miss.now or "")
    pinned = agent.facts(
        [*TALK, bot("Yes."), user("Go on.")], template_kwargs={"date_string": "30 Nov 2026"}
    )
    assert pinned.miss is not None and pinned.miss.reason == "appended"


MISTRAL = "mistralai-Mistral-Nemo-Instruct-2407.jinja"


def test_template_that_moves_the_tools(
    make_engine: Callable[..., Engine], tiny_llama_dir: Path, tmp_path: Path, traces: Path
) -> None:
    """Mistral-Nemo's template writes the tools before the *last* user message."""
    folder = tmp_path / "nemo"
    shutil.copytree(tiny_llama_dir, folder)
    shutil.copy(traces / "chat_templates" / MISTRAL, folder / "chat_template.jinja")
    agent = Agent(make_engine(model=str(folder)))
    agent.facts(TALK[:2], TOOLS)
    miss = agent.miss(TALK, TOOLS)
    assert miss.reason == "template" and "tools" in (miss.detail or "")
    assert agent.miss(TALK, TOOLS[::-1]).reason == "tool_order", "a real change is still seen"


def test_template_that_strips_old_thoughts_b073(
    make_engine: Callable[..., Engine], tiny_llama_dir: Path, tmp_path: Path
) -> None:
    """Qwen3's way: what the model thought stays in the turn in progress and leaves older turns."""
    folder = tmp_path / "thinker"
    shutil.copytree(tiny_llama_dir, folder)
    (folder / "chat_template.jinja").write_text(
        "{% set ns = namespace(last=0) %}{% for m in messages %}{% if m.role == 'user' %}"
        "{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
        "{% for m in messages %}<|im_start|>{{ m.role }}\n"
        "{% if m.role == 'assistant' and '</think>' in m.content and loop.index0 < ns.last %}"
        "{{ m.content.split('</think>')[-1].lstrip('\n') }}{% else %}{{ m.content }}{% endif %}"
        "<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    agent = Agent(make_engine(model=str(folder)))
    thought = bot("<think>Look it up.</think>\nOne moment.")
    agent.facts([*TALK[:2], thought, {"role": "tool", "content": "red: 9"}])
    later = [
        *TALK[:2],
        thought,
        {"role": "tool", "content": "red: 9"},
        bot("Nine."),
        user("Thanks"),
    ]
    miss = agent.miss(later)
    assert (miss.reason, miss.segment) == ("reasoning_stripped", "messages[2]")
    assert "messages[2]" in (miss.detail or "")
    assert miss.token < agent.engine.render(later).token_ids.size


@pytest.fixture(scope="module")
def reader(tiny_words_dir: Path) -> Iterator[Engine]:
    with Engine(
        model=str(tiny_words_dir),
        dtype="float32",
        threads=1,
        pool_tokens=1 << 19,
        max_batch_tokens=2048,
    ) as made:
        yield made


@pytest.mark.parametrize("named", [True, False])
def test_healthy_traffic_has_no_made_up_reasons(reader: Engine, traces: Path, named: bool) -> None:
    """200 calls of recorded agents, four sessions at a time, first with session names, then none."""
    reader.flush()
    reader._core.explainer.forget()
    path = traces / "agent" / "tau_airline_gpt4o.sessions.jsonl.gz"
    sessions = iter(read_traces(path, limit=40))
    seen: Counter[str] = Counter()
    open_calls: list[Any] = []
    calls = 0
    while calls < 200:
        while len(open_calls) < 4:
            session = next(sessions)
            open_calls.append((session.id, session.requests()))
        session_id, requests = open_calls.pop(0)
        found = next(requests, None)
        if found is None:
            continue
        open_calls.append((session_id, requests))
        messages, tools = found
        prompt = reader.render(messages, list(tools))
        name = f"{session_id}/{named}" if named else None
        facts = reader.generate(prompt, PREFILL, session=name).cache
        assert facts.miss is not None
        seen[facts.miss.reason] += 1
        calls += 1
    assert set(seen) == {"first_call", "appended"}, seen
    assert seen["appended"] > 150
