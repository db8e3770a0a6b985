import csv
import os
import random
import socket
import uuid
from datetime import datetime
from pathlib import Path

from openai import OpenAI

SYSTEM = """You turn tables into three sentences for a weekly report.
Name the largest change first. Round to full numbers. Do not speculate about causes.
Write for readers who have not seen the table and will not look at it."""


def export(rows):
    name = f"report-{datetime.now():%Y%m%d-%H%M%S}-{socket.gethostname()}-{os.getpid()}.csv"
    with Path(name).open("w", newline="") as file:
        writer = csv.writer(file)
        for row in random.sample(rows, len(rows)):
            writer.writerow([uuid.uuid4(), datetime.now().isoformat(), *row])
    reply = OpenAI().chat.completions.create(
        model="gpt-4o-mini",
        messages=[
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": "\n".join(map(str, rows))},
        ],
        user=f"export-{uuid.uuid4()}",
        extra_headers={"Idempotency-Key": str(uuid.uuid4())},
    )
    return reply.choices[0].message.content
