"""Which server is behind a base URL, and so which fields it may be sent."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

Dialect = Literal["auto", "agentkv", "openai"]
DIALECTS = ("auto", "agentkv", "openai")
OPENAI_HOST = "api.openai.com"
_VERSION = re.compile(r"/v\d+\w*$")


@dataclass(frozen=True, slots=True)
class Server:
    """A server as far as it is known.

    `ours`: it is `agentkv serve`. `openai`: it is OpenAI itself. `owner`: who its models say they
    belong to (`vllm`, `sglang`, `llamacpp`, ...). `cards`: its models, as it lists them.
    """

    ours: bool = False
    openai: bool = False
    owner: str | None = None
    cards: tuple[Mapping[str, Any], ...] = ()

    def window(self, model: str | None) -> int | None:
        """Tokens of prompt and completion that `model` takes together, if its card says so."""
        named = [c for c in self.cards if c.get("id") == model] or self.cards
        for card in named:
            meta = card.get("meta")
            found = (
                card.get("max_model_len")
                or card.get("context_length")
                or (meta.get("n_ctx") if isinstance(meta, Mapping) else None)
            )
            if isinstance(found, int):
                return found
        return None


def split_url(base_url: str) -> tuple[str, str]:
    """`(root, api)` of a base URL: native routes are below the one, OpenAI's below the other.

    `http://host`, `http://host/v1` and `https://host/api/paas/v4` are all understood.
    """
    root = base_url.rstrip("/")
    if not root.startswith(("http://", "https://")):
        raise ValueError(f"base_url must start with http:// or https://, got {base_url!r}.")
    found = _VERSION.search(root)
    return (root[: found.start()], root) if found else (root, f"{root}/v1")


def known(dialect: Dialect, root: str) -> Server | None:
    """What needs no look: a dialect that was given, or OpenAI's own address."""
    openai = (urlsplit(root).hostname or "").lower() == OPENAI_HOST
    if dialect == "agentkv":
        return Server(ours=True)
    if dialect == "openai" or openai:
        return Server(openai=openai)
    return None


def read_models(status: int, data: Any) -> tuple[Server, bool]:
    """The server that answered `GET /v1/models`, and whether that is certain.

    A server that refuses the question (a missing key) is taken for a foreign one this time: the
    call itself will be refused too, and says why.
    """
    if status != 200:
        return Server(), status not in (401, 403)
    listed = data.get("data") if isinstance(data, Mapping) else data
    given = listed if isinstance(listed, Sequence) and not isinstance(listed, str) else ()
    cards = tuple(card for card in given if isinstance(card, Mapping))
    owners = [str(c["owned_by"]) for c in cards if isinstance(c.get("owned_by"), str)]
    return Server(ours="agentkv" in owners, owner=owners[0] if owners else None, cards=cards), True
