"""What a prompt looks like, and what only looks like one."""

from __future__ import annotations

import re

# A file with none of these words has no prompts; it is not even parsed.
_WORDS = tuple(
    """import openai|from openai|openai.|openai(|anthropic|litellm|ollama|langchain|langgraph|
    llama_index|haystack|dspy|genai|bedrock|from mistralai|import cohere|groq|completions|
    system_message|systemmessage|system_prompt|you are a |you are an |you are the |you are {|
    you are now|you are my |you're a |your task|instructions =|instructions=|_instructions|
    "role"|'role'|chatbot|agentkv:|.converse(|generate_content|messages=|.chat(|ai agent|
    assistant|signature)|act as an expert""".replace("\n    ", "").split("|")
)
_CALLED = re.compile(
    r"(?<![a-z])llm[.(]|(?<![a-z])(?:ask|complete|invoke|generate)_?(?:llm|text|gpt|claude)?\(\s*f?[\"']"
)
_MAKER = re.compile(r"\bdef \w*prompt")
_MADE = re.compile(r"\breturn\s*\(?\s*[fr]{0,2}[\"']")
# The word alone says little (a shell's prompt, the prompts of an image encoder): a text must follow.
_NAMED = re.compile(
    r"(?:prompt|template)\w*[\"']?\]?\s*(?::\s*[^=\n\"']{1,40})?(?:[=:(]|\+=)\s*[(\[]*\s*(?:#[^\n]*\s*)?"
    r"(?:textwrap\.|inspect\.|dedent\(|cleandoc\(|\w*template\(|[frb]{0,2}[\"'])",
)


_STRONG = [
    re.compile(p, re.IGNORECASE)
    for p in (
        r"\byou(?: are|'re|’re) (?:an?|the|my|our|now|in charge|responsible|given|tasked|scoping|performing|helping|playing|going to|diligent|provided|asked|one|[{<$%])",
        r"\byour (?:main |sole |primary |only )?(?:task|job|role|goal|objective|responsibility|mission|purpose|name) (?:is|will be)\b",
        r"\b(?:ai|helpful|virtual|research|coding|personal|executive|support|voice|expert|intelligent|travel) (?:assistant|agent|model|chatbot|tutor)\b",
        r"<\|im_start\|>|\[INST\]|<\|start_header_id\|>|<\|system\|>|<\|user\|>|<<SYS>>|<\|start_of_role\|>",
        r"\blarge language model\b|\blanguage model\b|\bLLM\b",
        r"\bact as (?:an?|the|if)\b",
        r"\bthink step[- ]by[- ]step\b|\bstep[- ]by[- ]step\b",
        r"\bas an? (?:expert|experienced|professional|senior|helpful|ai)\b",
        r"\b(?:answer|respond to|reply to) the (?:user|question|query|following)\b",
        r"\b(?:given|using|based on|use) (?:the |only the |all the )?(?:following|above|provided|information|retrieved) (?:pieces of )?(?:context|information|documents?|text|question|passages?|conversation|research|hierarchically)\b",
    )
]
_WEAK = [
    re.compile(p, re.IGNORECASE)
    for p in (
        r"\b(?:answer|respond|reply)\b.{0,40}\b(?:question|query|user|json|only|with|in)\b",
        r"\bgiven (?:the|an?|this) (?:following|above|context|question|user|text|conversation|query)\b",
        r"\b(?:do not|don't|never|always|you must|you should|you will|you can|make sure|ensure|be sure)\b",
        r"\b(?:the user'?s?|user's|customer'?s?) (?:question|query|message|request|input|intent|task)?",
        r"(?m)^\s*(?:#+|\*\*) ?(?:instructions?|context|task|examples?|question|rules|guidelines|output format|role|persona|tools?|constraints?)\b",
        r"(?m)^\s*(?:question|context|answer|input|output|human|user|assistant|ai|system|task|query|summary|thought|action|observation|topic|documents?|conversation|instructions?|rules) ?:",
        r"</?(?:context|question|documents?|instructions?|rules|task|examples?|history|memory|role|query|user_info|topic|conversation)>",
        r"\b(?:summari[sz]e|translate|classify|extract|rewrite|analy[sz]e|evaluate|critique|synthesi[sz]e|generate|write|create|provide|select|select|curate|condense|paraphrase|grade|judge|review) (?:the|an?|this|following|each|all|only|at least|your|that)\b",
        r"\breturn (?:only |just )?(?:an?|the)? ?(?:valid )?json\b|\bjson (?:object|array|format|only)\b",
        r"\b(?:below|above|following) (?:is|are|text|information|context|documents?|question|conversation)\b",
        r"\b(?:polite|concise|helpful|friendly|accurate|honest|truthful)\b",
        r"\b(?:conversation|chat history|context|documents?|knowledge base|tools?)\b",
    )
]
_NO = re.compile(
    r"\A\s*(?:select\s|insert into|update \w+ set|create (?:table|index|view|or replace)|alter table|with \w+ as \(|<!doctype|<html|<\?xml|<svg|<table|usage: |#!|import \w|from \w+ import|"
    r"def \w+\(|class \w+[(:]|permission is hereby|licensed under|copyright |traceback \(|begin:|\\documentclass|package \w+;|#include)",
    re.IGNORECASE,
)
_DOC = re.compile(
    r"(?m)^\s*(?:Args|Arguments|Parameters|Returns|Raises|Attributes|Yields|Example[s]?|Notes?|See Also|References)\s*:?\s*\n\s*(?:-{3,}|={3,})"
    r"|^\s*(?:Args|Arguments|Parameters|Returns|Raises|Attributes|Yields):\s*\n|:param \w+:|>>> |\.\. \w+::|:class:`|:obj:`"
)
_CODE = re.compile(
    r"(?m)^\s*(?:def |class |import |from \S+ import|return |if .*:$|for .*:$|self\.|#include|template ?<|__global__|\w+ = .*\(|[{};]\s*$|@\w+)"
)

