import base64
import io
from openai import OpenAI
from PIL import Image


def encode(path):
    img = Image.open(path)
    img.thumbnail((800, 800))
    buf = io.BytesIO()
    img.save(buf, format="JPEG")
    return base64.b64encode(buf.getvalue()).decode()


def ask(path, q):
    url = f"data:image/jpeg;base64,{encode(path)}"
    return OpenAI().chat.completions.create(
        model="gpt-4o",
        messages=[
            {"role": "system", "content": """You are the support assistant of a hardware shop. Answer politely and in full sentences.
Never promise a delivery date that is not in the order record. Quote prices with tax.
If a customer wants a refund, ask for the order number and the reason before anything else.
Escalate to a human when the customer is angry, mentions a lawyer, or asks three times for the same thing.
Do not discuss competitors. Do not invent product features. Keep answers under 120 words.
Use bullet points for steps, and plain prose for everything else. Close with an offer to help further."""},
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": q}]},
        ],
    )
