"""KV112 image-reencoded."""

from __future__ import annotations

from agentkv.lint.context import Context
from agentkv.lint.price import ORDER, Cost, nominal
from agentkv.lint.rules._hole import HoleRule, percent, who
from agentkv.lint.spot import Spot


class ImageReencoded(HoleRule):
    """An image is resized, encoded or signed again for each call.

    ## What it catches
    `b64encode` of a picture that was resized or saved for this call, and links that are signed anew.

    ## Why it costs
    Providers compare the bytes of an image (or its link). An encoder does not always write the same
    bytes, and a signed link never is the same: the image and everything behind it is computed again
    in each turn, although nobody changed the picture.

    ## Bad
    ```python
    url = bucket.generate_presigned_url("get_object", Params=params, ExpiresIn=300)
    messages.append({"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]})
    ```

    ## Good
    ```python
    data = encoded_once(picture)  # kept beside the message, and sent again as it is
    messages.append({"role": "user", "content": [{"type": "image_url", "image_url": {"url": data}}]})
    ```

    ## When it is wrong
    When each call brings a new picture (a screenshot of this turn).
    """

    code = "KV112"
    name = "image-reencoded"
    rank = 15
    most = "warning"

    def catches(self, spot: Spot, context: Context) -> bool:
        return bool(spot.traits & {"reencoded", "signed_url"})

    def cost(self, spot: Spot, context: Context) -> Cost | None:
        image = nominal(spot.hole, context)
        part = context.traffic.share("turn")
        lost = (spot.behind + image) * part
        return Cost(spot.behind + image, 0, part, ORDER.severity(lost, self.most))

    def message(self, spot: Spot, cost: Cost, context: Context) -> str:
        how = "signed anew" if "signed_url" in spot.traits else "encoded again"
        return (
            f"{who(spot)} is {how} for each call: the image and what follows, about "
            f"{cost.behind:,} tokens; {percent(cost.share)}. Encode it once and send the same bytes."
        )
