"""What rules about requests and their history share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from agentkv.lint import price
from agentkv.lint.context import Context
from agentkv.lint.finding import Finding, Severity
from agentkv.lint.price import ORDER
from agentkv.lint.rule import Rule
from agentkv.lint.rules._hole import percent
from agentkv.lint.source import Slice
from agentkv.lint.template import Document, HistoryOp, HistoryOpKind, Request, Setting, Template

HOSTED = frozenset({"openai", "anthropic", "bedrock", "gemini", "litellm"})


class RequestRule(Rule):
    """A rule about calls of a model."""

    most: ClassVar[Severity] = "warning"
    advice: ClassVar[str] = ""

    def severity(self, lost: float, most: Severity | None = None) -> Severity:
        if self.certainty == "heuristic":
            return "info"
        return ORDER.severity(lost, most or self.most)

    def made(
        self,
        where: Slice,
        said: str,
        *,
        lost: float,
        share: float,
        severity: Severity,
        slot: str,
        request: Request | None = None,
        template: Template | None = None,
        also: tuple[tuple[Slice, str], ...] = (),
    ) -> Finding:
        return Finding(
            code=self.code,
            name=self.name,
            slice=where,
            message=f"{said} {self.advice}".strip(),
            severity=severity,
            tokens_lost=round(lost),
            share=share,
            template=template or (request.template if request is not None else None),
            request=request,
            also=also,
            slot=slot,
        )


class HistoryRule(RequestRule):
    """A rule about something that is done to a list of messages."""

    kinds: ClassVar[tuple[HistoryOpKind, ...]]
    does: ClassVar[str]
    """What the operation does, as a sentence's beginning ("Messages are cut from the front")."""

    def catches(self, op: HistoryOp, request: Request) -> bool:
        return op.kind in self.kinds and request.api != "chat_template"

    def check(self, document: Document, context: Context) -> Iterator[Finding]:
        seen: set[Slice] = set()
        for request in document.requests:
            for op in request.history:
                if op.slice in seen or not self.catches(op, request):
                    continue
                seen.add(op.slice)
                yield self.of(op, request, context, len(seen))

    def of(self, op: HistoryOp, request: Request, context: Context, nth: int) -> Finding:
        share = self.share(op, context)
        tokens = max(price.whole(request, None, context), context.traffic.history_tokens)
        lost = tokens * share
        detail = f" ({op.detail})" if op.detail else ""
        said = f"{self.does}{detail}: about {tokens:,} tokens behind the change, {percent(share)}."
        return self.made(
            op.slice,
            said,
            lost=lost,
            share=share,
            severity=self.severity(lost, self.worst(op)),
            slot=f"{op.kind}#{nth}",
            request=request,
        )

    def share(self, op: HistoryOp, context: Context) -> float:
        return context.traffic.share("turn")

    def worst(self, op: HistoryOp) -> Severity:
        return self.most


class SettingRule(RequestRule):
    """A rule about arguments of a request."""

    names: ClassVar[frozenset[str]]

    def catches(self, setting: Setting, request: Request, context: Context) -> bool:
        raise NotImplementedError

    def says(self, setting: Setting, request: Request) -> str:
        raise NotImplementedError

    def check(self, document: Document, context: Context) -> Iterator[Finding]:
        for nth, request in enumerate(document.requests):
            for setting in request.settings:
                if setting.name not in self.names or not self.catches(setting, request, context):
                    continue
                share = context.traffic.share(setting.level)
                tokens = price.whole(request, None, context) or context.traffic.tool_tokens
                yield self.made(
                    setting.slice,
                    f"{self.says(setting, request)}: about {tokens:,} tokens, {percent(share)}.",
                    lost=tokens * share,
                    share=share,
                    severity=self.severity(tokens * share),
                    slot=f"{setting.name}#{nth}",
                    request=request,
                )


class ToolsRule(RequestRule):
    """A rule about how a request's tools come to be."""

    does: ClassVar[str]

    def share(self, request: Request, context: Context) -> float:
        raise NotImplementedError

    def catches(self, request: Request) -> bool:
        raise NotImplementedError

    def worst(self, request: Request, context: Context) -> Severity:
        return self.most

    def check(self, document: Document, context: Context) -> Iterator[Finding]:
        seen: set[Slice] = set()
        for nth, request in enumerate(document.requests):
            tools = request.tools
            if tools is None or tools.slice in seen or not self.catches(request):
                continue
            seen.add(tools.slice)
            share = self.share(request, context)
            tokens = price.whole(request, None, context)
            detail = f" ({tools.detail})" if tools.detail else ""
            said = (
                f"{self.does}{detail}, and tools stand before everything else: "
                f"about {tokens:,} tokens, {percent(share)}."
            )
            yield self.made(
                tools.slice,
                said,
                lost=tokens * share,
                share=share,
                severity=self.severity(tokens * share, self.worst(request, context)),
                slot=f"tools#{nth}",
                request=request,
            )
