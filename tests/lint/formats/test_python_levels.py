"""How often a hole changes: what assignments, calls, clocks and the rest of the code show."""

from __future__ import annotations

import pytest

from agentkv.lint.template import Hole
from tests.lint.formats.python_help import RULES, hole, inside, only, read, section

HEAD = """
import asyncio, base64, collections, copy, datetime as dt, functools, glob, json, os, platform, random
import secrets, socket, string, subprocess, tempfile, time, uuid
from datetime import date, datetime, timezone
from functools import cached_property, lru_cache
from pathlib import Path
from openai import OpenAI
client = OpenAI()
RULES = "%s"
""".replace("%s", RULES)


def value(expression: str, *, before: str = "", top: str = "", params: str = "") -> Hole:
    """The hole of an expression that stands in a system prompt, in a function."""
    lines = "".join(f"    {line}\n" for line in before.splitlines())
    code = (
        HEAD
        + top
        + f"\ndef ask({params}):\n{lines}"
        + "    return client.chat.completions.create(model='m', messages=[{'role': 'system', "
        + f"'content': 'Value: ' + str({expression}) + RULES}}])\n"
    )
    document, _ = read(code)
    found = [p for p in only(document).parts[0].pieces if getattr(p, "name", "") != "RULES"]
    return next(p for p in found if isinstance(p, Hole))


CASES = [
    # expression, level, traits it has, traits it must not have
    ("datetime.now()", "call", {"clock"}, {"date", "import_time"}),
    ("dt.datetime.utcnow().isoformat()", "call", {"clock"}, {"date"}),
    ("datetime.now(timezone.utc).strftime('%Y-%m-%d %H:%M')", "call", {"clock"}, {"date"}),
    ("datetime.now().strftime('%Y-%m-%d')", "call", {"date"}, {"clock"}),
    ("datetime.now().strftime('%B %d, %Y')", "call", {"date"}, {"clock"}),
    ("datetime.now().date()", "call", {"date"}, {"clock"}),
    ("datetime.now().date().isoformat()", "call", {"date"}, {"clock"}),
    ("date.today()", "call", {"date"}, {"clock"}),
    ("date.today().year", "call", {"date"}, {"clock"}),
    ("datetime.now().year", "call", {"date"}, {"clock"}),
    ("time.time()", "call", {"clock"}, {"date"}),
    ("int(time.time())", "call", {"clock"}, set()),
    ("time.strftime('%Y-%m-%d')", "call", {"date"}, {"clock"}),
    ("time.strftime('%H:%M:%S')", "call", {"clock"}, {"date"}),
    ("uuid.uuid4()", "call", {"random_id"}, set()),
    ("uuid.uuid4().hex[:8]", "call", {"random_id"}, set()),
    ("secrets.token_hex(4)", "call", {"random_id"}, set()),
    ("random.choice(['Hi', 'Hello'])", "call", {"random_content"}, set()),
    ("random.sample(EXAMPLES, 3)", "call", {"shuffled"}, set()),
    ("os.getpid()", "session", {"host_state"}, set()),
    ("socket.gethostname()", "session", {"host_state"}, set()),
    ("tempfile.mkdtemp()", "session", {"host_state"}, set()),
    ("os.getcwd()", "session", {"host_state"}, set()),
    ("subprocess.check_output(['git', 'status'])", "call", {"host_state"}, set()),
    ("os.environ['BRAND']", "deploy", set(), set()),
    ("os.environ.get('BRAND', 'x')", "deploy", set(), set()),
    ("os.getenv('BRAND')", "deploy", set(), set()),
    ("platform.system()", "deploy", set(), set()),
    ("Path(__file__).parent.joinpath('a.md').read_text()", "build", set(), {"clock"}),
    ("(Path(__file__).parent / 'a.md').read_text()", "build", set(), set()),
    ("os.listdir('docs')", "session", {"listing"}, set()),
    ("sorted(os.listdir('docs'))", "session", set(), {"listing"}),
    ("glob.glob('*.md')", "session", {"listing"}, set()),
    ("list(Path('docs').iterdir())", "session", {"listing"}, set()),
    ("sorted(Path('docs').glob('*.md'))", "session", set(), {"listing"}),
    ("', '.join({'a', 'b'})", "build", {"set_order"}, set()),
    ("', '.join(set(['a', 'b']))", "build", {"set_order"}, set()),
    ("json.dumps(payload)", "unknown", {"unsorted_json"}, set()),
    ("json.dumps(payload, sort_keys=True)", "unknown", set(), {"unsorted_json"}),
    ("json.dumps({'a': 1, 'b': 2})", "build", set(), {"unsorted_json"}),
    ("json.dumps(Model.model_json_schema())", "deploy", set(), {"unsorted_json"}),
    ("collections.Counter(words).most_common(3)", "unknown", {"tie_order"}, set()),
    ("base64.b64encode(picture)", "turn", {"image"}, set()),
]


