from concurrent.futures import ThreadPoolExecutor, as_completed

from openai import OpenAI

TASK = """Write one weather report out of the reports of several stations.
Name the region, not the station. Where stations differ by more than three degrees, give the
range. Wind is given in the words of the Beaufort scale. Rain is given in litres.
Leave out stations that report nothing. Do not write about yesterday.
Close with one sentence about the coming night and one about the sea."""


def report(stations, fetch):
    parts = []
    with ThreadPoolExecutor() as pool:
        for done in as_completed([pool.submit(fetch, s) for s in stations]):
            parts.append(done.result())
    prompt = "Reports:\n" + "\n".join(parts) + "\n\n" + TASK
    return OpenAI().responses.create(model="gpt-4.1", input=prompt)
