"""`agentkv lint` and `agentkv rule` as a user meets them."""

from __future__ import annotations

import io
import json
import os
import re
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
ROOT = Path(__file__).resolve().parents[2]
SCRIPT = Path(sys.executable).with_name("agentkv")

RULES = (
    "You are a careful support agent of a shop. Answer only from the documents that you are given. "
    "Never reveal internal notes. Write at most five sentences, and name the article that you used. "
    "If the documents say nothing about a question, say so, and offer to pass it to a person. "
    "Do not promise refunds, delivery dates or discounts. Write prices with two decimals. "
    "Be polite to everybody, and stay calm when a customer is angry."
)
BAD = f"You help {{{{ user_name }}}}.\n{RULES}\n"
GOOD = f"{RULES}\n\nThe customer is called {{{{ user_name }}}}.\n"


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder with one bad prompt in it, and an empty cache."""
    monkeypatch.setattr("agentkv.lint.cache.user_cache_dir", lambda name: str(tmp_path / "cache"))
    work = tmp_path / "work"
    work.mkdir()
    (work / "sys.j2").write_text(BAD)
    monkeypatch.chdir(work)
    return work


def say(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """What comes on standard input."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode()), "utf-8"))


# -- exit status and streams -----------------------------------------------------------------------


def test_findings_are_1_clean_is_0(agentkv: Run, scratch: Path) -> None:
    ran = agentkv("lint")
    assert ran.code == 1 and ran.out.startswith("sys.j2:1:10 KV202 user-data-before-shared")
    assert "\033[" not in ran.out  # not a terminal
    (scratch / "sys.j2").write_text(GOOD)
    ran = agentkv("lint", "sys.j2", "--format", "concise")
    assert (ran.code, ran.out) == (0, "0 findings; 1 prompt in 1 file\n")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--exit-zero",), 0),
        (("--fail-on", "error"), 0),
        (("--fail-on", "never"), 0),
        (("--fail-on", "warning"), 1),
        (("--severity", "error"), 0),
        (("--max-loss", "5"), 1),
        (("--max-loss", "5000"), 0),
        (("--max-loss", "5000", "--fail-on", "warning"), 1),
        (("--select", "KV1,KV3"), 0),
        (("--select", "KV1", "--extend-select", "user-data-before-shared"), 1),
        (("--ignore", "KV2"), 0),
        (("--min-tokens", "5000"), 0),
        (("--exclude", "*.j2"), 2),
        (("--exclude", "*.j2", "--force-exclude"), 0),
        (("--exclude", "*.j2", "--exit-zero"), 2),
    ],
)
def test_exit_status(agentkv: Run, arguments: tuple[str, ...], code: int) -> None:
    ran = agentkv("lint", ".", *arguments)
    assert ran.code == code, ran.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nowhere",), "no file or folder 'nowhere'"),
        (("--select", "KV999"), "KV999"),
        (("--target", "abacus"), "unknown target 'abacus'"),
        (("--tokenizer", "none.json"), "no tokenizer file"),
        (("--config", "none.toml"), "none.toml"),
        (("--baseline", "none.json"), "--update-baseline"),
        (("--update-baseline",), "--baseline FILE"),
        (("--since", "HEAD"), "git says"),
        (("--input-format", "papyrus"), "unknown format 'papyrus'"),
        (("--stdin-filename", "a.py"), "give `-`"),
        (("-", "sys.j2"), "stands alone"),
        (("--explain", "KV999"), "KV999"),
        (("-o", "no/such/folder/x"), "cannot be written"),
    ],
)
def test_wrong_usage_is_2_and_says_what(
    agentkv: Run, arguments: tuple[str, ...], said: str
) -> None:
    ran = agentkv("lint", *arguments)
    assert ran.code == 2
    assert ran.err.startswith("error: ") and said in ran.err
    assert ran.out == ""


def test_unknown_key_is_2(agentkv: Run, scratch: Path) -> None:
    (scratch / "pyproject.toml").write_text("[tool.agentkv.lint]\nselcet = ['KV1']\n")
    ran = agentkv("lint")
    assert ran.code == 2
    assert "pyproject.toml: unknown key `selcet`" in ran.err and "extend-select" in ran.err
    assert agentkv("lint", "--isolated").code == 1


