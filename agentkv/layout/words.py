"""Words that point, by language, and texts whose language is not known well enough to look.

The lists err on the safe side: a needless refusal costs tokens, a wrong move costs meaning. An
author who knows better says `points=False` on the mark.
"""

from __future__ import annotations

import re

_NOUN = (
    r"(?:instructions?|messages?|sections?|texts?|context|rules?|paragraphs?|lines?|information|"
    r"content|blocks?|documents?|passages?|lists?|tables?|examples?|steps?|notes?|prompts?|parts?|"
    r"data|values?|items?|sentences?|points?|details)"
)
_PERIOD = r"(?:day|week|month|quarter|year|call|chat|conversation|sentence|answer|reply|response)s?"

_BACK = (
    # English
    r"(?<!over and )above(?!\s*(?:all\b|average|[\d$€£])|[-\s]board)",
    rf"(?:previous|preceding|prior|earlier|former|latter|last)\s+{_NOUN}",
    r"(?:the|these|those)\s+(?:former|latter)(?!\s+\w)",
    r"(?:ignore|disregard|forget|override|overrides|overriding)\s+(?:\w+\s+){0,3}?"
    r"(?:previous|preceding|prior|earlier|rest|everything|instructions?|rules?)",
    r"(?:afore|above-?)mentioned|aforesaid|foregoing",
    r"(?:mentioned|described|stated|given|shown|listed|said)\s+(?:earlier|before|previously)",
    r"tak(?:e|es|ing)\s+(?:priority|precedence)(?:\s+over)?|supersedes?|overrides?|unless\s+stated",
    r"this\s+(?:document|context|block|section)",
    r"(?<=[\w,;(] )steps?\s+\d+",
    rf"at\s+the\s+(?:very\s+)?(?:end|start|beginning|top|bottom)(?!\s+of\s+(?:\w+\s+)?{_PERIOD})",
    # German
    r"oben|obige[mnrs]?|vorstehend\w*|vorangegangen\w*|vorherig\w*|vorige[mnrs]?|zuvor|vorhin",
    r"(?:früher|bisherig)\w*\s+(?:anweisung|regel|angabe|nachricht|text|abschnitt|vorgabe)\w*",
    r"(?:ersterer?s?|letzterer?s?|erstgenannt\w*|letztgenannt\w*|genannte[mnrs]?)",
    r"ignorier\w*|missachte\w*|überschreib\w*|(?:hat|haben)\s+vorrang|dieses\s+dokument|(?<=[\w,;(] )schritt\s+\d+",
    r"am\s+(?:ende|anfang)(?!\s+(?:des|der)\s+(?:tages|woche|monats|jahres|gesprächs))",
    # French
    r"ci-dessus|ci-avant|plus\s+haut|précédente?s?|susmentionnée?s?|susdite?s?|susnommée?s?",
    r"mentionnée?s?\s+(?:plus\s+tôt|auparavant|avant)|ce\s+document|(?<=[\w,;(’'] )étape\s+\d+",
    r"ignor(?:es|ez|er)|ignore\s+(?:les?|la|tout\w*|ce\w*)|prime(?:nt)?\s+sur|(?:a|ont)\s+priorité",
    # Spanish
    r"arriba|anterior(?:es)?(?!\s+a\b)|antedich[oa]s?|susodich[oa]s?|este\s+documento|(?<=[\w,;(] )paso\s+\d+",
    r"(?:mencionad|citad|descrit|indicad)[oa]s?\s+(?:antes|anteriormente|previamente)",
    r"ignor(?:a|en|ar)|tienen?\s+prioridad|prevalece\w*",
    # Italian, Portuguese, Dutch
    r"precedent[ei]|suddett[oaie]|sopracitat[oaie]|qui\s+sopra|di\s+cui\s+sopra|hanno?\s+la\s+precedenza",
    r"acima|supracitad[oa]s?|mencionad[oa]s?\s+anteriormente|têm?\s+prioridade|prevalecem?",
    r"hierboven|bovenstaande|voorgaande|vorige|eerder\s+genoemde?|negeer|heeft\s+voorrang",
    # Russian
    r"выше|вышеуказанн\w+|вышеизложенн\w+|вышеупомянут\w+|предыдущ\w+|игнорируй\w*|приоритет\w*",
)
_BACK_CJK = (
    # Chinese, Japanese, Korean: no word borders.
    r"上述|上面|以上|上文|前述|前面|先前|此前|之前的|前者|后者|後者|本文档|本文件|该文档|該文件|第[一二三四五六七八九十\d]+步",
    r"忽略|无视|無視|优先于|優先於|取代|覆盖|覆蓋",
    r"上記|前記|先ほど|先述|前の(?:指示|文|段落|例)|上の(?:指示|文|段落|例|表)|優先",
    r"위의|위에|상기|앞의|앞서|이전의?\s*(?:지시|내용|규칙|메시지|예)|무시하|우선하",
)
_BELOW = (
    r"below(?!\s*(?:[\d$€£]|average|zero|freezing))|(?:next|subsequent)\s+" + _NOUN,
    r"unten|nachfolgend\w*|nachstehend\w*|weiter\s+unten",
    r"ci-dessous|ci-après|plus\s+bas",
    r"abajo|más\s+adelante|a\s+continuación",
    r"qui\s+sotto|di\s+seguito|abaixo|a\s+seguir|hieronder|onderstaande",
    r"ниже|нижеследующ\w+",
)
_BELOW_CJK = (r"下面|下述|下文|下列|下記|後述|以下の(?!よう)|아래",)
_FOLLOWING = (
    r"following|as\s+follows|here\s+(?:is|are)|these\s+are",
    r"folgend\w*|wie\s+folgt|hier\s+(?:ist|sind|kommt|kommen)",
    r"suivante?s?|voici|siguientes?|aquí\s+(?:está|están|tienes)|seguent[ei]|ecco|seguintes?|volgende",
    r"следующ\w+|вот",
)
_FOLLOWING_CJK = (r"如下|以下|接下来|接下來|次の|다음",)


