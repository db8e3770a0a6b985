import logging
import uuid

from openai import AsyncOpenAI

client = AsyncOpenAI()
log = logging.getLogger(__name__)
POLICY = "\n".join(
    [
        "You review adverts before they are printed in a regional newspaper.",
        "Reject anything that promises a cure, a guaranteed profit or a secret.",
        "Prices have to include taxes; discounts have to name the former price.",
        "Adverts for alcohol must not show or address anybody below eighteen.",
        "Answer with ACCEPT or REJECT and a single sentence of explanation.",
    ]
)


async def review(advert: str):
    request_id = str(uuid.uuid4())
    log.info("review %s of %d characters", request_id, len(advert))
    return await client.chat.completions.create(
        model="gpt-4.1-mini",
        messages=[{"role": "system", "content": POLICY}, {"role": "user", "content": advert}],
        metadata={"request_id": request_id},
        extra_headers={"X-Request-Id": request_id},
    )
