"""KV707 cache-key-misuse."""

from __future__ import annotations

from agentkv.lint.context import Context
from agentkv.lint.finding import Severity
from agentkv.lint.rules._request import SettingRule
from agentkv.lint.template import Request, Setting


class CacheKeyMisuse(SettingRule):
    """The key of the cache is new in each call.

    ## What it catches
    `prompt_cache_key=str(uuid4())`, a `cache_salt` per request, a key from a clock or a turn.

    ## Why it costs
    The key says which calls may share a prefix. A key that no other call has shares with none: caching
    is switched off, by the very argument that was meant to help it.

    ## Bad
    ```python
    client.responses.create(model=MODEL, input=messages, prompt_cache_key=str(uuid4()))
    ```

    ## Good
    ```python
    client.responses.create(model=MODEL, input=messages, prompt_cache_key="support-v3")
    ```

    ## When it is wrong
    A salt per tenant keeps tenants apart on purpose; that is not reported.
    """

    code = "KV707"
    name = "cache-key-misuse"
    rank = 14
    names = frozenset({"prompt_cache_key", "cache_salt", "cache_key", "extra_key"})
    advice = "Use one key for all calls that begin alike, or none."

    def catches(self, setting: Setting, request: Request, context: Context) -> bool:
        return setting.level in ("turn", "call")

    def severity(self, lost: float, most: Severity | None = None) -> Severity:
        return "error"

    def says(self, setting: Setting, request: Request) -> str:
        return f"`{setting.name}` is another one in each call, so no call finds what another has computed"
