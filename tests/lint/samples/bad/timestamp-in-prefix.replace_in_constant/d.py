import datetime

from openai import AsyncOpenAI

TEXT = """Clock: @@NOW@@
You announce trains in a small station, in two languages, the local one first.
Give the number of the train, its destination, the platform and the delay in minutes.
Delays below three minutes are not announced. Say sorry once, not twice.
If a train is cancelled, name the next one and its platform in the same announcement.
Do not explain causes, and do not use abbreviations."""


async def announce(event):
    system = TEXT.replace("@@NOW@@", datetime.datetime.now().strftime("%H:%M:%S"))
    return await AsyncOpenAI().chat.completions.create(
        model="gpt-4o-mini",
        messages=[{"role": "system", "content": system}, {"role": "user", "content": event}],
    )
