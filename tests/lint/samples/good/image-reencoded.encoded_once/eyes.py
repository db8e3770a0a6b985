import base64
from pathlib import Path

from openai import OpenAI

client = OpenAI()
PICTURE = base64.b64encode(Path("floorplan.jpg").read_bytes()).decode()


def ask(question: str):
    return client.chat.completions.create(
        model="gpt-4o",
        messages=[
            {
                "role": "system",
                "content": "You answer questions about the floor plan of a factory. Name halls by "
                "their letter and gates by their number. Distances are in metres. Escape routes "
                "are green, fire doors red, and lifts may not be used in a fire.",
            },
            {
                "role": "user",
                "content": [
                    {"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{PICTURE}"}},
                    {"type": "text", "text": question},
                ],
            },
        ],
    )
