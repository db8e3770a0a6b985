"""Small tokenizers of each kind, trained on the spot, with the control tokens of real templates."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import (
    AddedToken,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from tokenizers import Tokenizer as Backend

from agentkv.engine.text.render import Renderer
from agentkv.engine.text.template import ChatTemplate
from agentkv.engine.text.tokenizer import Tokenizer

TEMPLATES = Path(__file__).parents[3] / "engine" / "model" / "templates"

CORPUS = [
    "Hello world, hello again: the quick brown fox jumps over the lazy dog.\n",
    "def total(items):\n    return sum(item['price'] for item in items)\n",
    "The customer asked for a refund of 1234.50 on 2024-05-17, order #98765.\n",
    "日本語のテキストと中文文本，还有한국어 문장입니다。 Ünïcödé façade naïve.\n",
    "Привет, как дела? مرحبا بالعالم 🙂🙃👩‍👩‍👧‍👦\t\ttabs and   spaces   \n\n",
    '{"name": "get_user", "arguments": {"user_id": "mia_li_3668", "n": [1, 2, 3]}}\n',
    "system user assistant tool response\n",
] * 6

CHATML = (("<|endoftext|>", True, ""), ("<|im_start|>", True, ""), ("<|im_end|>", True, ""))
# content, declared special, swallows white space on its l(eft) or r(ight)
CONTROL = {
    "chatml": CHATML,
    "qwen": (*CHATML, ("<tool_call>", False, ""), ("</tool_call>", False, "")),
    "deepseek": (
        ("<｜end▁of▁sentence｜>", True, ""),
        ("<｜begin▁of▁sentence｜>", True, ""),
        ("<｜User｜>", False, ""),
        ("<｜Assistant｜>", False, ""),
        ("<think>", False, ""),
        ("</think>", False, ""),
        ("<｜tool▁calls▁begin｜>", False, ""),
        ("<｜tool▁call▁begin｜>", False, ""),
        ("<｜tool▁sep｜>", False, ""),
        ("<｜tool▁call▁end｜>", False, ""),
        ("<｜tool▁calls▁end｜>", False, ""),
    ),
    "phi": (
        ("<|endoftext|>", True, ""),
        ("<|system|>", True, "r"),
        ("<|user|>", True, "r"),
        ("<|assistant|>", True, "r"),
        ("<|end|>", True, "r"),
    ),
    "mistral": tuple(
        (t, True, "")
        for t in (
            "</s>",
            "<s>",
            "[INST]",
            "[/INST]",
            "[AVAILABLE_TOOLS]",
            "[/AVAILABLE_TOOLS]",
            "[TOOL_CALLS]",
            "[TOOL_RESULTS]",
            "[/TOOL_RESULTS]",
        )
    ),
    "left": (("<|endoftext|>", True, ""), ("<|im_start|>", True, "l"), ("<|im_end|>", True, "lr")),
}
NAMED = {
    "chatml": ("<|im_start|>", "<|im_end|>"),
    "qwen": (None, "<|im_end|>"),
    "deepseek": ("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"),
    "phi": (None, "<|endoftext|>"),
    "mistral": ("<s>", "</s>"),
    "left": (None, "<|im_end|>"),
}
TEMPLATE_FILES = {
    "qwen": "Qwen-Qwen2.5-7B-Instruct.jinja",
    "deepseek": "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B.jinja",
    "phi": "microsoft-Phi-3.5-mini-instruct.jinja",
    "mistral": "mistralai-Mistral-Nemo-Instruct-2407.jinja",
}


def make_backend(
    control: str, kind: str = "bytes", *, bos: bool = False, extra: tuple[AddedToken, ...] = ()
) -> Backend:
    """A trained backend: `bytes` (GPT-2's way), `nfc` (Qwen's), `pieces` (Llama 2's, with byte
    fallback), `first` (pieces, where only the start of the input gets a space)."""
    if kind in ("bytes", "nfc"):
        backend = Backend(models.BPE())
        if kind == "nfc":
            backend.normalizer = normalizers.NFC()
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        backend.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=900,
            show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        )
    else:
        bytes_ = [f"<0x{b:02X}>" for b in range(256)]
        backend = Backend(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
        if kind == "pieces":
            backend.normalizer = normalizers.Sequence(
                [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
            )
        else:
            backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
        backend.decoder = decoders.Sequence(
            [
                decoders.Replace("▁", " "),
                decoders.ByteFallback(),
                decoders.Fuse(),
                decoders.Strip(" ", 1, 0),
            ]
        )
        trainer = trainers.BpeTrainer(
            vocab_size=900, show_progress=False, special_tokens=["<unk>", *bytes_]
        )
    backend.train_from_iterator(CORPUS, trainer)
    if kind not in ("bytes", "nfc"):
        # The trainer made the byte tokens special, which they are not in a real file.
        state = json.loads(backend.to_str())
        state["added_tokens"] = [t for t in state["added_tokens"] if t["content"] == "<unk>"]
        backend = Backend.from_str(json.dumps(state))
    for content, special, strip in CONTROL[control]:
        token = AddedToken(
            content,
            special=special,
            normalized=False,
            lstrip="l" in strip,
            rstrip="r" in strip,
        )
        (backend.add_special_tokens if special else backend.add_tokens)([token])
    if extra:
        backend.add_tokens(list(extra))
    if bos:
        content = NAMED[control][0] or CONTROL[control][0][0]
        backend.post_processor = processors.TemplateProcessing(
            single=f"{content} $A", special_tokens=[(content, backend.token_to_id(content))]
        )
    return backend


def save(backend: Backend, control: str, folder: Path) -> Path:
    """A model directory's text files."""
    folder.mkdir(parents=True, exist_ok=True)
    backend.save(str(folder / "tokenizer.json"))
    bos, eos = NAMED[control]
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": bos, "eos_token": eos}))
    return folder


MakeTokenizer = Callable[..., tuple[Tokenizer, Backend]]


@pytest.fixture(scope="session")
def make_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> MakeTokenizer:
    """`(control, kind)` -> our tokenizer, and an untouched backend made from the same file."""
    made: dict[tuple[str, str, bool], Path] = {}

    def make(
        control: str = "chatml", kind: str = "bytes", *, bos: bool = False
    ) -> tuple[Tokenizer, Backend]:
        key = (control, kind, bos)
        if key not in made:
            folder = tmp_path_factory.mktemp(f"{control}-{kind}-{bos}")
            made[key] = save(make_backend(control, kind, bos=bos), control, folder)
        return (
            Tokenizer.load(made[key]),
            Backend.from_file(str(made[key] / "tokenizer.json")),
        )

    return make


@pytest.fixture(scope="session")
def tools_template() -> str:
    """The template that is shipped for the embedded model."""
    return (TEMPLATES / "smollm2_tools.jinja").read_text("utf-8")


@pytest.fixture
def renderer(make_tokenizer: MakeTokenizer, tools_template: str) -> Renderer:
    """A fresh renderer on a small byte-level tokenizer with the shipped template."""
    tokenizer, _ = make_tokenizer("chatml")
    return Renderer(tokenizer, ChatTemplate(tools_template, named_tokens=tokenizer.named_tokens))


PLAIN_CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + "
    "message['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
