"""Few-shot classification: reviews in Korean, a label each, and the examples computed once.

    python examples/sentiment_ko.py [--quick]

The few examples are most of each prompt and the same in all of them. In one `batch` the first
review computes them, the others wait for those pages and compute their own words only. The label
comes out of a grammar: whatever the model makes of a text, the answer is one of three words. (The
embedded model was not trained on Korean, so do not ask it what it thinks of a film.)
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Literal

from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from pydantic import BaseModel, Field
from rich import print

from agentkv import ChatAgentKV, cache_report, static

RULES = "다음 리뷰의 감정을 긍정, 부정, 중립 중 하나로 분류하세요."

EXAMPLES = [
    ("이 영화는 정말 재미있어요. 또 보고 싶어요!", "긍정"),
    ("배송이 너무 늦고 상자가 찢어져 있었어요.", "부정"),
    ("크기는 설명과 같습니다.", "중립"),
    ("직원들이 친절하고 음식이 맛있었어요.", "긍정"),
    ("두 번 쓰고 고장 났어요. 돈이 아까워요.", "부정"),
    ("어제 주문했고 오늘 받았습니다.", "중립"),
]
REVIEWS = [
    ("배우들의 연기가 훌륭하고 음악도 좋았어요.", "긍정"),
    ("방이 더럽고 시끄러워서 잠을 못 잤어요.", "부정"),
    ("색깔은 검은색입니다.", "중립"),
    ("가격도 싸고 품질도 좋아요. 추천합니다!", "긍정"),
    ("환불을 요청했지만 답장이 없어요.", "부정"),
    ("가게는 역 앞에 있습니다.", "중립"),
]


class Sentiment(BaseModel):
    """The sentiment of a review."""

    label: Literal["긍정", "부정", "중립"] = Field(description="긍정, 부정 또는 중립")


def main(argv: Sequence[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--model", default="smollm2-135m")
    options.add_argument("--quick", action="store_true", help="three reviews")
    given = options.parse_args(argv)
    reviews = REVIEWS[:3] if given.quick else REVIEWS

    shots = [SystemMessage([static(RULES)])]
    for text, label in EXAMPLES:
        shots += [HumanMessage(text), AIMessage(json.dumps({"label": label}, ensure_ascii=False))]
    with ChatAgentKV(model=given.model, max_tokens=32) as llm, cache_report() as report:
        classify = llm.with_structured_output(Sentiment)
        found = classify.batch([[*shots, HumanMessage(text)] for text, _ in reviews])
        for (text, human), answer in zip(reviews, found, strict=True):
            print(f"{text}  [bold]{answer.label}[/bold] [dim](a person says {human})[/dim]")
        print(report.table(title=f"{len(EXAMPLES)} examples, {len(reviews)} reviews"))


if __name__ == "__main__":
    main()