@pytest.mark.parametrize(("expression", "level", "has", "lacks"), CASES)
def test_an_expression(expression: str, level: str, has: set[str], lacks: set[str]) -> None:
    found = value(expression, params="payload, words, picture, EXAMPLES, Model")
    assert found.level == level, found
    assert has <= found.traits and not lacks & found.traits, found.traits


def test_a_sorted_set_is_a_text() -> None:
    with pytest.raises(StopIteration):
        value("', '.join(sorted({'a', 'b'}))")


def test_a_seeded_generator_is_no_chance() -> None:
    found = value("random.Random(7).choice(['a', 'b'])")
    assert found.level == "build" and not found.traits
    found = value("random.choice(['a', 'b'])", top="random.seed(3)\n")
    assert found.level == "build" and not found.traits


def test_through_an_assignment() -> None:
    found = value("stamp", before="now = datetime.now()\nstamp = now.strftime('%H:%M')")
    assert found.level == "call" and found.traits == {"clock"} and found.known
    assert found.defined_at is not None and "stamp" in found.reads


def test_import_time() -> None:
    found = value("STARTED", top="STARTED = datetime.now().isoformat()\n")
    assert found.level == "deploy" and {"clock", "import_time"} <= found.traits


def test_a_helper_of_the_module() -> None:
    top = "def stamp():\n    return datetime.now().isoformat()\n"
    found = value("stamp()", top=top)
    assert found.level == "call" and "clock" in found.traits and "via_helper" not in found.traits
    assert "stamp()" in found.why


def test_a_helper_of_a_helper() -> None:
    top = "def a():\n    return time.time()\ndef b():\n    return a()\n"
    found = value("b()", top=top)
    assert found.level == "call" and "clock" in found.traits


@pytest.mark.parametrize("decorator", ["@lru_cache", "@functools.cache", "@lru_cache(maxsize=1)"])
def test_a_memoised_helper(decorator: str) -> None:
    top = f"{decorator}\ndef stamp():\n    return datetime.now().isoformat()\n"
    found = value("stamp()", top=top)
    assert found.level == "deploy" and {"clock", "memoised"} <= found.traits


def test_a_cache_with_a_time_to_live_is_no_memory() -> None:
    top = (
        "@cached(cache=TTLCache(1, ttl=60))\ndef stamp():\n    return datetime.now().isoformat()\n"
    )
    assert value("stamp()", top=top).level == "call"


def test_an_argument_of_a_helper() -> None:
    top = "def fmt(x):\n    return x.isoformat()\n"
    found = value("fmt(datetime.now())", top=top)
    assert found.level == "call" and "clock" in found.traits


def test_a_local_name_by_the_dictionary() -> None:
    found = value("user_name", params="user_name")
    assert (found.level, found.known) == ("user", False)
    assert "parameter" in found.why
    assert value("question", params="question").level == "turn"
    assert value("frobnication", params="frobnication").level == "unknown"


def test_settings_are_of_the_deployment() -> None:
    assert value("settings.frob", params="settings").level == "deploy"
    assert value("cfg.frob", params="cfg: Config").level == "deploy"


def test_a_constant_is_text_inside() -> None:
    found = value("MOTTO", top="MOTTO = 'We care.'\n")
    assert found.level == "build" and inside(found) == "We care."


def test_a_counter() -> None:
    code = (
        HEAD
        + """
def run(goal):
    step = 0
    while True:
        step += 1
        client.chat.completions.create(model="m", messages=[
            {"role": "system", "content": f"Step {step}. {RULES}"}])
"""
    )
    document, _ = read(code)
    found = hole(only(document), "step")
    assert found.level == "call" and "counter" in found.traits and found.known
    code = code.replace("step = 0\n    while True:\n        step += 1", "for step in range(5):")
    found = hole(only(read(code)[0]), "step")
    assert found.level == "call" and "counter" in found.traits


def test_numbering_in_a_text_is_no_counter() -> None:
    code = (
        HEAD
        + """
def run(q):
    text = RULES
    for i, line in enumerate(["Be kind.", "Be brief."]):
        text += f"\\n{i}. {line}"
    client.chat.completions.create(model="m", messages=[{"role": "system", "content": text}])
"""
    )
    template = only(read(code)[0])
    loop = template.parts[0].pieces[-1]
    assert isinstance(loop, Hole)
    assert "loop" in loop.traits and loop.level == "build"
    assert all("counter" not in p.traits for p in loop.inner if isinstance(p, Hole))


