"""Recordings of live calls: what `agentkv serve --record` and the LangChain handler write, line by
line, and `agentkv trace` reads.

One JSON object a line; every line stands alone, and a line that is cut off spoils no other.

    {"agentkv": 1,                    version of this schema; a reader refuses others
     "source": "serve",               or "langchain"
     "id": "req-7",                   the request's id; "req-7-0", ... where one request had several
     "time": 1764484704.25,           seconds since the epoch when the call arrived
     "session": "t-1" | null,         thread or conversation, as the caller named it
     "user": "u-9" | null,
     "model": "qwen2.5-0.5b",
     "provider": "agentkv",           who answered: agentkv, openai, anthropic, ...
     "salt": "3f2a..." | null,        digest of the cache salt, never the salt itself
     "node": "agent" | null,          LangGraph's node (langchain only)
     "tokenizer": "exact" | "estimate",  whether token numbers of `spans` are those of the model
     "prompt_tokens": 1841,           as counted by who answered; null where it was not said
     "cached_tokens": 1792 | null,    as measured by who answered; null is "not said", never 0
     "written_tokens": null,
     "completion_tokens": 21,
     "finish_reason": "stop" | null,
     "error": null,                   kind of the failure ("ContextLengthExceeded"); such a call
                                      filled no cache
     "ms": {"queue", "prefill", "ttft", "decode"},   where known
     "ttft_ms": 68.2 | null,
     "page_size": 1 | null,
     "settings": {...},               what may be part of a prefix beside the text (tool_choice,
                                      response_format as its digest, ...); only what was set
     "spans": [[name, kind, role, start, end, digest, items], ...],
     "answer": [digest, tokens] | null,
     "miss": {"token", "reason", "segment", "detail"} | null,
                                      the engine's own verdict; `was` and `now` only with the text
     "text": {...}, "reply": {...}}   only with --record-text: the request as an OpenAI body
                                      (`messages`, `tools`, ... or `prompt`), and the answer as
                                      that of a chat completion

**Spans** are disjoint, sorted, and cover the prompt: `name` is `tools`, `documents`, `messages[3]`,
`generation_prompt`, ...; `kind` a segment's kind; `role` or null; tokens `[start, end)`; `digest` of
the content as the caller sent it (it tells "this text in another place" from "another text").

**Items** divide a span without a rest: `[name | null, digest, tokens]`, in order; the tokens sum to
`end - start`. Of `tools` one for each tool, with its name: the digest is of its definition, and the
tokens are the span's, shared out by length (their sum is exact, the parts are not). Of anything else
they are chunks of 8 to 64 tokens that end where the *content* says (see `chunks`), so that two
prompts have the same chunks again soon behind a change, wherever it moved them to. Hence without
any text: two prompts share a prefix up to the first item that differs, and could have shared what
other items they have in common.

**Digests** are BLAKE2b, cut to 12 hex digits of items and 16 of spans; of token ids (int32, little
endian) of items, of text of spans. They are the same in all files, so that two logs can be compared,
which also means that whoever can guess a text can check the guess. With a key (`AGENTKV_RECORD_KEY`,
for all files that are to be compared) nobody without it can.

No torch here.
"""
