import time

import anthropic

GUIDE = (
    "You sort incoming incident reports for a hosting company. "
    "Give each report one of four classes: outage, degradation, question, noise. "
    "An outage is anything that keeps more than one customer from working. "
    "A degradation is slow or partial. Questions need no engineer on call. "
    "Noise is everything that a monitoring script sent without a human cause. "
    "Write the class in capitals on the first line and your reasons below it. "
    "Do not guess causes, and never contact customers yourself."
)


def classify(report):
    client = anthropic.Anthropic()
    system = "Current time: %s\n\n%s" % (time.strftime("%H:%M:%S"), GUIDE)
    return client.messages.create(
        model="claude-sonnet-4-5",
        max_tokens=300,
        system=system,
        messages=[{"role": "user", "content": report}],
    )
