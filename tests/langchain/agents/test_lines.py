"""Which lines stay: only what was seen decides, and what belongs together stays together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agentkv.langchain.agents.lines import Core, Piece, atoms

RULES = "You are a desk agent. Answer in one sentence.\nNever give medical advice to anyone.\n"


def moved(core: Core, text: str) -> list[str]:
    return [piece.text for piece in core.split([text]) if piece.changes]


@given(st.text(alphabet="ab \n|`<>/x{}[]1.-#:", max_size=200))
def test_atoms_are_the_text(text: str) -> None:
    assert "".join(atoms(text)) == text


@given(
    st.lists(st.sampled_from(["a b", "c", "now 1", "now 2", "- x", "", "# h", "k:"]), max_size=9)
)
def test_pieces_are_the_text(lines: list[str]) -> None:
    """Nothing is lost and nothing is added but line breaks, for any two versions."""
    text = "\n".join(lines)
    core = Core([RULES + text])
    pieces = core.split([RULES + "\n".join(reversed(lines))])
    words = [w for piece in pieces for w in piece.text.split()]
    assert words == (RULES + "\n".join(reversed(lines))).split()
    again = core.split([RULES + "\n".join(reversed(lines))])
    assert [(p.text.strip(), p.changes) for p in again if p.text.strip()] == [
        (p.text.strip(), p.changes) for p in pieces if p.text.strip()
    ], "the same text again is cut the same way"


def test_what_belongs_together_is_one_atom() -> None:
    table = "| a | b |\n|---|---|\n| 1 | 2 |\n"
    fence = "```\nNow: 12\n\n```\n"
    ordered = "1. first\n   more\n2. second\n"
    tagged = "<memory>\nlikes tea\n</memory>\n"
    brackets = '{\n  "time": "12:00 }",\n  "ids": [\n 1 ]\n}\n'
    item = "- one\n  and its rest\n"
    parts = ["Line.\n", table, fence, ordered, tagged, brackets, item, "End.\n"]
    assert atoms("".join(parts)) == parts
    assert atoms("<open>\nnever closed\n") == ["<open>\n", "never closed\n"]
    assert atoms("```\nnever closed\n") == ["```\nnever closed\n"]


def test_the_first_version_is_all_fixed_and_a_change_is_seen() -> None:
    core = Core([f"Now: 12:00\n{RULES}"])
    assert moved(core, f"Now: 12:00\n{RULES}") == []
    assert moved(core, f"Now: 12:01\n{RULES}") == ["Now: 12:01\n"]
    assert moved(core, f"Now: 12:01\n{RULES}") == ["Now: 12:01\n"], "it stays where it went"
    assert moved(core, f"Now: 12:00\n{RULES}") == ["Now: 12:00\n"], "also the first one"


def test_a_label_goes_with_what_it_labels() -> None:
    core = Core([f"{RULES}\nMemory:\n- tea\n- Oslo\n"])
    (piece,) = [p for p in core.split([f"{RULES}\nMemory:\n- coffee\n"]) if p.changes]
    assert piece.text == "Memory:\n- coffee\n"
    assert piece.line == 4
    core = Core([f"{RULES}## User\ntea\n## Style\nShort.\n"])
    assert moved(core, f"{RULES}## User\ncoffee\n## Style\nShort.\n") == ["## User\ncoffee\n"]
    core = Core([f"{RULES}## User\ntea\nAlways polite.\n"])
    assert moved(core, f"{RULES}## User\ncoffee\nAlways polite.\n") == ["coffee\n"]


def test_a_change_inside_moves_the_whole() -> None:
    table = "| k | v |\n|---|---|\n| time | {} |\n"
    core = Core([RULES + table.format(1)])
    assert moved(core, RULES + table.format(2)) == [table.format(2)]


def test_another_prompt_is_no_version() -> None:
    core = Core([RULES])
    assert core.fits([f"Now: 9\n{RULES}"])
    assert core.fits([RULES + "x" * 5000])
    assert not core.fits(["You write poems.\nRhyme whenever you can, and be brief about it.\n"])


def test_fixed_text_is_written_in_one_way() -> None:
    """Blank lines depend on what follows; the bytes of what stays may not."""
    core = Core([RULES.rstrip() + "\n\nMemory: tea"])

    def fixed(text: str) -> str:
        return "".join(p.text for p in core.split([text]) if not p.changes).rstrip("\n")

    with_memory = fixed(RULES.rstrip() + "\n\nMemory: coffee")
    assert fixed(RULES.rstrip()) == with_memory
    assert fixed(RULES) == with_memory


def test_blocks_are_told_apart() -> None:
    core = Core([RULES, "Now: 1"])
    pieces = core.split([RULES, "Now: 2"])
    assert pieces == [Piece(RULES, False, 0, 1), Piece("Now: 2", True, 1, 4)]
