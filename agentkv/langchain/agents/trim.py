"""`trim_in_jumps()`: a history that is kept short without moving its start in every call.

`trim_messages(strategy="last")` drops one more message with each new one, so at the limit each call
starts somewhere else and nothing behind the system message is reused. Here the start holds while
the history grows from `least` to `most` messages, and then jumps.
"""

from __future__ import annotations

from collections.abc import Sequence

from langchain_core.messages import AnyMessage, HumanMessage, SystemMessage, ToolMessage


def trim_in_jumps(
    messages: Sequence[AnyMessage],
    *,
    most: int,
    least: int | None = None,
    start_on_user: bool = False,
) -> list[AnyMessage]:
    """The end of `messages`: all of them up to `most`, else between `least` (default: half of
    `most`) and `most`; system messages at the start stay and do not count.

    Where it starts depends on the messages only, so no state is needed and every process cuts
    alike. No tool result loses its call. `start_on_user` moves the start on to the next user
    message, for models that want one first; without one there it stays.

    Raises ValueError unless `0 < least < most`.
    """
    if least is None:
        least = max(1, most // 2)
    if not 0 < least < most:
        raise ValueError(f"least must be above 0 and below most, got {least} and {most}.")
    lead = 0
    while lead < len(messages) and isinstance(messages[lead], SystemMessage):
        lead += 1
    talk = list(messages[lead:])
    over = len(talk) - most
    if over <= 0:
        return list(messages)
    step = most - least
    start = -(-over // step) * step
    while start > 0 and isinstance(talk[start], ToolMessage):
        start -= 1
    if start_on_user:
        users = (i for i in range(start, len(talk)) if isinstance(talk[i], HumanMessage))
        start = next(users, start)
    return [*messages[:lead], *talk[start:]]
