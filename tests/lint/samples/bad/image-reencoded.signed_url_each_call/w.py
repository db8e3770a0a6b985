import boto3
from openai import OpenAI

s3 = boto3.client("s3")
client = OpenAI()


def ask(question):
    url = s3.generate_presigned_url(
        "get_object", Params={"Bucket": "plans", "Key": "harbour.png"}, ExpiresIn=600
    )
    return client.chat.completions.create(
        model="gpt-4o",
        messages=[
            {
                "role": "user",
                "content": [
                    {"type": "image_url", "image_url": {"url": url}},
                    {"type": "text", "text": question},
                ],
            }
        ],
    )