def _any(words: tuple[str, ...], cjk: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{'|'.join(words)})\b|(?:{'|'.join(cjk)})", re.IGNORECASE)


BACK = _any(_BACK, _BACK_CJK)
"""Points backwards, or claims precedence over what else is there."""
BELOW = _any(_BELOW, _BELOW_CJK)
"""Points forwards, at something that need not be next."""
FOLLOWING = _any(_FOLLOWING, _FOLLOWING_CJK)
"""Introduces what comes next."""
NAMED = re.compile(
    r"\b(?:the|this|das|dem|den|dieses|le|ce|du|el|este|al)\s+(?:given\s+|provided\s+)?"
    r"(?:context|document|kontext|dokument|contexte|contexto|documento)s?\b|上下文|文档|文檔|文脈|문맥",
    re.IGNORECASE,
)
"""Names the context or the documents as a thing that is there."""

CLOSING = re.compile(
    r"^\W*(?:never|always|do\s+not|don['’]t|under\s+no\s+circumstances|you\s+must|remember\b|important\b|"
    r"reminder\b|only\s+(?:answer|reply|respond|use|output)|(?:answer|respond|reply|output|return)\s+"
    r"(?:\w+\s+){0,2}?(?:in|with|only|as)\b|"
    r"niemals|nie\s|immer\s|antworte\w*\s+(?:\w+\s+){0,2}?(?:auf|mit|nur|in)\b|denk\w*\s+daran|wichtig\b|"
    r"ne\s+\w+\s+jamais|jamais\b|toujours\b|répond(?:s|ez)\s|important\b|n['’]oublie|"
    r"nunca\b|siempre\b|responde\w*\s|recuerda\w*\b|importante\b|"
    r"切勿|永远不|永遠不|绝不|絕不|不要|务必|務必|必须|必須|请记住|請記住|始终|始終|只用|请用|請用|注意|重要|"
    r"決して|必ず|절대|반드시|никогда|всегда|важно)",
    re.IGNORECASE,
)
"""How a closing reminder begins ("Never reveal ...", "Answer in JSON.")."""

# Scripts whose pointing words are listed above: Latin, Cyrillic, Greek letters as symbols, CJK, Hangul.
_UNKNOWN_SCRIPT = re.compile(r"[\u0530-\u109F\u1200-\u1DFF\uA4D0-\uABFF\uFB13-\uFDFF\uFE70-\uFEFF]")
_LATIN_WORD = re.compile(r"[a-zà-öø-ÿāăąćčďđēęěğģīįıķłļńňőœřśşšţťūůűźżžșțơư]+", re.IGNORECASE)
_COMMON = frozenset(
    [
        "the",
        "a",
        "an",
        "is",
        "are",
        "be",
        "to",
        "of",
        "and",
        "in",
        "for",
        "with",
        "you",
        "your",
        "this",
        "that",
        "not",
        "on",
        "it",
        "as",
        "or",
        "if",
        "at",
        "by",
        "from",
        "use",
        "der",
        "die",
        "das",
        "ein",
        "eine",
        "ist",
        "sind",
        "und",
        "zu",
        "im",
        "mit",
        "du",
        "sie",
        "nicht",
        "auf",
        "für",
        "den",
        "dem",
        "von",
        "wenn",
        "bei",
        "le",
        "la",
        "les",
        "un",
        "une",
        "est",
        "sont",
        "et",
        "de",
        "du",
        "des",
        "en",
        "avec",
        "vous",
        "votre",
        "ne",
        "pas",
        "pour",
        "sur",
        "dans",
        "el",
        "los",
        "las",
        "es",
        "son",
        "y",
        "con",
        "usted",
        "tu",
        "no",
        "por",
        "para",
        "del",
        "al",
        "que",
        "il",
        "lo",
        "gli",
        "uno",
        "è",
        "sono",
        "e",
        "di",
        "con",
        "non",
        "per",
        "del",
        "della",
        "che",
        "o",
        "os",
        "as",
        "um",
        "uma",
        "é",
        "são",
        "com",
        "não",
        "para",
        "do",
        "da",
        "em",
        "het",
        "een",
        "zijn",
        "en",
        "met",
        "je",
        "niet",
        "op",
        "voor",
        "van",
        "als",
        "bij",
    ]
)


def unread(text: str) -> bool:
    """Whether `text` is in a script or a language whose pointing words are not listed here.

    Latin script: six words or more, one of them with a letter beyond ASCII, and fewer than one in
    ten a common word of a listed language.
    """
    if text.isascii():
        return False
    if _UNKNOWN_SCRIPT.search(text):
        return True
    words = [w.lower() for w in _LATIN_WORD.findall(text)]
    if len(words) < 6 or all(w.isascii() for w in words):
        return False
    return sum(w in _COMMON for w in words) * 10 < len(words)
