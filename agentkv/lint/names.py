"""Levels and traits that names suggest. Used where the code shows nothing better, and marked so.

A name is split into words (`userQuestion`, `user_question`, `runtime_info.date`), and its *last* word
decides, as in English: a `user_question` is a question, a `question_format` is a format. Words that
say nothing of what is inside (`_text`, `_list`, `_section`) are dropped first. Where nothing fits
the level is `unknown`; a name is never guessed into something that it may not be.
"""

from __future__ import annotations

import re
from functools import lru_cache

from agentkv.lint.template import Level, Trait

Guess = tuple[Level, frozenset[Trait]]

UNKNOWN: Guess = ("unknown", frozenset())


def _table(level: Level, trait: Trait | None, words: str) -> dict[str, Guess]:
    traits: frozenset[Trait] = frozenset({trait}) if trait else frozenset()
    return dict.fromkeys(words.split(), (level, traits))


# Whole names, words joined by "_". They are asked first.
_WHOLE: dict[str, Guess] = {
    **_table(
        "call",
        "clock",
        """now time timestamp datetime clock current_time system_time local_time utc_time time_now
        current_datetime current_timestamp date_time date_and_time time_of_day utc_now utcnow
        now_utc now_iso iso_now iso_timestamp current_date_time todays_datetime unix_time epoch
        server_time present_time local_datetime time_string current_hour clock_time wall_clock wall_time
        moment instant current_moment""",
    ),
    **_table(
        "call",
        "date",
        """date today current_date todays_date today_date system_date local_date date_today
        current_day date_string datestring this_date utc_date day_of_week current_year
        current_month weekday today_s_date date_now present_date as_of as_of_date""",
    ),
    **_table(
        "call",
        "random_id",
        """uuid guid nonce request_id req_id run_id trace_id span_id correlation_id message_id
        invocation_id call_id tool_call_id transaction_id execution_id event_id job_id rid
        random_id unique_id uuid4 idempotency_key cache_buster cachebuster random_string
        random_token random_suffix""",
    ),
    **_table("call", "random_content", "random_greeting random_seed random_number random_fact"),
    **_table(
        "call",
        "counter",
        """step_number step_index step_count current_step iteration current_iteration
        iteration_number iteration_count attempt attempt_number retry_count turn_number turn_count
        turn_index round_number counter tokens_left tokens_remaining tokens_used token_usage
        remaining_tokens remaining_steps steps_left steps_remaining remaining_iterations
        iterations_left remaining_turns turns_left turns_remaining request_number request_count
        budget_left remaining_budget elapsed_time elapsed elapsed_seconds time_left time_elapsed
        time_remaining remaining_time step_num step_no call_count loop_count uptime""",
    ),
    **_table(
        "session",
        "host_state",
        """cwd working_dir working_directory current_dir current_directory work_dir workdir
        hostname host_name pid process_id temp_dir tmp_dir git_status git_branch git_diff
        branch_name current_branch repo_name repo_directory repo_dir repo_path repo_root
        repository_name repository_info repo_info repo workspace_path workspace_dir
        workspace_root project_path project_dir project_root directory_listing file_tree
        runtime_info directory_structure repo_map repo_structure""",
    ),
    **_table(
        "user",
        "user_data",
        """name user username user_name userid uid email email_address user_email full_name fullname
        first_name firstname last_name lastname display_name nickname given_name surname phone
        phone_number customer patient employee student caller client_name client_id
        persona_of_user about_user about_me user_info user_profile user_preferences user_context
        locale timezone time_zone tz profile user_language preferred_language user_location bio birthday
        gender user_age custom_instructions user_instructions user_rules""",
    ),
    **_table(
        "tenant",
        "tenant_data",
        "tenant tenant_id tenant_name org_id organization_id "
        "organisation_id workspace_id account_id org_name tenant_config team_id team_name",
    ),
    **_table(
        "unknown",
        "tenant_data",
        "brand brand_name company company_name organization "
        "organisation organization_name organisation_name store_name shop_name restaurant_name",
    ),
    **_table(
        "session",
        "random_id",
        "session_id thread_id conversation_id chat_id session sessionid threadid call_sid",
    ),
    **_table("user", "memory", "user_memory user_memories recall recalled remembered user_facts"),
    **_table(
        "turn",
        "question",
        """question query input task prompt message utterance topic ask instruction_input
        user_input user_query user_question user_message user_prompt user_request user_task
        user_text request goal objective user_goal problem claim human_input
        human_message last_message latest_message new_message current_message current_question
        current_query search_query prompt_text input_text text_input ticket q user_msg usr_msg
        inquiry enquiry wish""",
    ),
    **_table(
        "turn",
        "context",
        """data text content body doc page code diff patch article passage email_thread
        email_body email_content subject weather news search_results results evidence
        knowledge kb rag_context retrieved_context retrieval observation tool_result tool_results
        tool_output tool_response file_content file_contents selected_code selection code_snippet
        snippet clipboard feedback answer response output error error_message exception
        traceback stack_trace stacktrace result html transcript review
        subtopics existing_headers findings research_brief draft essay paragraph sentence email_text
        command_output letter contract invoice resume cv note notes story comment tweet memo filing
        report context_data input_data source_text source_documents reference_text
        hits matches issue_body issue_text pr_description commit_message job_description
        product_description post blog_post complaint pull_request manuscript abstract clause lease
        excerpt chapter statute verdict ruling testimony interview lyrics caption headline
        changelog release_notes minutes symptoms issue proposal""",
    ),
    **_table(
        "turn",
        None,
        """file_name filename file_path filepath changed_file current_file open_file active_file
        selected_file target_file source_file edited_file modified_file""",
    ),
    **_table(
        "turn",
        "history",
        """messages history chat_history conversation conversation_history dialog dialogue
        message_history dialogue_history previous_messages past_messages prior_messages turns
        recent_messages chat_log conversation_log previous_conversation conversation_so_far
        prev_messages chat_messages log chat recent_history msgs prior_turns""",
    ),
    **_table(
        "turn",
        "summary",
        """summary conversation_summary running_summary chat_summary history_summary
        previous_summary existing_summary prior_summary summary_so_far""",
    ),
    **_table(
        "turn",
        "scratchpad",
        """agent_scratchpad scratchpad intermediate_steps past_steps previous_steps thoughts
        trajectory observations actions completed_steps action_history steps_so_far
        steps_taken""",
    ),
    **_table("turn", "image", "image images screenshot screenshots photo photos image_url picture"),
    **_table(
        "deploy",
        "schema",
        """format_instructions output_format output_schema json_schema response_schema schema
        response_format_instructions output_instructions formatting_instructions
        schema_json format_instruction response_template""",
    ),
    **_table(
        "deploy",
        "tools",
        """tools tool_names tool_list tool_descriptions tool_description available_tools
        tools_info tool_schemas functions function_definitions tool_definitions tools_json
        tool_specs toolset rendered_tools tool_docs""",
    ),
    **_table(
        "deploy",
        "examples",
        """examples few_shot few_shots fewshot fewshots few_shot_examples fewshot_examples
        fewshotexamples demos demonstrations shots example_conversations example_dialogues""",
    ),
    **_table(
        "deploy",
        None,
        """model model_name model_id version app_version environment env config settings region
        base_url api_url platform platform_name os os_name os_version app_name application_name
        bot_name assistant_name agent_name ai_name product_name service_name system_name
        instructions rules guidelines policy policies guidance system_prompt base_prompt preamble
        commit commit_sha git_sha build_hash build_id constitution knowledge_cutoff cutoff_date
        training_cutoff release_date ide_name shell""",
    ),
}

