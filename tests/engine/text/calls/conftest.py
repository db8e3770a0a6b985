"""Models of every call format: a small tokenizer each, and a template that writes calls that way.

The templates of Qwen and Mistral are recorded ones; the others are written here in the manner of
their families.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Backend

from agentkv.engine.text.render import Renderer
from agentkv.engine.text.template import ChatTemplate
from agentkv.engine.text.tokenizer import Tokenizer

TEMPLATES = Path(__file__).parents[4] / "engine" / "model" / "templates"

LLAMA3 = """
{{- bos_token }}
{%- if messages[0].role == 'system' %}{% set system = messages[0].content %}{% set messages = messages[1:] %}
{%- else %}{% set system = '' %}{% endif %}
{{- '<|start_header_id|>system<|end_header_id|>\\n\\nCutting Knowledge Date: December 2023\\nToday Date: ' }}
{{- (date_string or '26 Jul 2024') + '\\n\\n' }}
{%- for tool in tools or [] %}{{ (tool | tojson(indent=4)) + '\\n\\n' }}{% endfor %}
{{- system + '<|eot_id|>' }}
{%- for message in messages %}
  {%- if message.role == 'tool' %}
    {{- '<|start_header_id|>ipython<|end_header_id|>\\n\\n' + message.content + '<|eot_id|>' }}
  {%- elif message.tool_calls %}
    {%- if message.tool_calls | length != 1 %}{{ raise_exception('This model takes one tool call at a time.') }}{% endif %}
    {%- set call = message.tool_calls[0].function %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
    {{- '{"name": "' + call.name + '", "parameters": ' + (call.arguments | tojson) + '}<|eot_id|>' }}
  {%- else %}
    {{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' + (message.content | trim) + '<|eot_id|>' }}
  {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}
"""

MISTRAL_ARGS = """
{{- bos_token }}
{%- if tools %}{{ '[AVAILABLE_TOOLS]' + (tools | tojson) + '[/AVAILABLE_TOOLS]' }}{% endif %}
{%- for message in messages %}
  {%- if message.role == 'user' %}{{ '[INST]' + message.content + '[/INST]' }}
  {%- elif message.role == 'tool' %}{{ '[TOOL_RESULTS]' + message.content + '[/TOOL_RESULTS]' }}
  {%- elif message.role == 'assistant' %}
    {{- message.content or '' }}
    {%- for call in message.tool_calls or [] %}
      {{- '[TOOL_CALLS]' + call.function.name + '[ARGS]' + (call.function.arguments | tojson) }}
    {%- endfor %}
    {{- eos_token }}
  {%- endif %}
{%- endfor %}
"""

# Thoughts of old turns are left out, as Qwen 3 does it; thoughts since the last question stay.
QWEN3 = """
{%- set ns = namespace(question=0) %}
{%- for message in messages %}{% if message.role == 'user' %}{% set ns.question = loop.index0 %}{% endif %}{% endfor %}
{%- if tools %}{{ '<|im_start|>system\\n' }}{% for tool in tools %}{{ (tool | tojson) + '\\n' }}{% endfor %}{{ '<|im_end|>\\n' }}{% endif %}
{%- for message in messages %}
  {%- if message.role == 'assistant' %}
    {%- set said = message.content if message.content is string else '' %}
    {%- set thought = message.reasoning_content if message.reasoning_content is string else '' %}
    {%- if not thought and '</think>' in said %}
      {%- set thought = said.split('</think>')[0].split('<think>')[-1].strip('\\n') %}
      {%- set said = said.split('</think>')[-1].lstrip('\\n') %}
    {%- endif %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if loop.index0 > ns.question and thought %}{{ '<think>\\n' + thought.strip('\\n') + '\\n</think>\\n\\n' }}{% endif %}
    {{- said }}
    {%- for call in message.tool_calls or [] %}
      {%- if said or not loop.first %}{{ '\\n' }}{% endif %}
      {{- '<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' + (call.function.arguments | tojson) + '}\\n</tool_call>' }}
    {%- endfor %}
    {{- '<|im_end|>\\n' }}
  {%- elif message.role == 'tool' %}
    {{- '<|im_start|>user\\n<tool_response>\\n' + message.content + '\\n</tool_response><|im_end|>\\n' }}
  {%- else %}{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
  {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}
"""

CONTROL = {
    "smollm2": ("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    "qwen": ("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    "qwen3": ("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    "llama3": (
        "<|begin_of_text|>",
        "<|start_header_id|>",
        "<|end_header_id|>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<|python_tag|>",
    ),
    "mistral": (
        "<s>",
        "</s>",
        "[INST]",
        "[/INST]",
        "[AVAILABLE_TOOLS]",
        "[/AVAILABLE_TOOLS]",
        "[TOOL_CALLS]",
        "[TOOL_RESULTS]",
        "[/TOOL_RESULTS]",
        "[ARGS]",
    ),
}
CONTROL["mistral-args"] = CONTROL["mistral"]
ENDS = {
    "smollm2": "<|im_end|>",
    "qwen": "<|im_end|>",
    "qwen3": "<|im_end|>",
    "llama3": "<|eot_id|>",
}
BOS = {"llama3": "<|begin_of_text|>", "mistral": "<s>", "mistral-args": "<s>"}
KINDS = tuple(CONTROL)
RECORDED = {
    "qwen": "Qwen-Qwen2.5-7B-Instruct.jinja",
    "mistral": "mistralai-Mistral-Nemo-Instruct-2407.jinja",
}


def backend(kind: str) -> Backend:
    """Byte-level BPE with a few merges, so that a text has several encodings."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [
        ("e", "l"),
        ("l", "o"),
        ("el", "lo"),
        ("h", "ello"),
        ("{", '"'),
        ('"', ":"),
        ("a", "r"),
        ("ar", "g"),
        ("n", "a"),
        ("na", "m"),
        ("nam", "e"),
        ("t", "o"),
        ("to", "o"),
        ("too", "l"),
        ("1", "2"),
        ("Ġ", "{"),
    ]
    words = [*alphabet, *(a + b for a, b in merges)]
    made = Backend(models.BPE(vocab={w: i for i, w in enumerate(words)}, merges=merges))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    for text in CONTROL[kind]:
        made.add_special_tokens([AddedToken(text, special=True, normalized=False)])
    if kind.startswith("qwen"):
        for text in ("<tool_call>", "</tool_call>", "<think>", "</think>"):
            made.add_tokens([AddedToken(text, special=False, normalized=False)])
    return made


MakeRenderer = Callable[..., Renderer]


@pytest.fixture
def make(request: pytest.FixtureRequest) -> MakeRenderer:
    """`make(kind, **options)` -> a fresh renderer of a model with that format."""

    def build(kind: str, **options: int) -> Renderer:
        if kind in RECORDED:
            traces: Path = request.getfixturevalue("traces")
            source = (traces / "chat_templates" / RECORDED[kind]).read_text("utf-8")
        elif kind == "smollm2":
            source = (TEMPLATES / "smollm2_tools.jinja").read_text("utf-8")
        else:
            source = {"llama3": LLAMA3, "mistral-args": MISTRAL_ARGS, "qwen3": QWEN3}[kind]
        end = ENDS.get(kind, "</s>")
        first = backend(kind)
        named = {"eos_token": end}
        if kind in BOS:
            named["bos_token"] = BOS[kind]
        tokenizer = Tokenizer(
            first,
            backend(kind),
            bos_token=BOS.get(kind),
            eos_ids=[i for i in [first.token_to_id(end)] if i is not None],
            named_tokens=named,
        )
        return Renderer(tokenizer, ChatTemplate(source, named_tokens=named), **options)

    return build
