from anthropic import Anthropic

RULES = """You write invitations for a club. An invitation has a day, a place and a reason.
Address everybody by first name. Mention who brings what. Do not use exclamation marks.
End with the telephone number of the host and the day by which people have to answer."""
SYSTEM_ROLES = {"host", "treasurer", "secretary", "coach"}


def invite(event):
    names = "\n".join({role.title() for role in SYSTEM_ROLES})
    return Anthropic().messages.create(
        model="claude-haiku-4-5",
        max_tokens=300,
        system=f"Roles in the club:\n{names}\n\n{RULES}",
        messages=[{"role": "user", "content": event}],
    )