# Last words, singular. Asked when the whole name is not known.
_HEAD: dict[str, Guess] = {
    **_table("call", "random_id", "uuid guid nonce"),
    **_table("call", "clock", "timestamp"),
    **_table("turn", "question", "question query utterance"),
    **_table(
        "turn",
        "context",
        "context document doc passage chunk snippet transcript webpage article source observation "
        "manuscript excerpt clause letter contract invoice essay complaint",
    ),
    **_table("turn", "history", "history"),
    **_table("turn", "summary", "summary"),
    **_table("turn", "scratchpad", "scratchpad trajectory"),
    **_table("turn", "image", "screenshot"),
    **_table("user", "memory", "memory"),
    **_table("user", "user_data", "username"),
    **_table("deploy", "schema", "schema"),
    **_table("deploy", None, "instruction guideline guidance reminder rule policy preamble"),
    **_table("turn", "question", "topic"),
}

# Endings of two words that only modify what stands before them.
_TIMES = frozenset(
    [
        "current",
        "system",
        "local",
        "utc",
        "now",
        "today",
        "present",
        "server",
        "iso",
        "unix",
        "clock",
        "wall",
    ]
)
_NOT_TIMES = frozenset(["time", "date", "day", "datetime", "year", "hour"])

_PERSON = frozenset(
    [
        "user",
        "customer",
        "patient",
        "employee",
        "student",
        "member",
        "guest",
        "candidate",
        "applicant",
        "caller",
        "visitor",
        "subscriber",
        "passenger",
        "traveler",
        "traveller",
        "borrower",
        "learner",
        "pupil",
        "claimant",
        "policyholder",
        "shopper",
        "buyer",
        "resident",
        "attendee",
    ]
)
_TENANT = frozenset(["tenant"])
_SESSION = frozenset(["session"])
_RETRIEVED = frozenset(["retrieved", "retrieval", "searched", "fetched"])
_REMAINING = frozenset(["remaining", "left", "elapsed"])
_CONFIG = frozenset(["max", "min", "maximum", "minimum", "default", "num"])
_CONFIG_TAIL = frozenset(["limit", "cutoff", "version", "locale_default", "threshold"])

