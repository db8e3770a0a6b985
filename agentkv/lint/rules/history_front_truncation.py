"""KV401 history-front-truncation."""

from __future__ import annotations

from agentkv.lint.rules._request import HistoryRule


class HistoryFrontTruncation(HistoryRule):
    """The oldest messages are cut off in every turn.

    ## What it catches
    `[system] + history[-10:]`, `messages.pop(0)`, a `deque(maxlen=...)` of messages, trimming that
    keeps the last messages, on the way to a model.

    ## Why it costs
    As soon as the window is full, every turn drops a message from the front: the first message behind
    the system prompt is another one each time, and the whole window is computed again.

    ## Bad
    ```python
    reply = client.chat.completions.create(model=MODEL, messages=[system, *history[-10:]])
    ```

    ## Good
    ```python
    if count_tokens(history) > LIMIT:  # rarely, and then a lot at once
        history = history[-KEEP:]
    reply = client.chat.completions.create(model=MODEL, messages=[system, *history])
    ```

    ## When it is wrong
    When the slice is for display, a log or a title. Conversations that never reach the limit lose
    nothing.
    """

    code = "KV401"
    name = "history-front-truncation"
    rank = 30
    kinds = ("front_truncation",)
    does = "The oldest messages are cut off in every turn once the window is full"
    advice = "Append only, and cut rarely: a large piece at once, at a limit."
