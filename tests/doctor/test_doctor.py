"""The doctor's checks: what they find, on this machine and on such as are not here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agentkv.bench import device_facts as facts
from agentkv.doctor import accelerator, examine, extras, kernels, model, system
from agentkv.doctor.finding import Finding

ROOT = Path(__file__).resolve().parents[2]
CARD = facts.Card("NVIDIA H200", "580.65", 143771, 143000, "9.0")


# -- versions and cards


@pytest.mark.parametrize(
    ("version", "wanted", "holds"),
    [
        ("3.6.0", ">=3.6,<3.10", True), ("3.9.1", ">=3.6,<3.10", True),
        ("3.10.0", ">=3.6,<3.10", False), ("3.5.1", ">=3.6,<3.10", False),
        ("3.7.1", "==3.7.1", True), ("3.7.0", "==3.7.1", False), ("3.7.2", "==3.7.*", True),
        ("3.8.4", "~=3.8.0", True), ("3.9.0", "~=3.8.0", False), ("2.13.0+cpu", ">=2.9,<3", True),
        ("3.7", "==3.7.0", True), ("3.7", "!=3.7.0", False),
    ],
)  # fmt: skip
def test_versions(version: str, wanted: str, holds: bool) -> None:
    assert facts.satisfies(version, wanted) is holds


def test_a_pin_is_read_from_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [
        "filelock", "tritonclient>=2; extra == 'x'", "triton>=9; extra == 'x'",
        'triton==3.7.1; platform_system == "Linux"',
    ]  # fmt: skip
    monkeypatch.setattr(facts, "metadata_requires", lambda name: lines)
    assert facts.requirement("triton", of="torch") == "==3.7.1"
    monkeypatch.setattr(facts, "metadata_requires", lambda name: ["filelock"])
    assert facts.requirement("triton", of="torch") is None


def test_the_drivers_table_is_read() -> None:
    assert facts.card("NVIDIA H200, 580.65, 143771, 143000, 9.0") == CARD
    with pytest.raises(ValueError):
        facts.card("NVIDIA-SMI has failed")


# -- torch, device, Triton


def torch_of(
    *, version: str = "2.11.0", cuda: str | None = "12.8", gpu: bool = True, free: int = 100
) -> Any:
    """As much of torch as the checks ask."""
    about = SimpleNamespace(name="NVIDIA H200", major=9, minor=0)
    return SimpleNamespace(
        __version__=version,
        version=SimpleNamespace(cuda=cuda, hip=None),
        cuda=SimpleNamespace(
            is_available=lambda: gpu,
            device_count=lambda: 1,
            get_device_properties=lambda index: about,
            mem_get_info=lambda index: (free << 30, 140 << 30),
        ),
    )


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`pretend(torch=, cards=, triton=, wants=)`: a machine with these."""

    def set_up(
        torch: Any = None, cards: Any = None, triton: str | None = None, wants: str | None = None
    ) -> None:
        monkeypatch.setattr(accelerator, "imported_torch", lambda: torch)
        monkeypatch.setattr(accelerator, "cards", lambda: cards)
        monkeypatch.setattr(
            accelerator, "installed", lambda name: triton if name == "triton" else None
        )
        monkeypatch.setattr(accelerator, "requirement", lambda name, of: wants)

    return set_up


def test_a_gpu_with_all_it_needs(pretend: Callable[..., None]) -> None:
    pretend(torch_of(), [CARD], "3.6.0", "==3.6.0")
    found = [accelerator.torch(), accelerator.device(), accelerator.triton()]
    assert [f.status for f in found] == ["ok"] * 3
    assert "CUDA 12.8" in found[0].text
    assert "NVIDIA H200 (100 of 140 GiB free), driver 580.65" in found[1].text


def test_a_gpu_that_others_use(pretend: Callable[..., None]) -> None:
    pretend(torch_of(free=30), [CARD], "3.6.0")
    found = accelerator.device()
    assert found.status == "warning" and "30 of 140 GiB free" in found.text


