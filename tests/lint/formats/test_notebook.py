"""Notebooks: cells as one module, places exact in the file, nothing edited."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentkv.lint.command import Options, run
from agentkv.lint.result import Report
from agentkv.lint.run import lint
from tests.lint.formats.test_python_programs import RULES

SET_UP = f'import time\nfrom openai import OpenAI\n\nRULES = """{RULES}"""\nclient = OpenAI()\n'
ASK = """\
def ask(question):
    system = f"It is {time.time()}.\\n{RULES}"
    return client.chat.completions.create(
        model="gpt-5",
        messages=[
            {"role": "system", "content": system},
            {"role": "user", "content": question},
        ],
    )"""


def notebook(*cells: str, as_lines: bool = True, language: str = "python", **more: Any) -> str:
    made = [{"cell_type": "markdown", "metadata": {}, "source": ["# It is {time.time()}\n", "é"]}]
    for text in cells:
        source = text.splitlines(keepends=True) if as_lines else text
        made.append({"cell_type": "code", "metadata": {}, "source": source, "outputs": []})
    metadata = {"kernelspec": {"language": language, "name": "x"}}
    return json.dumps({"cells": made, "metadata": metadata, "nbformat": 4}, indent=1, **more)


def found(text: str, tmp_path: Path, **settings: Any) -> Report:
    (tmp_path / "a.ipynb").write_text(text, encoding="utf-8")
    return lint(tmp_path, isolated=True, cache=False, **settings)


@pytest.mark.parametrize("as_lines", [True, False])
@pytest.mark.parametrize("ascii", [True, False])
def test_a_finding_points_into_the_file(tmp_path: Path, as_lines: bool, ascii: bool) -> None:
    """Whatever is escaped in front of it, also when a cell is one string."""
    ahead = 'title = "größer 🙂\\t"\n' + SET_UP
    text = notebook(ahead, ASK, as_lines=as_lines, ensure_ascii=ascii)
    report = found(text, tmp_path)
    (one,) = report.findings
    assert one.code == "KV101" and "(cell 3, line 2)" in one.message
    line = text.split("\n")[one.line - 1]
    assert line[one.column - 1 : one.end_column - 1] == "{time.time()}"
    assert one.line == one.end_line
    assert report.files[0].format == "notebook"


def test_nothing_is_edited(tmp_path: Path) -> None:
    text = notebook(SET_UP, ASK)
    (one,) = found(text, tmp_path).findings
    assert one.fix is None or (not one.fix.edits and one.fix.refused)
    file = str(tmp_path / "a.ipynb")
    run(Options(paths=(file,), fix=True, unsafe_fixes=True, isolated=True))
    assert (tmp_path / "a.ipynb").read_text() == text
    listed = ASK.replace("time.time()", "', '.join({'b', 'a'})")
    text = notebook(SET_UP, listed)
    (one,) = found(text, tmp_path).findings
    assert one.code == "KV301" and (one.fix is None or not one.fix.edits)
    run(Options(paths=(file,), fix=True, isolated=True))
    assert (tmp_path / "a.ipynb").read_text() == text


def test_magics_and_broken_cells(tmp_path: Path) -> None:
    cells = (
        "%pip install openai\n!ls -l\nfiles = !ls *.md\nOpenAI?\n",
        "%%bash\necho 'It is {time}'\n",
        "%%time\n" + SET_UP,
        "for x in 'ab':\n    %timeit f(x)\n    !echo {x}\n",
        "def (:\n",
        'shell = """\n!ls\n%pip\n"""\n',
        ASK + "\n\nawait client.close()",
    )
    report = found(notebook(*cells), tmp_path)
    assert [f.code for f in report.findings] == ["KV101"]
    assert "(cell 8, line 2)" in report.findings[0].message
    assert [n for n in report.files[0].notes if "cell" in n] == [
        "cell 6 is not valid Python: invalid syntax (line 1)"
    ]


def test_comments_count_in_a_cell(tmp_path: Path) -> None:
    quiet = ASK.replace('{RULES}"\n', '{RULES}"  # agentkv: ignore[KV101] a demo\n')
    report = found(notebook(SET_UP, quiet), tmp_path, severity="info")
    assert "KV101" not in [f.code for f in report.findings]
    assert report.files[0].suppressed == 1
    idle = notebook(SET_UP, "x = 1  # agentkv: ignore[KV101] nothing\n")
    (one,) = found(idle, tmp_path, severity="info").findings
    assert one.code == "KV001" and "(cell 3, line 1)" in one.message
    assert one.fix is not None and not one.fix.edits and "not edited here" in str(one.fix.refused)


def test_what_is_no_notebook_of_python(tmp_path: Path) -> None:
    other = found(notebook("x <- 1", language="R"), tmp_path)
    assert other.files[0].skipped == "a notebook in R" and not other.findings
    for text in ("", "{", '{"cells": 3}', "[]", '{"cells": [{"cell_type": "code"}, 3]}'):
        assert found(text, tmp_path).findings == []
    assert found(notebook("x = 1\n"), tmp_path).files[0].prompts == 0
