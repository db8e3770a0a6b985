"""Whether a text is a prompt: by where it lies, by what it says, by what it cannot be."""

from __future__ import annotations

import re

_PATH = re.compile(
    r"(?:^|[\\/_.\-])(?:sys(?:tem)?[_-]?)?prompts?(?:[\\/_.\-]|$)|prompt[_-]?templates?|(?:^|[\\/])(?:system|llm)[_-](?:message|instructions)",
    re.IGNORECASE,
)
_WEAK_PATH = re.compile(
    r"(?:^|[\\/_.\-])(?:agents?|llm|instructions?|personas?|chat|rag|system|assistant|few[_-]?shots?|skprompt)(?:[\\/_.\-]|$)",
    re.IGNORECASE,
)
_NOT_PATH = re.compile(
    r"(?:^|[\\/])(?:roles|playbooks|ansible|helm|charts|node_modules|site-packages|locales?|i18n|"
    r"email[s_-]?\w*|mailers?|__pycache__|sphinx|\{\{.*\}\})[\\/]"
    r"|(?:^|[\\/])(?:readme|changelog|changes|license|licence|contributing|code_of_conduct|security|"
    r"requirements\w*|notice|authors|history)(?:[-_.][a-z]{2}(?:[-_][a-z]{2})?)?(?:\.[^\\/]*)?$",
    re.IGNORECASE,
)
_STRONG = re.compile(
    r"""\byou\ are\ (?:now\ )?(?:an?\b|the\b|\{|\$\{?\w|\w+,\ (?:an?|the|your)\b)
      | \byou(?:'re|\ will\ be)\ an?\ (?:\w+\ ){0,4}(?:assistant|agent|expert|bot)
      | \byour\ (?:task|job|role|goal|mission)\ is\b
      | \bact\ as\ an?\b
      | \bas\ an?\ (?:ai|large\ language)\b | \b(?:ai|language)\ (?:assistant|model)\b
      | \bhelpful\ (?:\w+\ )?assistant\b
      | <\|(?:im_start|start_header_id|system|user|assistant)\b | \[/?inst\]
      | \b(?:answer|respond\ to|address)\ the\ (?:user(?:'s)?\ |following\ |customer(?:'s)?\ )?(?:question|query|request)
      | \bthe\ user(?:'s)?\ (?:question|query|request|message|input)\b
      | \b(?:respond|reply|answer|return|output)\ (?:only\ )?(?:with|in|as)\ (?:a\ |an\ |valid\ |the\ )*(?:json|xml|yaml|markdown|one\ (?:word|sentence)|single)
      | ^(?:system|developer)[ ]?:[ \t]*\n(?![ \t]|[\w-]+:[ ])(?:.*\n)*?(?:user|human|assistant)[ ]?:
      | ^(?:user(?:'s)?\ )?(?:question|query)[ ]?:\s*\{\{
      | \{%[-+]?\s*(?:chat|message)\s+role\s*=
      | \b(?:use|given)\ the\ (?:following|above|provided|retrieved)\ (?:\w+\ ){0,3}(?:context|documents?|passages?|information|text|pieces)
      | \b(?:step[- ]by[- ]step|do\ not\ hallucinate|system\ prompt|tool\ calls?|few-shot|chain\ of\ thought)\b
      | \b(?:summari[sz]e|classify|extract|translate|rewrite|generate|write)\ (?:the|an?|all|this|each)\ (?:following\ |user\ )?(?:\w+\ ){0,3}(?:text|document|article|conversation|e?mail|message|review|passage|question|query|queries|report|summary|sentence|transcript|ticket|code|story|email)\b""",
    re.IGNORECASE | re.MULTILINE | re.VERBOSE,
)
_TRIGGERS = [
    "you are",
    "you're",
    "you will be",
    "your",
    "act as",
    "as an",
    "as a",
    "assistant",
    "language model",
    "ai model",
    "<|",
    "[inst]",
    "[/inst]",
    "answer the",
    "respond",
    "address the",
    "the user",
    "reply",
    "return",
    "output",
    "use the",
    "given the",
    "step",
    "hallucinate",
    "system prompt",
    "tool call",
    "few-shot",
    "chain of thought",
    "summari",
    "classify",
    "extract",
    "translate",
    "rewrite",
    "generate",
    "write",
    "system:",
    "system :",
    "developer:",
    "question:",
    "query:",
    "chat role",
    "message role",
]
"""One of these is in everything that `_STRONG` finds; they are looked for first, as that is far cheaper."""
_WORDS = re.compile(
    r"\b(?:question|answer|context|instructions?|assistant|respond|user|conversation|json|rules?|always|never|must|"
    r"do not|don't|documents?|examples?|output|format|task|tools?|query)\b",
    re.IGNORECASE,
)
_MAIL = re.compile(
    r"\byou are (?:receiving|subscribed|registered|invited|welcome|about to)|\bunsubscribe\b|^[ \t]*(?:dear|hi|hello) (?:\{\{|\{|\$)"
    r"|^subject:|\b(?:kind|best) regards\b|\bsincerely\b|confirm your (?:e-?mail|account)|reset your password",
    re.IGNORECASE | re.MULTILINE,
)
_MACHINE = re.compile(
    r"""<!doctype|<html\b|<body\b|<head>|</?(?:div|span|table|td|ul|script|link)\b[^>]*>.*</?(?:div|span|table|td|ul|script|a)\b
      | \bansible_\w+|ansible_managed|inventory_hostname|\bcookiecutter\.|\bcopier\.|^\#!\s*/|^[ \t]*<\?xml
      | \.Values\.|\{\{-?\s*(?:include|template|define|toYaml)\s+"|\{%-?\s*(?:load|url|static|csrf_token)\b|\{\{\s*(?:ref|config|source)\(
      | ^[ \t]*(?:server|location|upstream|http)\s*\S*\s*\{|^[ \t]*\[(?:Unit|Service|Install)\]
      | ^[ \t]*(?:import\ [\w.]+;?$|from\ [\w.]+\ import\b|package\ [\w.]+;?$|\#include\b|public\ class\b|def\ \w+\(.*\):$|function\ \w+\()
      | ^[ \t]*FROM\ [\w./:-]+\s*$|^[ \t]*(?:select|with)\b.*\n.*\bfrom\b\s*\{\{|^[ \t]*(?:apiVersion|kind):\ |^[ \t]*-\ hosts:
      | \\documentclass|\\begin\{document\}""",
    re.IGNORECASE | re.MULTILINE | re.VERBOSE,
)