def test_a_gpu_and_a_torch_for_cpus(pretend: Callable[..., None]) -> None:
    pretend(torch_of(cuda=None, gpu=False), [CARD])
    for found in (accelerator.torch(), accelerator.device()):
        assert found.status == "warning" and "NVIDIA H200" in found.text
        assert found.fix is not None and "download.pytorch.org" in found.fix


def test_a_gpu_that_torch_does_not_see(pretend: Callable[..., None]) -> None:
    pretend(torch_of(gpu=False), [CARD])
    found = accelerator.torch()
    assert found.status == "problem" and "driver" in found.text


def test_a_torch_that_is_too_old(pretend: Callable[..., None]) -> None:
    pretend(torch_of(version="2.5.1"))
    assert accelerator.torch().status == "problem"


@pytest.mark.parametrize(
    ("triton", "gpu", "wants", "status"),
    [
        (None, True, None, "problem"), (None, False, None, "ok"),
        ("3.5.0", True, None, "problem"), ("3.5.0", False, None, "warning"),
        ("3.9.0", True, "==3.7.1", "warning"), ("3.7.1", True, "==3.7.1", "ok"),
    ],
)  # fmt: skip
def test_triton_fits_or_not(
    pretend: Callable[..., None], triton: str | None, gpu: bool, wants: str | None, status: str
) -> None:
    pretend(torch_of(gpu=gpu), None, triton, wants)
    found = accelerator.triton()
    assert found.status == status
    if status in ("problem", "warning"):
        assert found.fix == f"pip install 'triton{wants or facts.TRITON_RANGE}'"


# -- kernels


def test_a_wrong_kernel_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"kernel": "decode", "error": 0.25, "ok": False, "fault": None}]
    monkeypatch.setattr(kernels, "smoke", lambda *a, **k: rows)
    found = kernels.kernels()
    assert found.status == "problem" and "decode is wrong by 0.25" in found.text


def test_a_broken_interpreter_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    def smoke(device: str, *names: str, interpret: bool = False) -> list[dict[str, Any]]:
        fault = "TypeError: no" if interpret else None
        return [{"kernel": "decode", "error": 0.0, "ok": not interpret, "fault": fault}]

    pytest.importorskip("triton")
    monkeypatch.setattr(kernels, "smoke", smoke)
    found = kernels.kernels()
    assert found.status == "warning" and "TypeError: no" in found.text


def test_a_process_that_dies_is_noticed() -> None:
    with pytest.raises(kernels.Crashed, match="status 1"):
        kernels.smoke("no-such-device")


def test_kernels_run_in_the_interpreter() -> None:
    pytest.importorskip("triton")
    rows = kernels.smoke("cpu", *kernels.INTERPRETED, interpret=True)
    assert [r["kernel"] for r in rows] == list(kernels.INTERPRETED)
    assert all(r["ok"] for r in rows), rows


def test_the_smoke_test_notices_a_wrong_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    from agentkv.doctor import smoke
    from agentkv.kernels.decode_attention import decode_attention

    right = decode_attention

    def wrong(q: Any, kv: Any, *args: Any, **named: Any) -> Any:
        out, lse = right(q, kv, *args, **named)
        return out * 1.01, lse

    monkeypatch.setattr(smoke, "decode_attention", wrong)
    assert not smoke.cases("cpu")["decode"]().ok
    assert smoke.cases("cpu")["extend"]().ok


# -- reuse


def outputs(cached: tuple[int, int], tokens: tuple[tuple[int, ...], tuple[int, ...]]) -> list[Any]:
    return [
        SimpleNamespace(
            prompt_token_ids=list(range(41)),
            cache=SimpleNamespace(cached_tokens=c),
            choices=[SimpleNamespace(token_ids=t)],
        )
        for c, t in zip(cached, tokens, strict=True)
    ]


@pytest.mark.parametrize(
    ("cached", "page", "equal", "exact", "status"),
    [
        (40, 1, True, True, "ok"), (32, 16, True, True, "ok"), (39, 1, True, True, "problem"),
        (0, 16, True, True, "problem"), (40, 1, False, True, "problem"),
        (40, 1, False, False, "warning"),
    ],
)  # fmt: skip
def test_what_two_equal_calls_show(
    cached: int, page: int, equal: bool, exact: bool, status: str
) -> None:
    pair = outputs((0, cached), ((1, 2), (1, 2) if equal else (1, 3)))
    found = model.judge(pair, [9.0, 1.0], "m", exact=exact, page=page)
    assert found.status == status
    assert found.facts["cached_tokens"] == [0, cached]


