from contextlib import contextmanager


@contextmanager
def quiet(tokenizer):
    yield from _switched(tokenizer)


def _switched(tokenizer):
    yield tokenizer


def render(tokenizer, conversations):
    for conversation in conversations:
        for message in conversation:
            new_content = [{"type": "text", "text": message["content"]}]
            message["content"] = new_content
    with quiet(tokenizer) as one:
        return one.apply_chat_template(conversations, tokenize=False)
