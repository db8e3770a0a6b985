import uuid

from openai import AsyncOpenAI

client = AsyncOpenAI()
POLICY = "\n".join(
    [
        "You review adverts before they are printed in a regional newspaper.",
        "Reject anything that promises a cure, a guaranteed profit or a secret.",
        "Prices have to include taxes; discounts have to name the former price.",
        "Adverts for alcohol must not show or address anybody below eighteen.",
        "Job adverts name the place of work and the form of employment.",
        "Answer with ACCEPT or REJECT and a single sentence of explanation.",
    ]
)


async def review(advert: str):
    head = "Request " + str(uuid.uuid4()) + "\n"
    return await client.chat.completions.create(
        model="gpt-4.1-mini",
        messages=[{"role": "system", "content": head + POLICY}, {"role": "user", "content": advert}],
    )
