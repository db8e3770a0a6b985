"""What names suggest, and what they do not."""

from __future__ import annotations

import pytest

from agentkv.lint.names import guess, singular, words


@pytest.mark.parametrize(
    ("name", "level", "trait"),
    [
        ("now", "call", "clock"),
        ("currentTime", "call", "clock"),
        ("clock_time", "call", "clock"),
        ("wall_time", "call", "clock"),
        ("as_of_date", "call", "date"),
        ("system_time", "call", "clock"),
        ("date", "call", "date"),
        ("CURRENT_DATE", "call", "date"),
        ("todays_date", "call", "date"),
        ("runtime_info.date", "call", "date"),
        ("request_id", "call", "random_id"),
        ("trace_id", "call", "random_id"),
        ("conversation_id", "session", "random_id"),
        ("step_number", "call", "counter"),
        ("tokens_left", "call", "counter"),
        ("cwd", "session", "host_state"),
        ("git_status", "session", "host_state"),
        ("user_name", "user", "user_data"),
        ("userName", "user", "user_data"),
        ("user.name", "user", "user_data"),
        ("customer_tier", "user", "user_data"),
        ("name", "user", "user_data"),
        ("email", "user", "user_data"),
        ("timezone", "user", "user_data"),
        ("tenant_id", "tenant", "tenant_data"),
        ("memories", "user", "memory"),
        ("user_memories", "user", "memory"),
        ("question", "turn", "question"),
        ("enquiry", "turn", "question"),
        ("manuscript", "turn", "context"),
        ("lease_clause", "turn", "context"),
        ("pupil_level", "user", "user_data"),
        ("user_question", "turn", "question"),
        ('state["question"]', "turn", "question"),
        ("inputs.query", "turn", "question"),
        ("queries", "turn", "question"),
        ("input", "turn", "question"),
        ("context_str", "turn", "context"),
        ("documents", "turn", "context"),
        ("retrieved_chunks", "turn", "context"),
        ("webpage_content", "turn", "context"),
        ("doc.page_content", "turn", "context"),
        ("chat_history", "turn", "history"),
        ("messages", "turn", "history"),
        ("conversation_summary", "turn", "summary"),
        ("agent_scratchpad", "turn", "scratchpad"),
        ("screenshot", "turn", "image"),
        ("few_shot_examples", "deploy", "examples"),
        ("format_instructions", "deploy", "schema"),
        ("tool_descriptions", "deploy", "tools"),
        ("get_user_name", "user", "user_data"),
        ("format_docs", "turn", "context"),
    ],
)
def test_says(name: str, level: str, trait: str) -> None:
    found, traits = guess(name)
    assert found == level
    assert trait in traits


@pytest.mark.parametrize(
    "name",
    [
        "assistant_name",
        "app_name",
        "model",
        "version",
        "max_results",
        "number_of_queries",
        "time_limit",
        "system_prompt",
        "guidelines",
        "CODEBLOCK_FORMATTING_INSTRUCTIONS",
    ],
)
def test_is_fixed_for_a_deployment(name: str) -> None:
    assert guess(name)[0] == "deploy"


@pytest.mark.parametrize(
    "name",
    [
        "",
        "x",
        "n",
        "soul",
        "brand",
        "company_name",
        "language",
        "tone",
        "due_date",
        "start_time",
        "execution_time",
        "date_format",
        "question_format",
        "context_window",
        "has_question",
        "is_user_logged_in",
        "history_enabled",
        "tool.name",
        "tool_name",
        "section_name",
        "section_content",
        "event.date",
        "step",
        "hash",
        "token",
        "output_dir",
        "skills_section",
        "memory_tool_section",
        "in_progress",
        "DebugModal",
        "getAuthToken",
    ],
)
def test_says_nothing(name: str) -> None:
    assert guess(name)[0] == "unknown"


def test_words_and_plurals() -> None:
    assert (
        words("userQuestion")
        == words("USER_QUESTION")
        == words("user-question2")
        == ("user", "question")
    )
    assert words("HTTPServer_name") == ("http", "server", "name")
    said = {
        "queries": "query",
        "boxes": "box",
        "classes": "class",
        "names": "name",
        "status": "status",
        "analysis": "analysis",
    }
    assert {w: singular(w) for w in said} == said
