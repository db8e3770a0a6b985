import base64
import io

from openai import OpenAI
from PIL import Image

client = OpenAI()
PLAN = Image.open("floorplan.png")


def ask(question: str):
    buffer = io.BytesIO()
    PLAN.resize((1024, 768)).save(buffer, format="JPEG", quality=80)
    picture = base64.b64encode(buffer.getvalue()).decode()
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
                    {"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{picture}"}},
                    {"type": "text", "text": question},
                ],
            },
        ],
    )