def test_broken_files_are_2_only_when_nothing_else_was_read(agentkv: Run, scratch: Path) -> None:
    (scratch / "broken.py").write_text("prompt = 'You are a helpful assistant\n")
    alone = agentkv("lint", "broken.py")
    assert alone.code == 2 and "broken.py" in alone.out and "1 skipped: not valid" in alone.out
    (scratch / "sys.j2").write_text(GOOD)
    both = agentkv("lint", ".")
    assert both.code == 0 and "0 findings; 1 prompt in 1 file; 1 skipped: not valid" in both.out


def test_b067_an_empty_folder_is_not_clean(agentkv: Run, scratch: Path) -> None:
    """Nothing was looked at: a gate that is green then is green when its paths are wrong."""
    (scratch / "empty").mkdir()
    ran = agentkv("lint", "empty")
    assert ran.code == 2 and "no files" in ran.err


def test_json_on_stdout_talk_on_stderr(agentkv: Run) -> None:
    ran = agentkv("lint", "--format", "json")
    data = json.loads(ran.out)
    assert ran.code == 1 and data["schema"] == 1
    assert data["files"] == {"checked": 1, "prompts": 1, "skipped": 0}
    (found,) = data["findings"]
    assert (found["path"], found["line"], found["column"]) == ("sys.j2", 1, 10)
    assert BAD.split("\n")[0][found["column"] - 1 : found["end_column"] - 1] == "{{ user_name }}"
    assert "1 finding" in ran.err
    assert agentkv("lint", "--format", "json", "-q").err == ""


def test_output_to_a_file(agentkv: Run, scratch: Path) -> None:
    ran = agentkv("lint", "--format", "sarif", "-o", "out.sarif", "sys.j2")
    assert ran.code == 1 and ran.out == ""
    assert json.loads((scratch / "out.sarif").read_text())["version"] == "2.1.0"


def test_terminals_without_blocks_and_names_without_unicode(scratch: Path) -> None:
    (scratch / "sys.j2").rename(scratch / "\u65e5.j2")
    env = {"PATH": "/usr/bin:/bin", "HOME": str(scratch), "PYTHONIOENCODING": "ascii"}
    for form, said in (("full", b"before #"), ("json", "\u65e5.j2".encode())):
        done = subprocess.run(
            [SCRIPT, "lint", ".", "--no-cache", "--format", form], env=env, capture_output=True
        )
        assert done.returncode == 1, done.stderr
        assert said in done.stdout


def test_file_names_that_are_no_unicode(agentkv: Run, scratch: Path) -> None:
    try:
        Path(os.fsdecode(os.fsencode(scratch) + b"/\xff.j2")).write_text(BAD)
    except OSError:
        pytest.skip("this file system takes no such name")
    for form in ("full", "json", "jsonl", "sarif", "github", "gitlab", "junit", "markdown"):
        ran = agentkv("lint", "--format", form)
        assert ran.code == 1 and "Traceback" not in ran.err, form
        if form == "json":
            assert len(json.loads(ran.out)["findings"]) == 2
    assert agentkv("lint", "-o", "out.txt").code == 1


