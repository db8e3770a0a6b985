"""A call format as one tokenizer writes it.

Control tokens give no text, so an answer's text alone does not show them. Here each control token
of a format is stood for by a *seal*, a character that no text can contain (a lone surrogate), and
everything behind works on text with seals: what only spells a control token is not one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from agentkv.engine.text.calls.formats import NO_CALLS, THINK, UNTHINK, CallFormat
from agentkv.engine.text.tokenizer import Tokenizer

_FIRST_SEAL = 0xD800


class Script:
    """The strings of a format with seals in them.

    `seals`: the seal of each control token's id. `opener_id`: the token with which a call begins.
    """

    def __init__(self, form: CallFormat, tokenizer: Tokenizer) -> None:
        self.form = form
        self.seals: dict[int, str] = {}
        parts = (form.lead, form.opener, form.open, form.head, form.middle, form.tail)
        strings = (*parts, form.close, form.sep or "", form.gap, THINK, UNTHINK)
        found = {t: i for t, i in tokenizer.added_tokens.items() if any(t in s for s in strings)}
        self._added = found
        self._pattern = re.compile("|".join(map(re.escape, sorted(found, key=len)[::-1])) or "(?!)")
        self._sealed: dict[str, str] = {}
        for text, token in found.items():
            if not tokenizer.decode([token]):  # a token that shows as text is read as text
                self._sealed[text] = self.seals[token] = chr(_FIRST_SEAL + len(self.seals))
        self._ids = {seal: token for token, seal in self.seals.items()}
        self.lead = self._seal(form.lead) if form.lead in self._sealed else ""
        self.opener = self._seal(form.opener)
        self.open = self._seal(form.open)
        self.head = self._seal(form.head)
        self.middle = self._seal(form.middle)
        self.tail = self._seal(form.tail)
        self.close = self._seal(form.close)
        self.sep = None if form.sep is None else self._seal(form.sep)
        self.gap = self._seal(form.gap)
        self.think, self.unthink = self._seal(THINK), self._seal(UNTHINK)
        self.opener_id = -1
        if form is not NO_CALLS:
            opener = self.token(self.opener)
            if opener is None:
                written = f"{form.opener}{form.open}{form.head}"
                opener = int(tokenizer.encode_stretch(written, first=False)[0][0])
            self.opener_id = opener

    def token(self, text: str) -> int | None:
        """The id of the one token that `text` is, control token (as a seal) or other added one."""
        return self._ids.get(text, self._added.get(text))

    def sealed(self, text: str) -> bool:
        """Whether `text` has seals in it."""
        return any(char in self._ids for char in text)

    def terms(self, text: str) -> Iterator[str | int]:
        """`text` as text and, where an added token stands, its id."""
        plain = ""
        at = 0
        while at < len(text):
            found = self._pattern.match(text, at)
            token = self._ids.get(text[at]) if found is None else self._added[found.group()]
            if token is None:
                plain += text[at]
                at += 1
                continue
            if plain:
                yield plain
                plain = ""
            yield token
            at = at + 1 if found is None else found.end()
        if plain:
            yield plain

    def shown(self, text: str) -> str:
        """`text` without seals."""
        return text.translate(dict.fromkeys(map(ord, self._ids))) if self._ids else text

    def _seal(self, text: str) -> str:
        return self._pattern.sub(lambda m: self._sealed.get(m.group(), m.group()), text)