def in_prompt_folder(path: str) -> bool:
    """Whether a path says that it holds prompts."""
    return _PATH.search(path) is not None and _NOT_PATH.search(path) is None


def excluded(path: str) -> bool:
    """Whether a path says that it holds something else."""
    return _NOT_PATH.search(path) is not None


def says(text: str) -> int:
    """How many different things in a text only a prompt says."""
    low = text.lower()
    if not any(word in low for word in _TRIGGERS):
        return 0
    return len({m.group()[:24] for m in _STRONG.finditer(low)})


def machine(text: str) -> bool:
    """Whether a text is code, markup or configuration for a program, or a letter."""
    return _MACHINE.search(text) is not None


def evidence(path: str, text: str) -> float:
    """How sure it is that a text is a prompt, 0..1. Cheap, for the first 4 KiB."""
    if excluded(path):
        return 0.0
    folder = in_prompt_folder(path)
    strong = says(text)
    if not folder and not strong and not _WEAK_PATH.search(path):
        return 0.0
    if machine(text):
        # Prompts for coding agents quote code; they do not begin with it.
        if machine(text[:200]):
            return 0.4 if folder and strong >= 2 else 0.0
        return (0.7 if strong else 0.4) if folder else 0.5 if strong >= 2 else 0.0
    if _MAIL.search(text) and strong < 2 and not folder:
        return 0.0
    if folder:
        return 0.9 if strong else 0.7 if len(_WORDS.findall(text)) >= 1 else 0.5
    if strong >= 2:
        return 0.8
    if strong == 1:
        return 0.7 if _WEAK_PATH.search(path) or len(_WORDS.findall(text)) >= 3 else 0.5
    if _WEAK_PATH.search(path) and len(set(map(str.lower, _WORDS.findall(text)))) >= 4:
        return 0.5
    return 0.0
