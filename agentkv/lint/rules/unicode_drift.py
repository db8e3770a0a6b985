"""KV311 unicode-drift."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

from agentkv.lint import price
from agentkv.lint.context import Context
from agentkv.lint.finding import Finding
from agentkv.lint.rule import Rule
from agentkv.lint.source import Slice
from agentkv.lint.spot import request_of, static_texts
from agentkv.lint.template import Document, Template, Text

_UNSEEN = {
    "\ufeff": "a byte order mark",
    "\u200b": "a zero width space",
    "\u2060": "a word joiner",
    "\u00ad": "a soft hyphen",
    "\u202f": "a narrow no-break space",
    "\u00a0": "a no-break space",
}


class UnicodeDrift(Rule):
    """Characters that look alike, or are not seen at all, are part of a prompt.

    ## What it catches
    A byte order mark, zero width and no-break spaces, and letters that are written as letter and
    accent apart (not in the form NFC), in static text.

    ## Why it costs
    Editors, databases and `normalize()` calls change them without anybody noticing: the prompt looks
    the same, and its tokens are others. They also cost more tokens than what they stand for.

    ## Bad
    ```python
    SYSTEM = "\\ufeffYou are a helpful assistant."
    ```

    ## Good
    ```python
    SYSTEM = "You are a helpful assistant."
    ```

    ## When it is wrong
    When the character is meant: a name, an example of it, French punctuation. No-break spaces are
    reported at info.
    """

    code = "KV311"
    name = "unicode-drift"
    rank = 86

    def check(self, document: Document, context: Context) -> Iterator[Finding]:
        for template in document.templates:
            found = _first(template, context)
            if found is None:
                continue
            text, offset, what = found
            where = text.slice or template.slice
            if text.slice is not None and len(text.slice) == len(text.value):
                where = Slice(text.slice.start + offset, text.slice.start + offset + 1)
            tokens = price.static(template, context)
            yield Finding(
                code=self.code,
                name=self.name,
                slice=where,
                message=(
                    f"The text holds {what}, which is easily lost or changed: {tokens:,} static tokens "
                    "are compared character by character."
                ),
                severity="info" if tokens < context.min_tokens or "no-break" in what else "warning",
                static_behind=tokens,
                template=template,
                request=request_of(template, document),
                slot=f"{template.name}/unicode",
            )


def _first(template: Template, context: Context) -> tuple[Text, int, str] | None:
    for _, _, piece in static_texts(template, context):
        if piece.value.isascii():
            continue
        for offset, character in enumerate(piece.value):
            if character in _UNSEEN:
                return piece, offset, _UNSEEN[character]
            if unicodedata.combining(character) and offset:
                pair = piece.value[offset - 1 : offset + 1]
                if len(unicodedata.normalize("NFC", pair)) == 1:
                    return piece, offset, "a letter and its accent apart (not NFC)"
    return None
