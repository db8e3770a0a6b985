"""KV409 prompt-rebuilt-each-call."""

from __future__ import annotations

from agentkv.lint.rules._request import HistoryRule


class PromptRebuiltEachCall(HistoryRule):
    """The system prompt is read again for each call.

    ## What it catches
    A prompt from a file, a database or a prompt hub that is read in the function that calls the model.

    ## Why it costs
    If somebody edits it while conversations run, each of them computes everything again in its next
    turn, and its model gets other rules in the middle of a task.

    ## Bad
    ```python
    def answer(history):
        system = hub.pull("team/support").format()
        return ask([system, *history])
    ```

    ## Good
    ```python
    class Session:
        def __init__(self) -> None:
            self.system = hub.pull("team/support").format()  # once a session
    ```

    ## When it is wrong
    When it is meant: reloading while you develop. This is advice, at info.
    """

    code = "KV409"
    name = "prompt-rebuilt-each-call"
    certainty = "heuristic"
    rank = 80
    kinds = ("rebuilt_each_call",)
    does = "The prompt is read again for each call"
    advice = "Read it once a session."
