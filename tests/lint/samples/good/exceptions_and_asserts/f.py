from datetime import datetime


def check(user, limit, used):
    if used > limit:
        raise ValueError(
            f"{datetime.now()}: user {user.name} ({user.id}) has used {used} of {limit} tokens. You must "
            "wait until the first of the next month, or ask your administrator for a higher limit. "
            "Requests that were accepted already will be answered. Do not send them again, since "
            "they would be counted twice. You can see what was used on the page of your account."
        )
    assert used >= 0, f"the counter of {user.name} is {used} at {datetime.now()}, which cannot be"