def test_conditions() -> None:
    code = (
        HEAD
        + """
def run(user, q, beta):
    text = "Intro. "
    if user.is_admin:
        text += "You may delete things. "
    text += RULES
    client.chat.completions.create(model="m", messages=[{"role": "system", "content": text}])
"""
    )
    template = only(read(code)[0])
    found = section(template.parts[0].pieces)
    assert "conditional" in found.traits and found.level == "user"
    assert inside(found) == "You may delete things. "


def test_an_if_expression() -> None:
    found = value("'Speak as a pirate.' if pirate else ''", params="pirate")
    assert "conditional" in found.traits and inside(found) == "Speak as a pirate."
    found = value("'Verbose.' if os.environ.get('V') else ''")
    assert "conditional" in found.traits and found.level == "deploy"


def test_retrieved_documents() -> None:
    found = value(
        "'\\n'.join(d.page_content for d in docs)",
        before="docs = store.similarity_search(q, k=4)",
        params="q, store",
    )
    assert found.level == "turn"


def test_scores_as_order() -> None:
    found = value("sorted(items, key=lambda d: d.score)", params="items")
    assert "score_order" in found.traits


def test_completion_order() -> None:
    found = value(
        "parts",
        before="parts = [f.result() for f in concurrent.futures.as_completed(fs)]",
        params="fs",
        top="import concurrent.futures\n",
    )
    assert "completion_order" in found.traits


def test_repr_of_an_object() -> None:
    top = "class Box:\n    def __init__(self):\n        self.x = 1\n"
    assert "object_repr" in value("Box()", top=top).traits
    named = top + "    def __str__(self):\n        return 'box'\n"
    assert "object_repr" not in value("Box()", top=named).traits
    data = "from dataclasses import dataclass\n@dataclass\nclass Box:\n    x: int = 1\n"
    assert "object_repr" not in value("Box()", top=data).traits


def test_an_exception_in_a_text() -> None:
    code = (
        HEAD
        + """
def run(q):
    try:
        work(q)
    except ValueError as exc:
        client.chat.completions.create(model="m", messages=[
            {"role": "system", "content": f"Failed: {exc}. {RULES}"}])
"""
    )
    assert "object_repr" in hole(only(read(code)[0]), "exc").traits


def test_an_attribute_set_in_the_constructor() -> None:
    code = (
        HEAD
        + """
class Bot:
    def __init__(self):
        self.started = datetime.now().isoformat()
        self.brand = os.environ["BRAND"]

    def ask(self, q):
        return client.chat.completions.create(model="m", messages=[
            {"role": "system", "content": f"Since {self.started} for {self.brand}. {RULES}"},
            {"role": "user", "content": q}])
"""
    )
    template = only(read(code)[0])
    assert "clock" in hole(template, "started").traits
    assert hole(template, "brand").level == "deploy"


def test_call_sites_tell_of_parameters() -> None:
    code = (
        HEAD
        + """
def build(stamp, brand):
    return f"Now {stamp} at {brand}. {RULES}"

def ask(q):
    return client.chat.completions.create(model="m", messages=[
        {"role": "system", "content": build(datetime.now(), os.environ["B"])}, {"role": "user", "content": q}])
"""
    )
    template = only(read(code)[0])
    assert "clock" in hole(template, "stamp").traits and hole(template, "stamp").known
    assert hole(template, "brand").level == "deploy"


def test_a_random_order_of_examples() -> None:
    found = value(
        "'\\n'.join(shots)",
        before="shots = list(EXAMPLES)\nrandom.shuffle(shots)",
        params="EXAMPLES",
    )
    assert "shuffled" in found.traits


def test_locale_names() -> None:
    found = value("locale.format_string('%d', n)", params="n", top="import locale\n")
    assert "locale" in found.traits


def test_a_parameter_that_only_a_log_uses() -> None:
    code = (
        HEAD
        + """
def build(now, brand):
    print(f"built at {now}")
    return f"For {brand}. {RULES}"

def ask(q):
    return client.chat.completions.create(model="m", messages=[
        {"role": "system", "content": build(datetime.now(), "Acme")}, {"role": "user", "content": q}])
"""
    )
    for part in only(read(code)[0]).parts:
        for piece in part.pieces:
            assert "clock" not in getattr(piece, "traits", ())