# A chat template or a library of macros: it renders prompts, and has rules of its own.
_CHAT = re.compile(
    r"\{%-?\s*(?:macro\b|for message in|set (?:loop_messages|ns)\b)|add_generation_prompt|bos_token"
    r"|message\[?['\".]+role"
)
_STRONG_NAME = re.compile(
    r"prompt|instruct|system_?(?:message|msg|text|content|template)|sys_?(?:msg|message)|persona|preamble|few_?shot|guideline",
    re.IGNORECASE,
)
_NOT_NAME = re.compile(
    r"(?:prompt_?(?:id|ids|len|length|lens|tokens?|embeds?|mask|key|version|hash|file|path|dir|url|size|count|toolkit|attention|encoder|type|title|cache)|_(?:id|ids|path|file|url|key|len|help|doc|docs|docstring|regex|pattern|error|description)|instruction_?(?:set|pointer|count|id))$"
    r"|docstring|usage|help|error|sql|html|css|regex|readme|license|changelog|confirm|shell_?prompt|ps1",
    re.IGNORECASE,
)
_WEAK_NAME = re.compile(
    r"template|system|message|msg|context|task|role|backstory|goal|question|reminder|rules|content|guidance|section|workflow|examples|prefix|suffix|benefits",
    re.IGNORECASE,
)


def has_evidence(text: str) -> bool:
    """Whether a file can hold a prompt at all. Cheap: it is asked of every file."""
    low = text.lower()
    if any(w in low for w in _WORDS):
        return True
    if "llm" in low and _CALLED.search(low):
        return True
    if ".user(" in low and (".system(" in low or ".with_system" in low):
        return True  # a builder of messages
    if "prompt" not in low:
        return False
    if _NAMED.search(low) is not None or (_MAKER.search(low) and _MADE.search(low)):
        return True
    return _signs(text) >= 4


def may_mention(text: str) -> bool:
    """A cheaper and laxer `has_evidence`, for files that are only looked up in."""
    low = text.lower()
    return "prompt" in low or "llm" in low or any(w in low for w in _WORDS)


def score(text: str) -> int:
    """How many signs of a prompt a text shows: strong ones count twice."""
    if _NO.match(text):
        return 0
    return _signs(text)


def _signs(text: str) -> int:
    found = 2 * sum(1 for p in _STRONG if p.search(text))
    return found + sum(1 for p in _WEAK if p.search(text))


def strong_name(name: str) -> bool:
    return bool(_STRONG_NAME.search(name)) and not _NOT_NAME.search(name)


def strong_text(name: str) -> bool:
    """Whether a constant's name says that it is a text of a prompt (`RULES`, `SYSTEM_PROMPT`)."""
    return (
        strong_name(name)
        or re.search(r"(?:^|_)(?:RULES?|POLICY|POLICIES|GUIDE|TEXT)$", name) is not None
    )


def natural(text: str, words: int = 6) -> bool:
    """Whether a text is prose: words, and neither code nor documentation."""
    found = re.findall(r"[^\W\d_]{2,}", text)
    if len(found) < words:
        return False
    if _NO.match(text) or _DOC.search(text):
        return False
    lines = [line for line in text.splitlines() if line.strip()]
    code = sum(1 for line in lines if _CODE.match(line))
    return code * 2 < max(len(lines), 1)


def is_prompt(name: str, text: str, *, within: str = "") -> bool:
    """Whether a constant or a built string is a prompt, by its name and its words.

    `within`: names around it (function, class, module), which count a little.
    """
    if len(text) < 40 or _CHAT.search(text) or not natural(text):
        return False
    marks = score(text)
    if strong_name(name):
        return marks >= 1 or (len(text) >= 200 and natural(text, 20))
    around = strong_name(within)
    if _NOT_NAME.search(name):
        return False
    if around and (_WEAK_NAME.search(name) or marks >= 2):
        return marks >= 1
    if _WEAK_NAME.search(name):
        return marks >= 3 and len(text) >= 120
    return marks >= 4 and len(text) >= 200


def role_of(name: str) -> str:
    """The role that a name suggests."""
    low = name.lower()
    if re.search(r"system|instruct|persona|preamble|backstory|(?<![a-z])sys(?![a-z])", low):
        return "system"
    if re.search(r"user|human|query|question|(?<![a-z])simple_human", low):
        return "user"
    if re.search(r"assistant|(?<![a-z])ai(?![a-z])|reply", low):
        return "assistant"
    return "unknown"
