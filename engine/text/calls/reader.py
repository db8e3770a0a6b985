"""Answers read while they come: text, reasoning, and tool calls.

    thought | text | space OPENER OPEN HEAD name MIDDLE | {arguments} | TAIL CLOSE | ...
                   \\__ held back until it is a call ___/

Held back is only what could still become an opener, or the end of a thought. Once a name of the
request's tools stands in its place, the call is certain and its arguments go out as they come;
until then anything that does not fit is text after all.
"""

from __future__ import annotations

import json
import secrets
import string
from collections.abc import Callable, Collection, Sequence

from agentkv.engine.text.calls.answer import Answer, AnswerDelta, CallDelta, ToolCall
from agentkv.engine.text.calls.head import head, literal
from agentkv.engine.text.calls.scan import ObjectScan
from agentkv.engine.text.calls.script import Script
from agentkv.engine.text.calls.seals import Seals
from agentkv.engine.text.tokenizer import Tokenizer

_LETTERS = string.ascii_letters + string.digits


def new_call_id() -> str:
    """A fresh id of a tool call: `call_` and 24 random letters and digits."""
    return "call_" + "".join(secrets.choice(_LETTERS) for _ in range(24))


class AnswerReader:
    """Reads one answer, piece by piece. Not shared between threads.

    `script`: how the model writes; `names`: the tools that may be called (none: calls are text). `guarded`: a grammar makes sure that what begins as a call ends as one; without it a
    call goes out only when it is whole. `speaks`: the answer may be text; `alike`: its text may
    begin just as a call does. `thinks`: the answer may begin with a thought; `thinking`: it begins
    inside one. How the text is cut into pieces makes no difference to the whole.
    """

    def __init__(
        self,
        script: Script,
        tokenizer: Tokenizer,
        names: Collection[str] = (),
        *,
        guarded: bool = True,
        speaks: bool = True,
        alike: bool = False,
        thinks: bool = False,
        thinking: bool = False,
    ) -> None:
        self._script = script
        self._names = frozenset(names)
        self._guarded = guarded
        self._speaks = speaks or not names
        self._alike = alike
        self._seals = Seals(script.seals, tokenizer) if script.seals else None
        self._buffer = ""
        self._begun = False  # text or a call has gone out
        self._text: list[str] = []
        self._thought: list[str] = []
        self._calls: list[_Call] = []
        self._out = _Out()
        self._scan = ObjectScan()
        self._last = False
        self._state: Callable[[], bool] = self._plain
        if thinking:
            self._state = self._thinking
        elif thinks:
            self._state = self._starting

    @property
    def answer(self) -> Answer:
        """What was read so far; all of it after `finish`. A call that was cut off has arguments
        that are no whole JSON."""
        return Answer(
            text="".join(self._text),
            tool_calls=tuple(ToolCall(c.id, c.name, "".join(c.arguments)) for c in self._calls),
            reasoning="".join(self._thought),
        )

    def feed(self, text: str, token_ids: Sequence[int] = ()) -> AnswerDelta:
        """Take the next piece of text, and the tokens sampled since the last piece.

        The tokens tell of control tokens, which give no text; formats without any do not need them.
        """
        if self._seals is not None:
            text = self._seals.merge(text, token_ids)
        self._buffer += text
        return self._read()

    def finish(self) -> AnswerDelta:
        """The rest, when nothing more will come."""
        self._last = True
        return self._read()

    def _read(self) -> AnswerDelta:
        while self._buffer and self._state():
            pass
        out, self._out = self._out, _Out()
        return out.delta()

    # -- states: each takes from the buffer, and says whether another look may find more

    def _starting(self) -> bool:
        """A thought may come first."""
        rest = self._buffer.lstrip()
        if rest.startswith(self._script.think):
            self._buffer = rest[len(self._script.think) :]
            self._state = self._thinking
            return True
        if self._script.think.startswith(rest) and not self._last:
            return False
        self._state = self._plain
        return True

    def _thinking(self) -> bool:
        """Inside a thought; line ends at its ends are not part of it."""
        if not self._thought:
            self._buffer = self._buffer.lstrip("\n")
        at = self._buffer.find(self._script.unthink)
        if at >= 0:
            self._reason(self._buffer[:at].rstrip("\n"))
            self._buffer = self._buffer[at + len(self._script.unthink) :]
            self._state = self._thought_over
            return True
        keep = 0 if self._last else _overlap(self._buffer, self._script.unthink)
        said = self._buffer[: len(self._buffer) - keep].rstrip("\n")
        self._reason(said)
        self._buffer = "" if self._last else self._buffer[len(said) :]
        return False

    def _thought_over(self) -> bool:
        """Line ends between a thought and the text."""
        self._buffer = self._buffer.lstrip("\n")
        if not self._buffer:
            return False
        self._state = self._plain
        return True

    def _plain(self) -> bool:
        """Text, in which a call may begin."""
        script = self._script
        if not self._names or (script.form.at_start and self._begun):
            self._say(self._buffer)
            self._buffer = ""
            return False
        buffer = self._buffer
        lead, opener = script.lead, script.opener
        at = buffer.find(opener)
        if script.form.at_start and buffer[:at].strip() not in ("", lead):
            at = -1
        if at < 0:
            keep = self._could_open(buffer)
            self._say(buffer[: len(buffer) - keep])
            self._buffer = buffer[len(buffer) - keep :]
            return False
        start = len(buffer[:at].rstrip())
        if lead and buffer.endswith(lead, 0, start):
            start -= len(lead)
        if start:
            self._say(buffer[:start])
            self._buffer = buffer[start:]
            at -= start
            buffer = self._buffer
        before = opener + script.open + script.head
        found = head(buffer, at, before, script.middle, quoted=script.form.quoted)
        if isinstance(found, tuple) and found.name in self._names:
            if self._guarded:
                self._begin(found.name, found.end)
                return True
            return self._whole_call(found.name, at, found.end)
        if found == "partial" and not self._last:
            return False
        if found == "partial" and self._guarded and not self._alike:
            self._buffer = ""  # a call that was cut off before it had a name
            return False
        self._give_up(at)
        return True

    def _whole_call(self, name: str, at: int, begin: int) -> bool:
        """An unguarded call goes out when all of it is there and good."""
        script = self._script
        scan = ObjectScan()
        size = scan.take(self._buffer[begin:])
        end: int | str | None = "partial"
        if scan.done:
            end = literal(self._buffer, begin + size, script.tail)
            if script.sep is None and isinstance(end, int):
                end = literal(self._buffer, end, script.close)
        if end == "partial" and not self._last:
            return False
        if isinstance(end, int):
            try:
                json.loads(self._buffer[begin : begin + size])
            except (ValueError, RecursionError):
                end = None
        if not isinstance(end, int):
            self._give_up(at)
            return True
        self._begin(name, begin)
        return True

    def _arguments(self) -> bool:
        size = self._scan.take(self._buffer)
        piece, self._buffer = self._buffer[:size], self._buffer[size:]
        call = self._calls[-1]
        call.arguments.append(piece)
        self._out.call(CallDelta(len(self._calls) - 1, arguments=piece))
        if self._scan.done:
            self._state = self._behind
        return self._scan.done

    def _behind(self) -> bool:
        """Behind a call's arguments: its tail, and another call of the block or its end."""
        script = self._script
        at = literal(self._buffer, 0, script.tail)
        ends = (None if at is None else at) if at == "partial" else None
        if isinstance(at, int):
            if script.sep is not None:
                before = script.sep + script.head
                found = head(self._buffer, at, before, script.middle, quoted=script.form.quoted)
                if isinstance(found, tuple) and found.name in self._names:
                    self._begin(found.name, found.end)
                    return True
                ends = "partial" if found == "partial" else None
            end = literal(self._buffer, at, script.close)
            if isinstance(end, int) and ends is None:
                self._buffer = self._buffer[end:]
                self._state = self._plain
                return True
            ends = "partial" if "partial" in (ends, end) else None
        if ends == "partial":
            if self._last:
                self._buffer = ""
            return False
        self._state = self._plain
        return True

    # -- what goes out

    def _begin(self, name: str, end: int) -> None:
        call = _Call(new_call_id(), name)
        self._calls.append(call)
        self._out.call(CallDelta(len(self._calls) - 1, id=call.id, name=name))
        self._buffer = self._buffer[end:]
        self._scan = ObjectScan()
        self._begun = True
        self._state = self._arguments

    def _give_up(self, at: int) -> None:
        """What looked like an opener at `at` is text."""
        self._say(self._buffer[: at + 1])
        self._buffer = self._buffer[at + 1 :]

    def _could_open(self, buffer: str) -> int:
        """How many characters at the end could still become an opener, space before included."""
        script = self._script
        space = len(buffer) - len(buffer.rstrip())
        if self._last:
            unspoken = not self._speaks or (self._calls and space == len(buffer))
            return len(buffer) if unspoken else 0
        size = _overlap(buffer, script.opener)
        head_part = buffer[: len(buffer) - size]
        if script.lead and head_part.rstrip().endswith(script.lead):
            size = len(buffer) - len(head_part.rstrip()) + len(script.lead)
            head_part = buffer[: len(buffer) - size]
        space = len(head_part) - len(head_part.rstrip())
        if script.form.at_start and head_part.strip():
            return 0
        return size + space

    def _say(self, text: str) -> None:
        shown = self._script.shown(text)
        if text:
            self._begun = self._begun or bool(text.strip())
        if shown:
            self._text.append(shown)
            self._out.text.append(shown)

    def _reason(self, text: str) -> None:
        if text:
            self._thought.append(text)
            self._out.reasoning.append(text)


class _Call:
    __slots__ = ("arguments", "id", "name")

    def __init__(self, call_id: str, name: str) -> None:
        self.id = call_id
        self.name = name
        self.arguments: list[str] = []


class _Out:
    """What one piece brought."""

    __slots__ = ("calls", "reasoning", "text")

    def __init__(self) -> None:
        self.text: list[str] = []
        self.reasoning: list[str] = []
        self.calls: list[CallDelta] = []

    def call(self, delta: CallDelta) -> None:
        self.calls.append(delta)

    def delta(self) -> AnswerDelta:
        return AnswerDelta("".join(self.text), "".join(self.reasoning), tuple(self.calls))


def _overlap(text: str, target: str) -> int:
    """Length of the longest end of `text` that `target` begins with, short of all of it."""
    for size in range(min(len(text), len(target) - 1), 0, -1):
        if text.endswith(target[:size]):
            return size
    return 0
