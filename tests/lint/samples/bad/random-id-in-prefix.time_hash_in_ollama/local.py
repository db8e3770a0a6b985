import hashlib
import time

import ollama

STYLE = """You describe pictures of birds for people who cannot see them.
Begin with the posture, then the colours from head to tail, then what is around the bird.
Say what the bird is doing. Name the species last, and only if you are sure.
Compare sizes with things that fit into a hand. Write four to six sentences."""


def describe(picture):
    nonce = hashlib.sha256(str(time.time()).encode()).hexdigest()[:12]
    return ollama.chat(
        model="llava",
        messages=[
            {"role": "system", "content": f"[{nonce}] {STYLE}"},
            {"role": "user", "content": "Describe this bird.", "images": [picture]},
        ],
    )
