"""CacheServer: the cache of a running `agentkv serve`, looked at and steered from outside."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from agentkv.client.server import split_url

if TYPE_CHECKING:
    import httpx

KEY_VARIABLE = "AGENTKV_API_KEY"
DEFAULT_URL = "http://127.0.0.1:8080"


class CacheServerError(Exception):
    """The server could not be reached, or refused; the message says what to do.

    `refused`: it answered, and the request was wrong.
    """

    def __init__(self, message: str, *, refused: bool = False) -> None:
        super().__init__(message)
        self.refused = refused


class CacheServer:
    """`/agentkv/cache/*` of one server. `api_key`: default, `AGENTKV_API_KEY`.

    Methods return the server's JSON, and raise `CacheServerError`.
    """

    def __init__(
        self, url: str = DEFAULT_URL, *, api_key: str | None = None, timeout: float = 30.0
    ) -> None:
        import httpx

        try:
            self.url, _ = split_url(url)
        except ValueError as error:
            raise CacheServerError(str(error), refused=True) from None
        key = api_key or os.environ.get(KEY_VARIABLE)
        headers = {"authorization": f"Bearer {key}"} if key else {}
        # Loading certificates takes longer than a call, and plain HTTP has none to check.
        secure = self.url.startswith("https://")
        self._client = httpx.Client(timeout=timeout, headers=headers, verify=secure)

    def __enter__(self) -> CacheServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._client.close()

    # -- looking ---------------------------------------------------------------------------------

    def stats(self) -> dict[str, Any]:
        return self._get("stats")

    def tree(self, *, limit: int | None = None, depth: int | None = None) -> dict[str, Any]:
        found = {"limit": limit, "depth": depth}
        return self._get("tree", {k: v for k, v in found.items() if v is not None})

    def node(self, node_id: str, *, text: bool = False) -> dict[str, Any]:
        return self._get(f"nodes/{node_id}", {"text": 1} if text else {})

    def pins(self) -> list[dict[str, Any]]:
        return list(self._get("pins")["pins"])

    # -- steering --------------------------------------------------------------------------------

    def pin(
        self,
        *,
        messages: Sequence[Mapping[str, Any]] | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        prompt: str | None = None,
        ttl: float | None = None,
        salt: str | None = None,
    ) -> dict[str, Any]:
        """Keep a conversation's beginning, or a text; it is computed if need be."""
        body = {
            "messages": messages, "tools": tools, "prompt": prompt, "ttl": ttl, "cache_salt": salt,
        }  # fmt: skip
        return self._post("pin", {k: v for k, v in body.items() if v is not None})

    def unpin(self, pin_id: str) -> dict[str, Any]:
        return self._post("unpin", {"pin": pin_id})

    def flush(self) -> dict[str, Any]:
        return self._post("flush", {})

    def save(self) -> dict[str, Any]:
        return self._post("save", {})

    # -- inside ----------------------------------------------------------------------------------

    def _get(self, route: str, query: Mapping[str, Any] | None = None) -> dict[str, Any]:
        return self._ask("GET", route, params=query or {})

    def _post(self, route: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return self._ask("POST", route, json=body)

    def _ask(self, method: str, route: str, **options: Any) -> dict[str, Any]:
        import httpx

        try:
            reply = self._client.request(method, f"{self.url}/agentkv/cache/{route}", **options)
        except httpx.HTTPError as error:
            raise CacheServerError(
                f"{self.url} cannot be reached ({error or type(error).__name__}). "
                "Is `agentkv serve` running there?"
            ) from error
        return self._read(reply)

    def _read(self, reply: httpx.Response) -> dict[str, Any]:
        try:
            data = reply.json()
        except ValueError:
            data = None
        if reply.status_code == 200 and isinstance(data, dict):
            return data
        error = data.get("error") if isinstance(data, dict) else None
        said = error.get("message") if isinstance(error, dict) else None
        if reply.status_code == 401:
            raise CacheServerError(f"{self.url} wants an API key: set {KEY_VARIABLE}.")
        if said is None:
            raise CacheServerError(
                f"{self.url} answered {reply.status_code}, and not as `agentkv serve` does."
            )
        raise CacheServerError(str(said), refused=reply.status_code in (400, 404))
