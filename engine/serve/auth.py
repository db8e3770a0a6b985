"""Who may call: API keys, and the names under which this server may be addressed."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from hmac import compare_digest
from urllib.parse import urlsplit

from agentkv.engine.serve.config import ServeConfig, is_loopback

OPEN_ROUTES = frozenset({"/", "/health", "/ready"})
"""The only routes that need no key. A list of what is open, so that a new route is closed."""


class Keys:
    """The keys of a server, kept as digests."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._digests = [_digest(key.encode("utf-8")) for key in keys]

    def __bool__(self) -> bool:
        return bool(self._digests)

    def match(self, presented: bytes) -> str | None:
        """A short name of the key that was presented, or None.

        Compares digests, of equal length whatever was sent, and with every key, so that the time
        tells nothing.
        """
        digest = _digest(presented)
        found = None
        for known in self._digests:
            if compare_digest(digest, known):
                found = known.hex()[:16]
        return found

    @property
    def several(self) -> bool:
        """Whether tenants have to be kept apart."""
        return len(self._digests) > 1


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def presented_key(authorization: bytes | None, x_api_key: bytes | None) -> bytes | None:
    """The key in `Authorization: Bearer ...`, or in `x-api-key`."""
    if authorization is not None:
        scheme, _, key = authorization.partition(b" ")
        if scheme.lower() == b"bearer" and key.strip():
            return key.strip()
    return x_api_key


class Hosts:
    """The names that a `Host` or `Origin` header may carry.

    A page on the web can point its own name at 127.0.0.1 and then talk to a local server as if to
    itself; the name in the header gives it away. Bound to another address than loopback, the
    server cannot know its names, and checks only if it was given some.
    """

    def __init__(self, config: ServeConfig) -> None:
        self._allowed = {name.lower().strip("[]") for name in config.allowed_hosts}
        self._any = "*" in self._allowed or not (is_loopback(config.host) or self._allowed)

    def allow_host(self, value: str) -> bool:
        """`value`: a `Host` header, port and all."""
        name = _host_name(f"//{value}")
        return self._any or (name is not None and (name in self._allowed or is_loopback(name)))

    def allow_origin(self, value: str) -> bool:
        """`value`: an `Origin` header."""
        name = _host_name(value)
        return self._any or (name is not None and (name in self._allowed or is_loopback(name)))


def _host_name(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None
