import os

from litellm import completion

REGION = os.environ["REGION"]
BRAND = os.getenv("BRAND_NAME", "Northwind")
SYSTEM = f"""You write the morning summary of the server rooms of {BRAND} in {REGION}.
Use the measurements that you are given and invent none.
Name each machine whose temperature was above 70 degrees for more than ten minutes.
Name each disk with new reallocated sectors and each fan below its minimum speed.
Group the findings by rack, the most serious rack first.
Write in full sentences for a reader who starts the shift and has five minutes."""


def summarise(measurements: str):
    print(f"worker {os.getpid()} summarises {len(measurements)} characters")
    return completion(
        model="gpt-4o-mini",
        messages=[{"role": "system", "content": SYSTEM}, {"role": "user", "content": measurements}],
    )