@pytest.mark.parametrize(
    ("name", "value", "coloured"), [("FORCE_COLOR", "1", True), ("NO_COLOR", "1", False)]
)
def test_colour(
    agentkv: Run, monkeypatch: pytest.MonkeyPatch, name: str, value: str, coloured: bool
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv(name, value)
    assert ("\033[" in agentkv("lint").out) is coloured


def test_redact(agentkv: Run) -> None:
    for form in ("full", "json", "jsonl", "sarif", "github", "gitlab", "junit", "markdown"):
        out = agentkv("lint", "--redact", "--format", form, "--severity", "info").out
        assert "user_name" not in out and "careful" not in out, form
        assert "KV202" in out


def test_quiet_prints_findings_only(agentkv: Run, scratch: Path) -> None:
    ran = agentkv("lint", "-q", "--format", "concise")
    assert ran.out.count("\n") == 1 and ran.out.startswith("sys.j2:1:10 ")
    (scratch / "sys.j2").write_text(GOOD)
    assert agentkv("lint", "-q").out == ""


# -- standard input --------------------------------------------------------------------------------


def test_stdin(agentkv: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    say(monkeypatch, BAD)
    ran = agentkv("lint", "-", "--stdin-filename", "prompts/other.j2", "--format", "concise")
    assert ran.code == 1 and ran.out.startswith("prompts/other.j2:1:10 KV202")
    say(monkeypatch, BAD)
    ran = agentkv("lint", "-", "--input-format", "jinja", "--format", "concise")
    assert ran.code == 1 and ran.out.startswith("-:1:10 KV202")
    say(monkeypatch, "")
    assert agentkv("lint", "-", "--stdin-filename", "a.py").code == 0


def test_settings_for_stdin_are_those_of_its_name(
    agentkv: Run, monkeypatch: pytest.MonkeyPatch, scratch: Path
) -> None:
    (scratch / "sub").mkdir()
    (scratch / "sub" / "agentkv.toml").write_text("[lint]\nignore = ['KV2']\n")
    for name, code in (("sub/a.j2", 0), ("a.j2", 1)):
        say(monkeypatch, BAD)
        assert agentkv("lint", "-", "--stdin-filename", name).code == code


# -- fixes -----------------------------------------------------------------------------------------

UNUSED = "import os  # agentkv: ignore[KV101]\r\n# line feeds are Windows'\r\nx = '\u00e9'\r\n"


def test_safe_fixes_keep_every_other_byte(agentkv: Run, scratch: Path) -> None:
    (scratch / "a.py").write_bytes(UNUSED.encode())
    (scratch / "a.py").chmod(0o755)
    ran = agentkv("lint", "a.py", "--fix", "--severity", "info")
    assert ran.code == 0 and "1 fixed in 1 file\n" in ran.err
    fixed = UNUSED.replace("  # agentkv: ignore[KV101]", "")
    assert (scratch / "a.py").read_bytes() == fixed.encode()
    assert (scratch / "a.py").stat().st_mode & 0o777 == 0o755
    assert not list(scratch.glob(".*tmp"))
    again = agentkv("lint", "a.py", "--fix", "--severity", "info")
    assert "0 fixed in 0 files" in again.err
    assert (scratch / "a.py").read_bytes() == fixed.encode()


def test_diff_writes_nothing_and_applies(agentkv: Run, scratch: Path) -> None:
    (scratch / "a.py").write_bytes(UNUSED.encode())
    ran = agentkv("lint", "a.py", "--diff", "--severity", "info")
    assert ran.code == 1
    assert (scratch / "a.py").read_bytes() == UNUSED.encode()
    subprocess.run(["git", "init", "-q"], check=True, cwd=scratch)
    applied = subprocess.run(
        ["git", "apply", "--whitespace=nowarn", "-"], input=ran.out.encode(), cwd=scratch
    )
    assert applied.returncode == 0
    fixed = UNUSED.replace("  # agentkv: ignore[KV101]", "")
    assert (scratch / "a.py").read_bytes() == fixed.encode()
    ran = agentkv("lint", "a.py", "--diff", "--severity", "info")
    assert (ran.code, ran.out) == (0, "")


def test_unsafe_fixes_are_asked_for(agentkv: Run, scratch: Path) -> None:
    agentkv("lint", "--fix")
    assert (scratch / "sys.j2").read_text() == BAD
    shown = agentkv("lint", "--diff", "--unsafe-fixes")
    assert shown.code == 1 and "+++ b/sys.j2" in shown.out
    assert (scratch / "sys.j2").read_text() == BAD
    ran = agentkv("lint", "--fix", "--unsafe-fixes")
    fixed = (scratch / "sys.j2").read_text()
    assert ran.code == 0 and fixed != BAD
    assert (
        sorted(re.findall(r"\w+", fixed)) == sorted(re.findall(r"\w+", BAD))
        or "{{ user_name }}" in fixed
    )
    assert fixed.index("You are a careful") < fixed.index("{{ user_name }}")
    assert agentkv("lint").code == 0


def test_fix_only_is_quiet_about_the_rest(agentkv: Run, scratch: Path) -> None:
    ran = agentkv("lint", "--fix-only")
    assert (ran.code, ran.out) == (0, "")


def test_refusals_are_printed(agentkv: Run, scratch: Path) -> None:
    text = (
        "1. You are a support agent.\n"
        "2. The current time is {{ now() }}.\n"
        "3. If the time above is outside 09:00 to 17:00, answer only: CLOSED.\n"
        f"4. {RULES}\n"
    )
    (scratch / "sys.j2").write_text(text)
    ran = agentkv("lint", "--fix", "--unsafe-fixes")
    assert ran.code == 1
    assert (scratch / "sys.j2").read_text() == text
    assert re.search(r"not fixed: sys\.j2:2:\d+ KV\d+ .*: .*\w", ran.err)


def test_fixed_stdin_is_the_output(agentkv: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    say(monkeypatch, UNUSED)
    ran = agentkv("lint", "-", "--stdin-filename", "a.py", "--fix", "--severity", "info")
    assert ran.out == UNUSED.replace("  # agentkv: ignore[KV101]", "")


# -- old and new -----------------------------------------------------------------------------------


def test_baseline(agentkv: Run, scratch: Path) -> None:
    ran = agentkv("lint", "--baseline", "known.json", "--update-baseline")
    assert ran.code == 0 and "1 finding" in ran.err
    ran = agentkv("lint", "--baseline", "known.json")
    assert ran.code == 0 and "1 in the baseline" in ran.out
    (scratch / "new.j2").write_text(BAD)
    ran = agentkv("lint", "--baseline", "known.json", "--format", "concise")
    assert ran.code == 1 and ran.out.startswith("new.j2:1")
    (scratch / "pyproject.toml").write_text("[tool.agentkv.lint]\nbaseline = 'known.json'\n")
    assert agentkv("lint", "sys.j2").code == 0


# -- what it shows ---------------------------------------------------------------------------------


def test_show_files_and_settings(agentkv: Run, scratch: Path) -> None:
    (scratch / "agentkv.toml").write_text("[lint]\ntarget = 'vllm'\n")
    ran = agentkv("lint", "--show-files")
    assert (ran.code, ran.out) == (0, "agentkv.toml\nsys.j2\n")
    shown = json.loads(agentkv("lint", "--show-settings", "--severity", "info").out)
    assert shown["file"] == str(scratch / "agentkv.toml")
    assert (shown["settings"]["target"], shown["settings"]["severity"]) == ("vllm", "info")


def test_watch_lints_again(agentkv: Run, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def changes(files: Callable[[], list[Path]]) -> Any:
        assert [p.name for p in files()] == ["sys.j2"]
        (scratch / "new.j2").write_text(BAD)
        yield ["new.j2"]

    monkeypatch.setattr("agentkv.lint.watch.changes", changes)
    ran = agentkv("lint", "--watch", "--format", "concise")
    assert [line.split(":")[0] for line in ran.out.split("\n") if "KV202" in line] == [
        "sys.j2",
        "new.j2",
        "sys.j2",
    ]
    assert "watching 1 file;" in ran.err and "changed: new.j2" in ran.err


def test_statistics(agentkv: Run, scratch: Path) -> None:
    (scratch / "two.j2").write_text(BAD)
    ran = agentkv("lint", "--statistics")
    assert ran.code == 1
    assert re.search(r"^ +2 +\d+ +\d  KV202 user-data-before-shared$", ran.out, re.M)
    data = json.loads(agentkv("lint", "--statistics", "--format", "json").out)
    assert data["rules"][0]["count"] == 2 and data["findings"] == 2


def test_rules_are_listed_and_explained(agentkv: Run) -> None:
    from agentkv.lint.rule import all_rules

    listed = agentkv("lint", "--list-rules").out
    assert listed == agentkv("rule", "--all").out
    data = json.loads(agentkv("rule", "--all", "--json").out)
    for rule, row in zip(all_rules(), data["rules"], strict=True):
        assert f"  {rule.code} {rule.name} " in listed
        assert (row["code"], row["name"]) == (rule.code, rule.name) and row["summary"]
    by_code = agentkv("rule", "kv101").out
    assert by_code.startswith("# KV101 timestamp-in-prefix\n")
    assert by_code == agentkv("rule", "timestamp-in-prefix").out
    assert by_code == agentkv("lint", "--explain", "KV101").out
    assert json.loads(agentkv("rule", "KV101", "--json").out)["page"] in by_code
    for wrong in (("KV999",), (), ("KV101", "--all")):
        assert agentkv("rule", *wrong).code == 2


def test_rules_page_is_up_to_date(agentkv: Run) -> None:
    written = (ROOT / "docs" / "rules.md").read_text(encoding="utf-8")
    assert agentkv("rule", "--all", "--markdown").out == written, (
        "run: agentkv rule --all --markdown > docs/rules.md"
    )


def test_documented_settings_are_settings(scratch: Path) -> None:
    """The example of docs/lint.md is accepted as it stands."""
    import tomllib

    from agentkv.lint.config import Config, parse

    page = (ROOT / "docs" / "lint.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```toml\n(.*?)^```", page, re.M | re.S)
    table = tomllib.loads(block)["tool"]["agentkv"]["lint"]
    config = parse(table, "docs")
    config.check()
    assert set(table) | {"jobs", "cache", "cache-dir"} == set(Config.__struct_encode_fields__)


def test_documented_options_exist(agentkv: Run) -> None:
    known = set(re.findall(r"--[a-z-]+", agentkv("lint", "--help").out))
    page = (ROOT / "docs" / "lint.md").read_text(encoding="utf-8")
    told = set(
        re.findall(
            r"(?<![\w-])--[a-z][a-z-]+", re.sub(r"^```yaml.*?^```", "", page, flags=re.M | re.S)
        )
    )
    assert told - {"--all"} <= known


# -- start-up --------------------------------------------------------------------------------------


def test_help_has_panels_in_order(agentkv: Run) -> None:
    out = agentkv("lint", "--help").out
    panels = re.findall(r"^([A-Z][a-z ]+):$", out, re.M)
    assert panels == [
        "Rules",
        "Fixes",
        "Output",
        "What is looked at",
        "Exit status",
        "Cost",
        "Other",
    ]
    assert "--select" in out and "Exit status: 0" in out


def test_lint_needs_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from agentkv.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'transformers', 'langchain_core', 'httpx', 'rich', 'tokenizers', 'tiktoken'}\n"
        "print('heavy:', sorted(heavy & set(sys.modules)))"
    )
    for arguments in (["lint", "--help"], ["lint", ".", "--fix"], ["rule", "KV101"]):
        done = subprocess.run(
            [
                sys.executable,
                "-P",
                "-c",
                f"import sys; sys.argv = ['agentkv', *{arguments!r}]\n{code}",
            ],
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.splitlines()[-1] == "heavy: []", arguments


def test_help_is_instant() -> None:
    def once() -> float:
        """Processor time, so that a busy machine does not fail it."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([SCRIPT, "lint", "--help"], capture_output=True, check=True, cwd="/")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    once()
    assert min(once() for _ in range(5)) < 0.15


# -- hooks -----------------------------------------------------------------------------------------


def test_hooks_run_as_pre_commit_runs_them(scratch: Path) -> None:
    """The entry, with the names of the staged files behind it."""
    yaml = pytest.importorskip("yaml")
    hooks = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert [h["id"] for h in hooks] == ["agentkv-lint", "agentkv-lint-fix"]
    (scratch / "good.j2").write_text(GOOD)
    for other in ("README.rst", "notes.md", "old/sys.j2"):
        (scratch / other).parent.mkdir(exist_ok=True)
        (scratch / other).write_text(BAD if "sys" in other else "Some notes.\n")
    (scratch / "agentkv.toml").write_text("[lint]\nexclude = ['old']\n")
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run((*git, "init", "-q"), check=True)
    subprocess.run((*git, "add", "-A"), check=True)
    staged = subprocess.run(
        (*git, "diff", "--cached", "--name-only"), capture_output=True, text=True, check=True
    ).stdout.split()
    assert {"good.j2", "sys.j2", "README.rst", "old/sys.j2"} < set(staged)
    for hook in hooks:
        assert {"name", "entry", "language"} <= set(hook) and hook["language"] == "python"
        name, *rest = hook["entry"].split()
        done = subprocess.run(
            [SCRIPT.with_name(name), *rest, *staged], capture_output=True, text=True
        )
        assert done.returncode == 1 and done.stdout.startswith("sys.j2:1:10 KV202")
        assert done.stdout.count("KV202") == 1 and "skipped" not in done.stdout
        # A commit of other things only is no failure.
        for others in (["good.j2"], ["README.rst"], ["notes.md", "old/sys.j2"]):
            clean = subprocess.run([SCRIPT.with_name(name), *rest, *others], capture_output=True)
            assert clean.returncode == 0, clean.stderr


def test_action_is_one_that_github_takes() -> None:
    yaml = pytest.importorskip("yaml")
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    assert action["name"] and action["description"] and action["runs"]["using"] == "composite"
    for step in action["runs"]["steps"]:
        # A composite step that runs something names its shell, and no input becomes part of a script.
        assert "uses" in step or ("run" in step and step["shell"] == "bash")
        assert "${{" not in step.get("run", "")
    used = set(re.findall(r"inputs\.([\w-]+)", (ROOT / "action.yml").read_text()))
    assert used == set(action["inputs"])


def test_action_script_runs(scratch: Path) -> None:
    """The last step's script, with the environment that it is given."""
    yaml = pytest.importorskip("yaml")
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    step = action["runs"]["steps"][-1]
    env = {
        "PATH": f"{SCRIPT.parent}:/usr/bin:/bin",
        "HOME": str(scratch),
        "PATHS": "sys.j2 .",
        "ARGS": "--target vllm",
        "FORM": "github",
        "OUTPUT": "",
    }
    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", step["run"]], env=env, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stdout.startswith(
        "::warning title=KV202 user-data-before-shared,file=sys.j2,line=1"
    )