_FLAG_HEAD = frozenset(
    [
        "is",
        "has",
        "have",
        "use",
        "using",
        "enable",
        "enabled",
        "disable",
        "show",
        "should",
        "can",
        "include",
        "no",
        "with",
    ]
)
_FLAG_TAIL = frozenset(["enabled", "disabled", "mode", "flag", "available", "allowed"])

_HOLLOW = frozenset(
    [
        "text",
        "txt",
        "str",
        "string",
        "list",
        "block",
        "section",
        "content",
        "contents",
        "value",
        "values",
        "json",
        "xml",
        "md",
        "markdown",
        "formatted",
        "rendered",
        "joined",
        "body",
        "part",
        "parts",
        "segment",
        "details",
        "description",
        "var",
        "variable",
        "param",
        "arg",
        "placeholder",
        "html",
        "raw",
        "final",
        "full",
        "the",
        "my",
    ]
)

# The same in front of a name, and verbs, for functions that are called for a value.
_ADORNED = frozenset(
    [
        "the",
        "my",
        "raw",
        "full",
        "final",
        "formatted",
        "rendered",
        "joined",
        "serialized",
        "serialised",
        "get",
        "fetch",
        "load",
        "build",
        "make",
        "render",
        "create",
        "compute",
        "read",
        "generate",
        "as",
        "to",
    ]
)

_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")
_DOTTED = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def words(name: str) -> tuple[str, ...]:
    """`userQuestion`, `user_question` and `USER_QUESTION` -> `("user", "question")`."""
    return tuple(w.lower() for w in _WORD.findall(name) if not w.isdigit())


def singular(word: str) -> str:
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if word.endswith(("sses", "shes", "ches", "xes")):
        return word[:-2]
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


