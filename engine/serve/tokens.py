"""`POST /tokenize`, `POST /detokenize`, `POST /apply-template`."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from agentkv.engine.serve import explain
from agentkv.engine.serve.body import read
from agentkv.engine.serve.conversation import render
from agentkv.engine.serve.errors import invalid
from agentkv.engine.serve.logprobs import token_text
from agentkv.engine.serve.params import check_ids
from agentkv.engine.serve.protocol import DetokenizeRequest, TemplateRequest, TokenizeRequest
from agentkv.engine.serve.service import service_of
from agentkv.engine.serve.wire import JSONReply


async def tokenize(request: Request) -> Response:
    """Token ids of a text or of a conversation.

    `add_special_tokens: false` leaves out what the tokenizer would put in front by itself;
    `parse_special: false` treats `<|...|>` as text.
    """
    service = service_of(request)
    body = await read(request, TokenizeRequest)
    wanted = body.value
    service.check_model(wanted.model)
    tokenizer = service.engine.tokenizer
    if wanted.messages is not None:
        prompt = await render(
            service,
            wanted.messages,
            wanted.tools,
            add_generation_prompt=wanted.add_generation_prompt,
            continue_final_message=wanted.continue_final_message,
            template_kwargs=wanted.chat_template_kwargs,
        )
        ids = prompt.token_ids
    else:
        text = wanted.prompt if wanted.prompt is not None else wanted.content
        if text is None:
            raise invalid(
                "Give `prompt` or `messages`.", param="prompt", code="missing_required_parameter"
            )
        encode = tokenizer.encode_raw
        if wanted.parse_special is False:
            encode = tokenizer.encode_text
        elif wanted.add_special_tokens is False:
            encode = tokenizer.encode_control
        ids = await asyncio.to_thread(encode, text)
    reply: dict[str, Any] = {
        "count": len(ids),
        "max_model_len": service.engine.max_model_len,
        "tokens": ids.tolist(),
        "token_strs": None,
    }
    if wanted.return_token_strs:
        reply["token_strs"] = [token_text(tokenizer.token_bytes(i)) for i in ids.tolist()]
    return JSONReply(reply, headers=body.headers)


async def detokenize(request: Request) -> Response:
    """Text of token ids, special tokens included unless `skip_special_tokens: true`."""
    service = service_of(request)
    body = await read(request, DetokenizeRequest)
    wanted = body.value
    service.check_model(wanted.model)
    tokenizer = service.engine.tokenizer
    ids = check_ids(wanted.tokens, tokenizer.vocab_size, "tokens")
    text = await asyncio.to_thread(
        tokenizer.decode, ids, skip_special=bool(wanted.skip_special_tokens)
    )
    return JSONReply({"prompt": text, "content": text}, headers=body.headers)


async def apply_template(request: Request) -> Response:
    """The prompt that a conversation becomes: text, ids, which tokens belong to what, and what the
    template left out or put elsewhere."""
    service = service_of(request)
    body = await read(request, TemplateRequest)
    wanted = body.value
    service.check_model(wanted.model)
    prompt = await render(
        service,
        wanted.messages,
        wanted.tools,
        add_generation_prompt=wanted.add_generation_prompt,
        continue_final_message=wanted.continue_final_message,
        template_kwargs=wanted.chat_template_kwargs,
    )
    spans = [
        {
            "name": span.name,
            "kind": span.kind,
            "stability": span.stability,
            "role": span.role,
            "start": span.start,
            "end": span.end,
        }
        for span in prompt.spans
    ]
    reply = {
        "prompt": prompt.text,
        "token_ids": prompt.token_ids.tolist(),
        "spans": spans,
        "dropped": explain.dropped(wanted.messages, prompt),
        "moved": explain.moved(prompt),
    }
    return JSONReply(reply, headers=body.headers)
