import json
import uuid
from datetime import datetime, timezone

from openai import OpenAI

client = OpenAI()
SYSTEM = """You plan the day of a delivery driver. Ask the tools for the time, the traffic and the
orders. Do not plan more than nine hours. Put fresh goods first. Leave the depot with a full tank.
Write down a reason when an order has to wait until tomorrow."""
TOOLS = [{"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}}]


def run(question):
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]
    while True:
        answer = client.chat.completions.create(
            model="gpt-4.1", messages=messages, tools=TOOLS
        ).choices[0].message
        messages.append(answer)
        if not answer.tool_calls:
            return answer.content
        for call in answer.tool_calls:
            result = {"time": datetime.now(timezone.utc).isoformat(), "trace": str(uuid.uuid4())}
            messages.append(
                {"role": "tool", "tool_call_id": call.id, "content": json.dumps(result)}
            )
