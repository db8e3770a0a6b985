from anthropic import Anthropic

client = Anthropic()


def rhyme(word):
    return client.messages.create(
        model="claude-opus-4-5",
        max_tokens=100,
        system=[
            {
                "type": "text",
                "text": "Find five words that rhyme. One a line, the shortest first.",
                "cache_control": {"type": "ephemeral"},
            }
        ],
        messages=[{"role": "user", "content": word}],
    )
