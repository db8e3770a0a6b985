"""How long the value of a template's variable lasts, judged by its name.

A dictionary and not a guess: a name that is not in it has no level, and its text stays where it is.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from agentkv.prompt.segment import stability_rank

_LEVELS: dict[str, str] = {
    "deploy": "version app_name product_name brand company company_name environment model model_name "
    "agent_name bot_name assistant_name tool_names",
    "tenant": "tenant tenant_id tenant_name org organization organisation org_id org_name workspace "
    "team team_name",
    "user": "user user_id user_name username name first_name last_name email user_email customer "
    "customer_id customer_name account account_id profile user_profile preferences "
    "user_preferences locale language timezone",
    "session": "session_id thread_id conversation_id cwd working_directory memory memories "
    "user_memory long_term_memory summary",
    "turn": "question query input user_input task context ctx docs documents retrieved "
    "retrieved_docs retrieved_documents search_results results passages sources message text",
    "call": "now time date datetime today current_time current_date current_datetime timestamp ts "
    "uuid request_id run_id trace_id message_id nonce random step iteration remaining_steps "
    "tokens_left",
}
_LEVEL_OF = {name: level for level, names in _LEVELS.items() for name in names.split()}
_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def level_of(
    name: str, given: Mapping[str, str] | None = None, fixed: Collection[str] = ()
) -> str | None:
    """The level of a variable: as `given`, `build` where it is `fixed`, by its name, or None."""
    if given and name in given:
        stability_rank(given[name])
        return given[name]
    if name in fixed:
        return "build"
    return _LEVEL_OF.get(_WORD.sub("_", name).lower())
