"""What is installed, under which names, and what importing it costs."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points, version
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LINKS = ("engine", "kernels", "cli")


def run_python(code: str) -> str:
    """Run `code` in a fresh interpreter outside the repository; its stdout."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd="/", capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_every_package_is_listed() -> None:
    config = PYPROJECT["tool"]["setuptools"]
    found = {
        ".".join((name, *package.parent.relative_to(ROOT / folder).parts))
        for name, folder in config["package-dir"].items()
        for package in (ROOT / folder).rglob("__init__.py")
        if not (
            name == "agentkv"
            and package.parent != ROOT / folder
            and package.relative_to(ROOT / folder).parts[0] in LINKS
        )
    }
    assert found == set(config["packages"])


def test_every_file_that_is_no_module_is_package_data() -> None:
    config = PYPROJECT["tool"]["setuptools"]
    shipped = set()
    for package, patterns in config["package-data"].items():
        best = max((n for n in config["package-dir"] if f"{package}.".startswith(f"{n}.")), key=len)
        folder = ROOT / config["package-dir"][best] / Path(*package[len(best) + 1 :].split("."))
        for pattern in patterns:
            shipped |= set(folder.glob(pattern))
    present = {
        file
        for folder in ("agentkv", *LINKS)
        for file in (ROOT / folder).rglob("*")
        if file.is_file()
        and file.suffix not in {".py", ".pyc"}
        and file.relative_to(ROOT).parts[:2] not in {("agentkv", link) for link in LINKS}
    }
    assert present == shipped


@pytest.mark.parametrize("name", LINKS)
def test_links_point_at_the_real_folders(name: str) -> None:
    link = ROOT / "agentkv" / name
    if link.is_symlink():  # a checkout without links still installs
        assert link.resolve() == ROOT / name


def test_generic_names_do_not_leak() -> None:
    assert str(ROOT) not in sys.path
    for name in LINKS:
        spec = importlib.util.find_spec(name)
        assert spec is None or not str(spec.origin).startswith(str(ROOT))


def test_import_is_light() -> None:
    heavy = "{'torch','transformers','langchain_core','langchain','numpy','httpx','typer','rich'}"
    assert run_python(f"import sys, agentkv; print(sorted({heavy} & set(sys.modules)))") == "[]"


def test_engine_import_is_light() -> None:
    heavy = "{'torch','transformers','langchain_core','starlette','tokenizers'}"
    code = f"import sys, agentkv.engine; print(sorted({heavy} & set(sys.modules)))"
    assert run_python(code) == "[]"


def test_kernels_imports_cleanly_under_another_projects_name() -> None:
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import kernels; print(kernels.__name__)"
    assert run_python(code) == "kernels"


def test_every_export_resolves() -> None:
    import agentkv

    for name in agentkv.__all__:
        assert getattr(agentkv, name) is not None, name
        assert name in dir(agentkv)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = agentkv.nonsense


def test_version_and_console_script() -> None:
    import agentkv

    assert agentkv.__version__ == version("agentkv") == PYPROJECT["project"]["version"]
    assert f"## [{agentkv.__version__}]" in (ROOT / "CHANGELOG.md").read_text()
    (script,) = (e for e in entry_points(group="console_scripts") if e.name == "agentkv")
    assert script.value == "agentkv.cli.main:main"


def test_constraints_pin_every_dependency() -> None:
    pins = {
        line.split("==")[0].lower()
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if "==" in line
    }
    project = PYPROJECT["project"]
    extras = [name for group in project["optional-dependencies"].values() for name in group]
    for requirement in (*project["dependencies"], *extras):
        name = requirement.split(";")[0].split(">=")[0].strip().lower()
        assert name.replace("-", "_") in {p.replace("-", "_") for p in pins}, name


def test_import_contracts() -> None:
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