def test_reuse_on_a_real_engine(tiny_llama_dir: Path) -> None:
    found = model.pair(tiny_llama_dir, "tiny")
    assert found.status == "ok", found
    assert found.facts["cached_tokens"][1] == found.facts["prompt_tokens"] - 1


def test_a_model_that_is_not_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AGENTKV_HOME", str(tmp_path))
    found = model.model()
    assert found.status == "warning" and found.fix == "agentkv models pull smollm2-135m"


# -- system


def test_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    for free, status in ((1 << 28, "problem"), (1 << 30, "warning"), (1 << 36, "ok")):
        monkeypatch.setattr(system, "available_bytes", lambda free=free: free)
        assert system.memory().status == status


def test_a_cache_directory_that_cannot_be(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("in the way")
    monkeypatch.setenv("AGENTKV_HOME", str(file / "home"))
    found = system.directories()
    assert found.status == "problem" and str(file) in found.text
    assert found.fix is not None and found.fix.startswith("export AGENTKV_HOME=")
    monkeypatch.setenv("AGENTKV_HOME", str(tmp_path / "not" / "there" / "yet"))
    assert system.directories().status == "ok"
    assert sorted(tmp_path.iterdir()) == [file]


def test_a_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    usage = SimpleNamespace(free=5 << 20)
    monkeypatch.setattr("agentkv.doctor.system.shutil.disk_usage", lambda path: usage)
    found = system.directories()
    assert found.status == "warning" and "5 MiB left" in found.text


def test_optional_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "installed", lambda name: None)
    found = extras.redis()
    assert found.status == "ok" and found.fix == "pip install 'agentkv[redis]'"
    monkeypatch.setattr(extras, "installed", lambda name: "6.4.0")
    assert extras.redis().text == "6.4.0" and extras.redis().fix is None


# -- all of it


def test_a_check_that_raises_is_a_finding() -> None:
    def broken() -> Finding:
        raise OSError("libcudart.so.12: cannot open shared object file\nmore")

    found = examine.guarded("torch", broken)
    assert (found.check, found.status) == ("torch", "problem")
    assert "libcudart.so.12" in found.text and "more" not in found.text


def test_quick_leaves_the_model_out() -> None:
    assert set(examine.checks()) - set(examine.checks(quick=True)) == {"reuse"}


def test_without_torch_and_triton(tmp_path: Path) -> None:
    """In an environment that has neither: every line is there, and nothing is a traceback."""
    absent = (
        "torch",
        "triton",
        "transformers",
        "functorch",
        "safetensors",
        "_editable",
        "__editable",
    )
    for entry in Path(sysconfig.get_paths()["purelib"]).iterdir():
        if not entry.name.lower().startswith(absent) and entry.suffix != ".pth":
            (tmp_path / entry.name).symlink_to(entry)
    (tmp_path / "agentkv").symlink_to(ROOT / "agentkv")
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    done = subprocess.run(
        [
            sys.executable, "-S", "-P", "-c",
            "import sys; sys.argv = ['agentkv', 'doctor', '--json']\n"
            "from agentkv.cli.main import main; main()",
        ],
        env={**kept, "PYTHONPATH": str(tmp_path)}, cwd="/", capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = {c["check"]: c for c in json.loads(done.stdout)["checks"]}
    assert list(found) == list(examine.checks())
    assert found["torch"]["status"] == "warning"
    assert found["torch"]["fix"] == "pip install 'agentkv[engine]'"
    assert "torch" in found["agentkv"]["facts"]["missing"]
    assert found["triton"]["text"].startswith("not installed")
    assert found["kernels"]["status"] == found["reuse"]["status"] == "skipped"
    assert not any("the check failed" in c["text"] for c in found.values())
