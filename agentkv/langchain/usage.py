"""A reply as LangChain's usage and metadata. Counts are whole numbers, ratios stay out of usage."""

from __future__ import annotations

from typing import Any, Literal

from langchain_core.messages.ai import InputTokenDetails, UsageMetadata

from agentkv.client.base import ChatReply
from agentkv.langchain.price import Pricing
from agentkv.report.report import KEY, CacheReport

PROVIDER = "agentkv"
ReportDetail = Literal["summary", "full", "off"]


def usage_metadata(report: CacheReport) -> UsageMetadata:
    """`input_tokens` is the total; its details are parts of it that never overlap. 0 is a number;
    where the server does not say what it reused, there are no details at all."""
    usage = UsageMetadata(
        input_tokens=report.prompt_tokens,
        output_tokens=report.completion_tokens,
        total_tokens=report.prompt_tokens + report.completion_tokens,
    )
    if report.cached_known:
        usage["input_token_details"] = InputTokenDetails(
            cache_read=report.cached_tokens, cache_creation=report.created_tokens
        )
    return usage


def token_usage(report: CacheReport) -> dict[str, Any]:
    """`llm_output["token_usage"]`, in OpenAI's shape."""
    usage: dict[str, Any] = {
        "prompt_tokens": report.prompt_tokens,
        "completion_tokens": report.completion_tokens,
        "total_tokens": report.prompt_tokens + report.completion_tokens,
    }
    if report.cached_known:
        usage["prompt_tokens_details"] = {"cached_tokens": report.cached_tokens}
    return usage


def llm_output(reply: ChatReply) -> dict[str, Any]:
    return {"token_usage": token_usage(reply.report), "model_name": reply.model}


def combined(outputs: list[dict[str, Any] | None]) -> dict[str, Any]:
    """The outputs of a batch as one: sums of tokens."""
    total: dict[str, Any] = {}
    name = ""
    for output in outputs:
        if not output:
            continue
        name = output.get("model_name") or name
        for key, value in (output.get("token_usage") or {}).items():
            if isinstance(value, dict):
                inner = total.setdefault(key, {})
                for k, v in value.items():
                    inner[k] = inner.get(k, 0) + v
            else:
                total[key] = total.get(key, 0) + value
    return {"token_usage": total, "model_name": name} if total else {}


def metadata(
    reply: ChatReply,
    report: CacheReport,
    detail: ReportDetail,
    price: Pricing | None = None,
) -> dict[str, Any]:
    """`response_metadata` of an answer. On the last chunk only: merging chunks joins strings.

    Costs stand here and not in usage, which takes whole numbers only. `tool_choice` is there where
    the beginning of a call was weighed against text: both log-probabilities.
    """
    out: dict[str, Any] = {
        "model_name": reply.model,
        "model_provider": PROVIDER,
        "finish_reason": reply.finish_reason,
        "id": reply.id,
        # Core adds this to a whole answer by itself, and to a streamed one it does not.
        "token_usage": token_usage(report),
    }
    first = reply.choices[0] if reply.choices else None
    if first is not None and first.logprobs is not None:
        out["logprobs"] = dict(first.logprobs)
    if price is not None:
        out["cost"] = price.cost(report)
    if detail != "off":
        out[KEY] = report.to_dict(detail)
        if first is not None and first.opener_scores is not None:
            opener, text = (round(score, 4) for score in first.opener_scores)
            out[KEY]["tool_choice"] = {"policy": "score", "opener": opener, "text": text}
    return out
