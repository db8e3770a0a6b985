TRIAGE_PROMPT = """Here is a ticket from the queue:

{ticket}

You are the first level of a service desk for schools. Decide who gets the ticket: network,
accounts, devices or printing. Tickets about passwords are always accounts. Tickets that name a
room and a projector are devices. Tickets of the head of a school are urgent, all others are not.
Write the team on the first line and "urgent" on the second if it is. Add nothing else."""


def triage(llm, ticket):
    return llm.complete(TRIAGE_PROMPT.format(ticket=ticket))