@lru_cache(maxsize=20_000)
def guess(name: str) -> Guess:
    """Level and traits that a variable's name suggests; `unknown` and none where nothing fits.

    A dotted or subscripted name (`runtime_info.date`, `state["question"]`) is judged by its last
    part, and by the part before that where the last one says nothing.
    """
    parts = [w for p in _DOTTED.findall(name.strip()) if (w := words(p))]
    if parts and parts[0] in (("self",), ("cls",)):
        parts = parts[1:]
    for at in range(len(parts) - 1, -1, -1):
        found = _of(parts[at])
        if at and found is not None and len(parts[at]) == 1 and parts[at][0] in _ATTRIBUTES:
            found = _owned(parts[at - 1], parts[at][0]) or UNKNOWN
        if found is not None:
            return found
        if len(parts) - at >= 2:
            break
    return UNKNOWN


# Attributes that belong to whatever they are an attribute of: `tool.name` is no person's name.
_ATTRIBUTES = frozenset(
    [
        "name",
        "email",
        "time",
        "date",
        "text",
        "content",
        "body",
        "input",
        "output",
        "data",
        "id",
        "message",
        "result",
    ]
)


def _owned(owner: tuple[str, ...], attribute: str) -> Guess | None:
    """`user.name` is the user's, `doc.content` the document's, `event.date` nobody knows whose."""
    whole = _of(owner)
    if attribute in ("time", "date") and owner[-1] in (
        "info",
        "runtime",
        "context",
        "state",
        "ctx",
        "env",
        "data",
    ):
        return _of((attribute,))
    if owner[-1] in (
        "state",
        "inputs",
        "input",
        "request",
        "args",
        "kwargs",
        "params",
        "vars",
        "data",
        "values",
    ):
        return _of((attribute,))
    if set(owner) & _PERSON or owner[-1] == "profile":
        return "user", frozenset({"user_data"})
    return whole


def _of(found: tuple[str, ...]) -> Guess | None:
    if found[0] in _FLAG_HEAD or (len(found) > 1 and found[-1] in _FLAG_TAIL):
        return None
    whole = "_".join(found)
    if whole in _WHOLE:
        return _WHOLE[whole]
    ones = tuple(singular(w) for w in found)
    # A plural may say something else than its singular (`messages`, `steps`), never the other way.
    if "_".join(ones) in _WHOLE and found[-1] not in (
        "times",
        "names",
        "dates",
        "models",
        "versions",
    ):
        return _WHOLE["_".join(ones)]
    if len(found) > 1 and found[-1] in _HOLLOW:
        return _of(found[:-1])
    if len(found) > 1 and found[0] in _ADORNED:
        return _of(found[1:])
    return _compound(found, ones)


def _compound(found: tuple[str, ...], ones: tuple[str, ...]) -> Guess | None:
    first, last = ones[0], ones[-1]
    if found[0] in _CONFIG or last in _CONFIG_TAIL or ones[:2] == ("number", "of"):
        return "deploy", frozenset()
    if last in ("time", "date", "datetime") and any(w in _TIMES for w in found[:-1]):
        return "call", frozenset({"date" if last == "date" else "clock"})
    if last in _NOT_TIMES:  # a due_date, a start_time: of what, nobody knows
        return None
    if found[0] in _REMAINING or found[-1] in _REMAINING:
        return "call", frozenset({"counter"})
    if first in _RETRIEVED:
        return "turn", frozenset({"context"})
    if last in _HEAD:
        return _HEAD[last]
    if ones[-2:] == ("search", "result") or last == "document":
        return "turn", frozenset({"context"})
    if first in _TENANT:
        return "tenant", frozenset({"tenant_data"})
    if first in _PERSON or found[-2:] in (("user", "id"), ("user", "name")):
        return "user", frozenset({"user_data"})
    if first in _SESSION:
        return "session", frozenset()
    if last in ("email", "preference") and len(found) == 2:
        return "user", frozenset({"user_data"})
    return None
