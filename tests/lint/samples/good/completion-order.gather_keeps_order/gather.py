import asyncio

from openai import AsyncOpenAI

TASK = """Write one weather report out of the reports of several stations.
Name the region, not the station. Where stations differ by more than three degrees, give the
range. Wind is given in the words of the Beaufort scale. Rain is given in litres.
Leave out stations that report nothing. Do not write about yesterday."""


async def report(stations, fetch):
    parts = await asyncio.gather(*(fetch(s) for s in stations))
    return await AsyncOpenAI().responses.create(
        model="gpt-4.1", instructions=TASK, input="Reports:\n" + "\n".join(parts)
    )
