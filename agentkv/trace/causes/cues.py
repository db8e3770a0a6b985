"""Words that tell what a text is for. Used to choose between rules, never to decide that there is a
loss: that is counted in tokens."""

from __future__ import annotations

import re

_EXAMPLES = re.compile(
    r"\bexamples?\b|\bfew[- ]?shots?\b|\b(?:input|output|answer|label|sentiment|class|category|"
    r"response|translation|result|sql)\s*[:=]|^\s*[QA]\d*\s*[:.)]|\b(?:user|human|assistant|ai|customer|agent)\s*:"
    r"|<example|\bdemonstrations?\b|\s(?:->|=>|→)\s",
    re.IGNORECASE | re.MULTILINE,
)
_DOCUMENTS = re.compile(
    r"\bdoc(?:ument)?s?\b|<doc|\bsources?\b|\bpassages?\b|\bcontext\b|\bexcerpts?\b|\bchunks?\b"
    r"|\bretrieved\b|\barticles?\b|\bknowledge\b|\breferences?\b|\bsearch results?\b|\bsnippets?\b"
    r"|\b[\w-]+\.(?:md|pdf|txt|html?|docx?)\b",
    re.IGNORECASE,
)
_FORMAT = re.compile(
    r"\bjson\b|\bschema\b|\boutput format\b|\bformat (?:of|your)\b|\brespond (?:only )?(?:with|in)\b",
    re.IGNORECASE,
)
_USER = re.compile(
    r"\busers?\b|\bcustomers?\b|\bclients?\b|\baccounts?\b|\bnames?\b|\bmembers?\b|\bpatients?\b"
    r"|\btenants?\b|\bcompany\b|\borgani[sz]ations?\b|\bemployees?\b|\bhello\b|\bdear\b|\bhi\b"
    r"|\be-?mail\b|\bassist(?:ing|ant (?:to|for|of))?\b|\bhelp(?:ing)?\b|\b(?:talking|speaking|chatting) (?:to|with)\b"
    r"|\bprofile\b|\bworkspace\b|\bteam\b|\bowner\b|\brole\b|\bplan\b|\btier\b|\bserving\b|\bon behalf of\b",
    re.IGNORECASE,
)
_COUNTER = re.compile(
    r"\bsteps?\b|\bturns?\b|\battempts?\b|\biterations?\b|\bcount(?:er)?\b|\bremaining\b|\bleft\b"
    r"|\btokens?\b|\bbudget\b|\brounds?\b|\btry\b|\bmessages? (?:so far|number)\b|\bnumber\b|#\s*$"
    r"|\bno\.?\s*$|\bsequence\b|\bused\b|\brequests? (?:no|num|#)",
    re.IGNORECASE,
)
_IDS = re.compile(
    r"\breq(?:uest)?\b|\btrace\b|\brun\b|\bsession\b|\bcorrelation\b|\bnonce\b|\bconversation\b"
    r"|\bids?\b|\buuid\b|\bguid\b|\btoken\b|\bseed\b|\bspan\b|\bjob\b|\bticket\b|\bkey\b|_id\b",
    re.IGNORECASE,
)
_HOST = re.compile(
    r"\bpid\b|\bhost(?:name)?\b|\bcwd\b|\bworking dir\w*|\bdirectory\b|\bgit\b|\bbranch\b|\bcommit\b"
    r"|\bmachine\b|\bnode\b|\bpod\b|\buptime\b|\bload\b|\bmemory usage\b|\bport\b|\btmp\b",
    re.IGNORECASE,
)
_MEMORY = re.compile(
    r"\bmemor(?:y|ies)\b|\bpreferences?\b|\bremember(?:s|ed)?\b|\bfacts about\b|\bknown about\b",
    re.IGNORECASE,
)
_SUMMARY = re.compile(
    r"\bsummar(?:y|ies|i[sz]ed)\b|\bso far\b|\bprevious conversation\b|\bcompact(?:ed|ion)\b"
    r"|\bearlier (?:in|part|messages)\b|\brecap\b",
    re.IGNORECASE,
)
_QUESTION = re.compile(
    r"\bquestions?\b|\bquery\b|\bq\s*:|\btask\s*:|\brequest\s*:|\buser asks\b|\buser input\b|\bprompt\s*:",
    re.IGNORECASE,
)
_ASKS = re.compile(
    r"^\s*(?:what|who|whom|whose|which|when|where|why|how|is|are|was|were|do|does|did|can|could|"
    r"should|would|will|has|have|tell|explain|describe|list|find|give|show|compare|summari[sz]e|"
    r"name)\b",
    re.IGNORECASE,
)


def examples(text: str) -> bool:
    return bool(_EXAMPLES.search(text))


def documents(text: str) -> bool:
    return bool(_DOCUMENTS.search(text))


def answer_format(text: str) -> bool:
    return bool(_FORMAT.search(text))


def user(text: str) -> bool:
    return bool(_USER.search(text))


def counter(text: str) -> bool:
    return bool(_COUNTER.search(text))


def ids(text: str) -> bool:
    return bool(_IDS.search(text))


def host(text: str) -> bool:
    return bool(_HOST.search(text))


def memory(text: str) -> bool:
    return bool(_MEMORY.search(text))


def summary(text: str) -> bool:
    return bool(_SUMMARY.search(text))


def question(label: str, text: str) -> bool:
    """Whether a text asks something, or stands behind a word that says so."""
    bare, near = text.strip(), label.strip()
    named = bool(_QUESTION.search(near)) and (len(near) <= 40 or near.endswith((":", ">", "=")))
    return bare.endswith(("?", "？")) or named or bool(_ASKS.match(bare))


def names(text: str) -> bool:
    """Up to four words with capitals: what a name looks like."""
    words = [w.strip(".,;:!?()\"'") for w in text.split()]
    words = [w for w in words if w]
    return 0 < len(words) <= 4 and all(w[0].isupper() for w in words)


_THINK = re.compile(
    r"<(think|thinking|thought|reasoning|reflection|scratchpad)>.*?</\1>|^.*?</think>",
    re.DOTALL | re.IGNORECASE,
)


def without_thoughts(text: str) -> str | None:
    """The text with its thoughts taken out; None when it holds none."""
    if "</" not in text:
        return None
    bare = _THINK.sub("", text)
    return bare if bare != text else None
