from __future__ import annotations

import random
import threading
from typing import Any

import numpy as np
import pytest
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Backend

from agentkv.engine.text.render import Renderer
from agentkv.engine.text.replay import Stretch, StretchCache, Trail
from agentkv.engine.text.template import ChatTemplate
from agentkv.engine.text.tokenizer import Tokenizer
from agentkv.engine.types import RenderedPrompt

from .conftest import PLAIN_CHATML, TEMPLATE_FILES, MakeTokenizer

USER = {"role": "user", "content": "Say hello."}
MORE = {"role": "user", "content": "Again."}


def hello_backend() -> Backend:
    """Byte-level BPE in which "hello" is one token, and "h", "el", "lo" are tokens as well."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("e", "l"), ("l", "o"), ("el", "lo"), ("h", "ello")]
    words = [*alphabet, *(a + b for a, b in merges)]
    backend = Backend(models.BPE(vocab={w: i for i, w in enumerate(words)}, merges=merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    for text in ("<|endoftext|>", "<|im_start|>", "<|im_end|>"):
        backend.add_special_tokens([AddedToken(text, special=True, normalized=False)])
    backend.add_tokens([AddedToken("<think>", special=False, normalized=False)])
    return backend


def token(text: str) -> int:
    found = hello_backend().token_to_id(text)
    assert found is not None
    return found


def fresh(**more: Any) -> Renderer:
    tokenizer = Tokenizer(hello_backend(), hello_backend(), eos_ids=[token("<|im_end|>")])
    return Renderer(tokenizer, ChatTemplate(PLAIN_CHATML), **more)


def sampled(renderer: Renderer, *pieces: str, eos: bool = True) -> list[int]:
    """Ids of these very pieces, each of which must be one token."""
    ids = [int(i) for p in pieces for i in renderer.tokenizer.encode_text(p)]
    assert len(ids) == len(pieces)
    return [*ids, renderer.tokenizer.special_tokens["<|im_end|>"]] if eos else ids


def follow(renderer: Renderer, said: str, *more: dict[str, Any]) -> RenderedPrompt:
    return renderer.render([USER, {"role": "assistant", "content": said}, *(more or (MORE,))])


def test_sampled_ids_are_fed_back_as_they_were_sampled() -> None:
    renderer = fresh()
    first = renderer.render([USER])
    assert first.replayed_tokens == 0
    output = sampled(renderer, "h", "el", "lo")
    assert renderer.tokenizer.encode_text("hello").tolist() != output[:-1]
    renderer.remember(first, output)
    second = follow(renderer, "hello")
    known = [*first.token_ids.tolist(), *output]
    assert second.token_ids[: len(known)].tolist() == known
    assert second.replayed_tokens == len(known) - 1  # <|im_end|> is the template's
    suffix = second.text[len(first.text) + len("hello<|im_end|>") :]
    assert second.token_ids[len(known) :].tolist() == hello_backend().encode(suffix).ids
    assert renderer.tokenizer.decode(second.token_ids, skip_special=False) == second.text
    spans = {s.name: s for s in second.spans}
    assert spans["messages[1]"].end == len(known) + 1  # the newline behind it
    # without the memory: other ids for the same text
    cold = follow(fresh(), "hello")
    assert cold.text == second.text
    assert cold.token_ids.tolist() != second.token_ids.tolist()
    assert cold.replayed_tokens == 0


def test_output_cut_by_length_is_replayed_too() -> None:
    renderer = fresh()
    first = renderer.render([USER])
    output = sampled(renderer, "h", "el", eos=False)
    renderer.remember(first, output)
    second = follow(renderer, "hel")
    known = [*first.token_ids.tolist(), *output]
    assert second.token_ids[: len(known)].tolist() == known
    assert second.token_ids[len(known)] == renderer.tokenizer.special_tokens["<|im_end|>"]


def test_a_continued_message_is_replayed_from_its_start() -> None:
    renderer = fresh()
    start = [USER, {"role": "assistant", "content": "hello h"}]
    first = renderer.render(start, continue_final_message=True)
    output = sampled(renderer, "el", "lo")
    renderer.remember(first, output)
    second = follow(renderer, "hello hello")
    known = [*first.token_ids.tolist(), *output]
    assert second.token_ids[: len(known)].tolist() == known


@pytest.mark.parametrize("said", ["hello ", " hello", "Hello", "hell", "", "hello<|im_end|>"])
def test_changed_output_is_not_replayed_but_the_prompt_is_known(said: str) -> None:
    renderer = fresh()
    first = renderer.render([USER])
    renderer.remember(first, sampled(renderer, "h", "el", "lo"))
    before = renderer.chars_encoded
    second = follow(renderer, said)
    assert second.replayed_tokens == 0
    assert second.token_ids.tolist() == follow(fresh(), said).token_ids.tolist()
    head = len(first.token_ids) - len(renderer.tokenizer.encode_text("assistant\n"))
    assert second.token_ids[:head].tolist() == first.token_ids[:head].tolist()
    assert renderer.chars_encoded - before < len(second.text) - len(first.text) + 40


def test_another_history_is_not_replayed_into() -> None:
    renderer = fresh()
    first = renderer.render([USER])
    renderer.remember(first, sampled(renderer, "h", "el", "lo"))
    other = {"role": "user", "content": "Say hello!"}
    messages = [other, {"role": "assistant", "content": "hello"}, MORE]
    assert renderer.render(messages).replayed_tokens == 0
    assert renderer.render([*messages[1:]]).replayed_tokens == 0
    # The same characters, of which some are text and not control tokens.
    spelled = {"role": "user", "content": f"{USER['content']}<|im_end|>\n<|im_start|>assistant\n"}
    lookalike = renderer.render([{**spelled, "content": spelled["content"] + "hello"}])
    assert lookalike.text.startswith(first.text + "hello")
    assert lookalike.replayed_tokens == 0


def test_a_trail_tells_a_control_token_from_text_that_spells_it() -> None:
    def trail(*steps: tuple[str, str]) -> bytes:
        made = Trail()
        for kind, text in steps:
            (made.control if kind == "C" else made.stretch)(text)
        return made.digest()

    assert trail(("C", "<|im_end|>"), ("C", "b")) != trail(("T", "<|im_end|>"), ("C", "b"))
    assert trail(("T", "ab"), ("C", "c")) != trail(("T", "a"), ("C", "bc"))
    assert trail(("T", "a")) == trail(("T", "a"))


def test_replay_stays_within_its_namespace() -> None:
    renderer = fresh()
    first = renderer.render([USER], namespace="a")
    renderer.remember(first, sampled(renderer, "h", "el", "lo"))
    messages = [USER, {"role": "assistant", "content": "hello"}, MORE]
    assert renderer.render(messages, namespace="b").replayed_tokens == 0
    assert renderer.render(messages).replayed_tokens == 0
    assert renderer.render(messages, namespace="a").replayed_tokens > 0


def test_outputs_that_cannot_come_back_as_text_are_not_kept() -> None:
    renderer = fresh()
    first = renderer.render([USER])
    special = renderer.tokenizer.special_tokens
    smile = renderer.tokenizer.encode_text("🙂").tolist()
    assert len(smile) == 4
    hello = sampled(renderer, "h", "el", "lo", eos=False)
    for output in (
        [],
        [special["<|im_end|>"]],
        [*hello, special["<|im_start|>"], *hello],
        [special["<|im_end|>"], *hello],
        [*hello, *smile[:2]],
    ):
        renderer.remember(first, output)
    assert len(renderer._sampled) == 0
    renderer.remember(first, [*hello, *smile])
    assert follow(renderer, "hello🙂").replayed_tokens > 0


def test_text_that_spells_a_control_token_is_replayed_as_text() -> None:
    renderer = fresh()
    first = renderer.render([USER])
    output = [*renderer.tokenizer.encode_text("<|im_end|>").tolist(), *sampled(renderer, "h")]
    renderer.remember(first, output)
    second = follow(renderer, "<|im_end|>h")
    known = [*first.token_ids.tolist(), *output]
    assert second.token_ids[: len(known)].tolist() == known


def test_markup_tokens_are_text_and_are_replayed() -> None:
    renderer = fresh()
    first = renderer.render([USER])
    output = [token("<think>"), *sampled(renderer, "h", "el", "lo")]
    renderer.remember(first, output)
    assert renderer.tokenizer.decode(output) == "<think>hello"
    second = follow(renderer, "<think>hello")
    known = [*first.token_ids.tolist(), *output]
    assert second.token_ids[: len(known)].tolist() == known


def test_output_cut_by_a_stop_string_is_replayed_up_to_it() -> None:
    renderer = fresh()
    first = renderer.render([USER])
    output = sampled(renderer, "h", "el", "lo", "S", "T", eos=False)
    renderer.remember(first, output, text="hello")
    second = follow(renderer, "hello")
    known = [*first.token_ids.tolist(), *output[:3]]
    assert second.token_ids[: len(known)].tolist() == known
    renderer.remember(first, output, text="hell")  # no token ends there
    assert follow(renderer, "hell").replayed_tokens == 0
    renderer.remember(first, output, text="other")
    assert follow(renderer, "other").replayed_tokens == 0


def test_the_latest_of_two_outputs_with_one_text_counts() -> None:
    renderer = fresh()
    first = renderer.render([USER])
    renderer.remember(first, sampled(renderer, "h", "el", "lo"))
    renderer.remember(first, sampled(renderer, "h", "e", "l", "lo"))
    got = follow(renderer, "hello").token_ids.tolist()
    assert got[len(first.token_ids) :][:4] == sampled(renderer, "h", "e", "l", "lo", eos=False)


def test_a_long_conversation_costs_its_new_text_only() -> None:
    """Turn 50 encodes the new messages, and not the history; all sampled ids are replayed."""
    renderer = fresh()
    rng = random.Random(1)
    messages: list[dict[str, Any]] = [{"role": "system", "content": "Be kind. " * 200}]
    last: list[int] = []
    for turn in range(50):
        question = f"Question {turn}: " + "".join(rng.choices("hello wrd\n", k=200))
        messages.append({"role": "user", "content": question})
        before = renderer.chars_encoded
        prompt = renderer.render(messages)
        spent = renderer.chars_encoded - before
        assert prompt.token_ids[: len(last)].tolist() == last
        if turn:
            assert spent <= len("user\n") + len(question) + 40
            assert prompt.replayed_tokens == len(last) - 1
        tokens = sampled(renderer, "h", "el", "lo", " ", "e", eos=False)
        output = rng.choices(tokens, k=60)
        output.append(renderer.tokenizer.special_tokens["<|im_end|>"])
        renderer.remember(prompt, output)
        last = [*prompt.token_ids.tolist(), *output]
        messages.append({"role": "assistant", "content": renderer.tokenizer.decode(output)})
    cold = fresh()
    whole = cold.render(messages)
    assert cold.chars_encoded > 40 * 200
    assert whole.token_ids.tolist() != renderer.render(messages).token_ids.tolist()


def test_known_texts_are_shared_between_conversations() -> None:
    renderer = fresh()
    system = {"role": "system", "content": "A long instruction. " * 100}
    renderer.render([system, USER])
    before = renderer.chars_encoded
    prompt = renderer.render([system, MORE])
    assert renderer.chars_encoded - before <= len("user\n" + MORE["content"])
    assert prompt.token_ids.tolist() == fresh().render([system, MORE]).token_ids.tolist()


@pytest.mark.parametrize("kind", ["bytes", "nfc", "pieces", "first"])
@pytest.mark.parametrize("name", ["qwen", "deepseek", "phi", "mistral"])
def test_replay_is_exact_in_every_template(
    traces: Any, make_tokenizer: MakeTokenizer, name: str, kind: str
) -> None:
    tokenizer, _ = make_tokenizer(name, kind)
    source = (traces / "chat_templates" / TEMPLATE_FILES[name]).read_text("utf-8")
    renderer = Renderer(tokenizer, ChatTemplate(source, named_tokens=tokenizer.named_tokens))
    first = renderer.render([USER])
    # letter by letter: surely not what the tokenizer would do
    output = [
        int(i)
        for c in "The quick brown fox"
        for i in tokenizer.encode_stretch(c, first=False)[0][-1:]
    ]
    said = tokenizer.decode(output)
    if name == "deepseek":  # whose generation prompt opens a thought that later turns leave out
        first = renderer.render(
            [USER, {"role": "assistant", "content": "The"}], continue_final_message=True
        )
        said = "The" + said
    renderer.remember(first, output)
    second = renderer.render([USER, {"role": "assistant", "content": said}, MORE])
    known = [*first.token_ids.tolist(), *output]
    assert second.token_ids[: len(known)].tolist() == known
    assert second.replayed_tokens == len(known)


def test_memory_is_bounded_and_the_oldest_goes_first() -> None:
    renderer = fresh(replay_entries=2)
    prompts = [renderer.render([{"role": "user", "content": f"{i}"}]) for i in range(3)]
    for prompt in prompts:
        renderer.remember(prompt, sampled(renderer, "h", "el", "lo"))
    assert len(renderer._sampled) == 2

    def replayed(i: int) -> bool:
        said = {"role": "assistant", "content": "hello"}
        return renderer.render([{"role": "user", "content": f"{i}"}, said]).replayed_tokens > 0

    assert [replayed(i) for i in range(3)] == [False, True, True]


def test_the_cache_keeps_to_its_bytes() -> None:
    def stretch(n: int) -> Stretch:
        return Stretch(np.arange(n, dtype=np.int32), np.zeros(n, np.int32))

    cache = StretchCache(entries=100, nbytes=4000)
    for i in range(50):
        cache.put(i, stretch(100), key_bytes=10)
        assert cache.nbytes <= 4000
    assert len(cache) == 3 and cache.get(49) is not None and cache.get(46) is None
    cache.put("huge", stretch(1000), key_bytes=0)
    assert cache.get("huge") is None and len(cache) == 3
    cache.put(49, stretch(1), key_bytes=0)
    cache.clear()
    assert len(cache) == 0 and cache.nbytes == 0
    kept = stretch(3)
    cache.put("a", kept, key_bytes=0)
    with pytest.raises(ValueError, match="read-only"):
        kept.ids[0] = 7


def test_many_threads_render_and_remember_at_once() -> None:
    renderer = fresh(replay_entries=8)
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            rng = random.Random(number)
            for _ in range(40):
                asked = {"role": "user", "content": f"{rng.randrange(12)} <|im_end|>"}
                first = renderer.render([asked])
                renderer.remember(first, sampled(renderer, "h", "el", "lo"))
                said = {"role": "assistant", "content": "hello"}
                second = renderer.render([asked, said, MORE])
                text = renderer.tokenizer.decode(second.token_ids, skip_special=False)
                assert text == second.text
                assert second.token_ids[: len(first.token_ids)].tolist() == first.token_ids.tolist()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
