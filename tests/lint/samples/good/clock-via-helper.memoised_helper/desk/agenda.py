from openai import OpenAI

from desk.clockwork import release_day

BODY = """You prepare the agenda of a weekly meeting.
Collect the topics that were sent in, join those that belong together,
and order them so that people who need only one topic can leave early.
Give each topic a length; the whole must not be longer than fifty minutes.
Put decisions before reports and reports before news.
Leave ten minutes at the end for whatever comes up."""


def agenda(topics: str):
    return OpenAI().chat.completions.create(
        model="gpt-4o",
        messages=[
            {"role": "system", "content": f"Running since {release_day()}.\n{BODY}"},
            {"role": "user", "content": topics},
        ],
    )
