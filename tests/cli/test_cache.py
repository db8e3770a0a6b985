"""`agentkv cache` on a directory: what it says is what is there, and it believes no file."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentkv.engine.kv.disk import DiskStore, open_index
from agentkv.engine.kv.inspect import CacheDirectory, age_of
from agentkv.engine.kv.store import Layout, tag_of

Run = Callable[..., Any]

PAGE, BYTES = 16, 2048
LAYOUT = Layout("f" * 40, "float32", PAGE, 2, 1, 4, BYTES)
SPACE, OTHER = (("salt", None),), (("salt", "secret-salt"),)


def prefix(seed: int, pages: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 200, pages * PAGE).astype(np.int32)


def content(count: int, seed: int) -> list[memoryview]:
    rng = np.random.default_rng(seed)
    return [memoryview(rng.bytes(BYTES)) for _ in range(count)]


def fill(folder: Path, layout: Layout = LAYOUT, label: str | None = "tiny") -> None:
    """Three groups of one prefix in a chain, one of another namespace; the first is read twice."""
    store = DiskStore(folder, layout, limit=1 << 30, label=label)
    a, b = prefix(1, 6), prefix(2, 2)
    first = store.write(SPACE, a[: 2 * PAGE], 0, content(2, 1))
    store.write(SPACE, a[: 4 * PAGE], 2 * PAGE, content(2, 2))
    store.write(SPACE, a, 4 * PAGE, content(2, 3))
    store.write(OTHER, b, 0, content(2, 4))
    for _ in range(2):
        list(store.read(SPACE, a[: 2 * PAGE], first))
    store.close()


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    fill(tmp_path / "cache")
    return tmp_path / "cache"


def listed(agentkv: Run, cache: Path, *arguments: str) -> list[dict[str, Any]]:
    ran = agentkv("cache", "ls", str(cache), "--json", *arguments)
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)
    assert found["schema"] == 1
    groups: list[dict[str, Any]] = found["groups"]
    return groups


def test_ls_and_top_and_stats(agentkv: Run, cache: Path) -> None:
    groups = listed(agentkv, cache)
    assert [(g["start"], g["tokens"]) for g in groups] == [(0, 32), (0, 32), (32, 32), (64, 32)]
    assert {g["model"] for g in groups} == {"tiny"}
    assert [g["start"] for g in listed(agentkv, cache, "--namespace", tag_of(OTHER)[:8])] == [0]
    assert len(listed(agentkv, cache, "-n", "2")) == 2
    top = json.loads(agentkv("cache", "top", str(cache), "-n", "1", "--json").out)["groups"]
    assert (top[0]["start"], round(top[0]["uses"])) == (0, 2) and top[0]["namespace"] == tag_of(
        SPACE
    )
    stats = json.loads(agentkv("cache", "stats", str(cache), "--json").out)
    assert stats["used_by"] is None and stats["groups"] == 4
    (layout,) = stats["layouts"]
    files = sum(f.stat().st_size for f in (cache / "groups").iterdir())
    assert (layout["tokens"], layout["bytes"], layout["namespaces"]) == (128, files, 2)
    assert layout["fingerprint"] == LAYOUT.model
    for command in ("ls", "top", "stats"):
        ran = agentkv("cache", command, str(cache))
        assert ran.code == 0 and "tiny" in ran.out and "secret" not in ran.out


def test_a_directory_of_an_earlier_index_has_its_layouts_read_from_its_files(
    agentkv: Run, cache: Path
) -> None:
    db = open_index(cache)
    db.execute("DROP TABLE layouts")
    db.commit()
    db.close()
    assert {g["model"] for g in listed(agentkv, cache)} == {LAYOUT.model[:16]}


def test_inspect_shows_facts_and_no_text_unless_it_is_asked(
    agentkv: Run, cache: Path, tiny_llama_dir: Path
) -> None:
    last = listed(agentkv, cache)[-1]
    ran = agentkv("cache", "inspect", str(cache), last["name"][:10], "--json")
    found = json.loads(ran.out)
    assert ran.code == 0 and found["sound"] and found["ids"] == 32
    assert len(found["chain"]) == 3 and found["chain"][-1] == last["name"]
    assert found["layout"]["page_size"] == PAGE and "text" not in found
    assert agentkv("cache", "inspect", str(cache), last["name"], "--text").code == 2
    told = agentkv(
        "cache", "inspect", str(cache), last["name"], "--json", "--text",
        "--tokenizer", str(tiny_llama_dir),
    )  # fmt: skip
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(tiny_llama_dir / "tokenizer.json"))
    ids = prefix(1, 6)[64:].tolist()
    assert json.loads(told.out)["text"] == tokenizer.decode(ids, skip_special_tokens=False)
    for name in ("", "zz", "no-such"):
        assert agentkv("cache", "inspect", str(cache), name).code == 2


def damage(cache: Path, start: int, namespace: Any = SPACE) -> str:
    with CacheDirectory(cache) as there:
        (entry,) = (e for e in there.entries() if (e.start, e.tag) == (start, tag_of(namespace)))
        file = there.file(entry.name)
    data = bytearray(file.read_bytes())
    data[-5] ^= 1
    file.write_bytes(data)
    return entry.name


def test_verify_finds_what_is_wrong_and_repair_removes_it(agentkv: Run, cache: Path) -> None:
    ran = agentkv("cache", "verify", str(cache), "--json")
    assert ran.code == 0
    assert json.loads(ran.out) == {"schema": 1, "groups": 4, "damaged": [], "removed": 0}
    bad = damage(cache, 32)
    (cache / "groups" / "stray.kv").write_bytes(b"x")
    ran = agentkv("cache", "verify", str(cache), "--json")
    found = {d["name"]: d["why"] for d in json.loads(ran.out)["damaged"]}
    assert ran.code == 1 and set(found) == {bad, "stray.kv"} and "checksum" in found[bad]
    assert agentkv("cache", "inspect", str(cache), bad).code == 1
    ran = agentkv("cache", "verify", str(cache), "--repair", "--json")
    assert ran.code == 1 and json.loads(ran.out)["removed"] == 2  # with what hung from it
    assert agentkv("cache", "verify", str(cache)).code == 0
    assert [g["start"] for g in listed(agentkv, cache)] == [0, 0]
    assert len(list((cache / "groups").iterdir())) == 2
    (cache / "groups" / f"{listed(agentkv, cache)[0]['name']}.kv").unlink()
    assert "missing" in agentkv("cache", "verify", str(cache)).out


@pytest.mark.parametrize("keep", [0, 5, 100, -1])
def test_verify_finds_a_file_that_was_cut_or_grew(agentkv: Run, cache: Path, keep: int) -> None:
    file = cache / "groups" / f"{listed(agentkv, cache)[-1]['name']}.kv"
    whole = file.read_bytes()
    file.write_bytes(whole[:keep])
    assert agentkv("cache", "verify", str(cache)).code == 1
    file.write_bytes(whole + b"x")
    assert agentkv("cache", "verify", str(cache)).code == 1
    file.write_bytes(whole)
    assert agentkv("cache", "verify", str(cache)).code == 0


def test_export_and_import_take_everything_that_is_needed(
    agentkv: Run, cache: Path, tmp_path: Path
) -> None:
    file, there = tmp_path / "out.tar", tmp_path / "there"
    last = listed(agentkv, cache)[-1]["name"]
    ran = agentkv("cache", "export", str(cache), str(file), "--name", last[:12], "--json")
    assert ran.code == 0 and json.loads(ran.out)["groups"] == 3  # and what it hangs from
    assert file.stat().st_mode & 0o077 == 0
    assert agentkv("cache", "export", str(cache), str(file)).code == 2  # never over a file
    ran = agentkv("cache", "import", str(there), str(file), "--json")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["groups"] == 3
    names = {g["name"] for g in listed(agentkv, there)}
    assert not names & {g["name"] for g in listed(agentkv, cache)}  # names are made anew
    assert agentkv("cache", "verify", str(there)).code == 0
    store = DiskStore(there, LAYOUT, limit=1 << 30)
    ids = prefix(1, 6)
    found = store.cover(SPACE, ids)
    pages = [bytes(p) for f in found for p in store.read(SPACE, f.ids[f.start :], f.slots)]
    assert pages == [bytes(p) for seed in (1, 2, 3) for p in content(2, seed)]
    store.close()
    again = json.loads(agentkv("cache", "import", str(there), str(file), "--json").out)
    assert (again["groups"], again["known"]) == (0, 3)
    assert len(listed(agentkv, there)) == 3


def test_export_leaves_out_what_is_damaged(agentkv: Run, cache: Path, tmp_path: Path) -> None:
    bad = damage(cache, 32)
    file = tmp_path / "out.tar"
    ran = agentkv("cache", "export", str(cache), str(file), "--json")
    found = json.loads(ran.out)
    assert ran.code == 1 and found["groups"] == 2
    assert len(found["damaged"]) == 2 and bad in found["damaged"]
    assert agentkv("cache", "import", str(tmp_path / "there"), str(file)).code == 0


def test_import_refuses_another_layout(agentkv: Run, cache: Path, tmp_path: Path) -> None:
    file, there = tmp_path / "out.tar", tmp_path / "there"
    agentkv("cache", "export", str(cache), str(file))
    fill(there, replace(LAYOUT, dtype="bfloat16"), "other")
    ran = agentkv("cache", "import", str(there), str(file))
    assert ran.code == 2 and "another layout" in ran.err and "--new-layout" in ran.err
    assert len(listed(agentkv, there)) == 4
    assert agentkv("cache", "import", str(there), str(file), "--new-layout").code == 0
    assert {g["model"] for g in listed(agentkv, there)} == {"tiny", "other"}
    assert agentkv("cache", "verify", str(there)).code == 0


def rebuilt(file: Path, change: Callable[[dict[str, Any], dict[str, bytes]], None]) -> None:
    with tarfile.open(file) as tar:
        data = {m.name: tar.extractfile(m).read() for m in tar.getmembers()}  # type: ignore[union-attr]
    index = json.loads(data.pop("index.json"))
    change(index, data)
    file.unlink()
    with tarfile.open(file, "w") as tar:
        for name, body in {"index.json": json.dumps(index).encode(), **data}.items():
            member = tarfile.TarInfo(name)
            member.size = len(body)
            path = file.with_suffix(".part")
            path.write_bytes(body)
            with path.open("rb") as source:
                tar.addfile(member, source)


@pytest.mark.parametrize(
    "fault",
    ["page", "ids", "namespace", "start", "parent", "name", "layout", "gone", "schema", "model"],
)
def test_import_believes_nothing(agentkv: Run, cache: Path, tmp_path: Path, fault: str) -> None:
    file, there = tmp_path / "out.tar", tmp_path / "there"
    agentkv("cache", "export", str(cache), str(file))

    def change(index: dict[str, Any], data: dict[str, bytes]) -> None:
        group = index["groups"][-1]
        name = f"groups/{group['name']}.kv"
        if fault in ("page", "ids"):
            body = bytearray(data[name])
            body[-9 if fault == "page" else 14 + body[10] + 256 * body[11] + 2] ^= 4
            data[name] = bytes(body)
        elif fault == "namespace":
            group["namespace"] = "0" * 32
        elif fault == "start":
            group["start"] -= PAGE
        elif fault == "parent":
            group["parent"] = "0" * 32
        elif fault == "name":
            data["groups/../../evil.kv"] = data.pop(name)
            group["name"] = "../../evil"
        elif fault == "layout":
            group["layout"] = "0" * 32
        elif fault == "gone":
            del data[name]
        elif fault == "schema":
            index["schema"] = 2
        else:
            index["layouts"][LAYOUT.key]["facts"]["model"] = "another"

    rebuilt(file, change)
    ran = agentkv("cache", "import", str(there), str(file))
    assert ran.code == 2 and ran.err.startswith("error: ")
    assert not (there / "groups").exists() and not (tmp_path / "evil.kv").exists()


def test_import_of_what_is_no_export(agentkv: Run, tmp_path: Path) -> None:
    file = tmp_path / "out.tar"
    for data in (b"", b"text" * 500):
        file.write_bytes(data)
        assert agentkv("cache", "import", str(tmp_path / "there"), str(file)).code == 2
    assert agentkv("cache", "import", str(tmp_path / "there"), str(tmp_path / "no")).code == 2


def test_purge_by_age_model_and_namespace(agentkv: Run, cache: Path) -> None:
    fill(cache, replace(LAYOUT, model="e" * 40), "other")
    assert agentkv("cache", "purge", str(cache)).code == 2
    assert agentkv("cache", "purge", str(cache), "--all", "--model", "tiny").code == 2
    ran = agentkv("cache", "purge", str(cache), "--model", "nobody")
    assert ran.code == 2 and "other, tiny" in ran.err
    assert agentkv("cache", "purge", str(cache), "--older-than", "soon").code == 2
    ran = agentkv("cache", "purge", str(cache), "--model", "eeee", "--json")
    assert json.loads(ran.out)["groups"] == 4
    space = tag_of(OTHER)
    assert "1 groups" in agentkv("cache", "purge", str(cache), "--namespace", space).out
    db = open_index(cache)
    db.execute("UPDATE groups SET used = ? WHERE start != 32", (time.time() - 8 * 86400,))
    db.commit()
    db.close()
    # Old, but something that is in use hangs from the first one.
    ran = agentkv("cache", "purge", str(cache), "--older-than", "7d", "--json")
    assert json.loads(ran.out)["groups"] == 1
    assert [g["start"] for g in listed(agentkv, cache)] == [0, 32]
    assert agentkv("cache", "purge", str(cache), "--all").code == 0
    assert listed(agentkv, cache) == [] and list((cache / "groups").iterdir()) == []


def test_ages() -> None:
    assert [age_of(t) for t in ("90m", "12h", "7d", "1.5w", "0s")] == [
        5400, 43200, 604800, 907200, 0,
    ]  # fmt: skip


def test_beside_a_server_reading_works_and_changing_says_who_is_there(
    agentkv: Run, cache: Path, tmp_path: Path
) -> None:
    store = DiskStore(cache, LAYOUT, limit=1 << 30)
    try:
        assert len(listed(agentkv, cache)) == 4
        new = prefix(9, 2)
        store.write(SPACE, new, 0, content(2, 9))
        assert len(listed(agentkv, cache)) == 5
        stats = json.loads(agentkv("cache", "stats", str(cache), "--json").out)
        assert stats["used_by"] == f"process {os.getpid()}"
        assert agentkv("cache", "verify", str(cache)).code == 0
        file = tmp_path / "out.tar"
        assert agentkv("cache", "export", str(cache), str(file)).code == 0
        damage(cache, 64)
        for command in (
            ("purge", str(cache), "--all"),
            ("verify", str(cache), "--repair"),
            ("import", str(cache), str(file)),
        ):
            ran = agentkv("cache", *command)
            assert ran.code == 3 and f"process {os.getpid()}" in ran.err
        assert len(listed(agentkv, cache)) == 5
    finally:
        store.close()


@pytest.mark.parametrize("command", ["ls", "top", "stats", "verify", "purge", "export"])
def test_what_is_no_cache_is_said(agentkv: Run, tmp_path: Path, command: str) -> None:
    more = {"purge": ["--all"], "export": [str(tmp_path / "x.tar")]}.get(command, [])
    ran = agentkv("cache", command, str(tmp_path), *more)
    assert ran.code == 3 and "no disk cache" in ran.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["verify", "purge", "export", "import"])
def test_a_server_is_no_directory(agentkv: Run, tmp_path: Path, command: str) -> None:
    file = str(tmp_path / "x.tar")
    more = {"purge": ["--all"], "export": [file], "import": [file]}.get(command, [])
    ran = agentkv("cache", command, "http://127.0.0.1:8080", *more)
    assert ran.code == 2 and "http://127.0.0.1:8080 is a server" in ran.err


@pytest.fixture
def read_only() -> Iterator[Path]:
    """A cache that somebody else owns, and nobody may write."""
    folder = Path(tempfile.mkdtemp(prefix="agentkv-test-"))
    fill(folder)
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming somebody else takes root")
def test_a_directory_that_may_only_be_read(read_only: Path) -> None:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setgid(65534)
            os.setuid(65534)
            with CacheDirectory(read_only) as there:
                if len(there.entries()) == 4 and there.verify() == [] and there.holder() is None:
                    code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def test_no_engine_is_loaded(cache: Path) -> None:
    code = (
        "import sys\nsys.argv[1:] = ['cache', 'stats', sys.argv[1]]\n"
        "from agentkv.cli.main import main\n"
        "try:\n    main()\nfinally:\n"
        "    print(sorted({'torch', 'transformers', 'redis'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(cache)], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_what_was_exported_is_a_hit_elsewhere(
    agentkv: Run, make_engine: Callable[..., Any], tmp_path: Path
) -> None:
    from agentkv.engine import SamplingParams

    params = SamplingParams(max_tokens=4, temperature=0.0)
    ids = np.random.default_rng(3).integers(10, 200, 120).tolist()
    options = {"page_size": 16, "load_policy": "always"}
    engine = make_engine(disk_cache=str(tmp_path / "a"), **options)
    first = engine.generate(ids, params).choices[0].token_ids
    engine.close()
    file = str(tmp_path / "out.tar")
    assert agentkv("cache", "export", str(tmp_path / "a"), file).code == 0
    assert agentkv("cache", "import", str(tmp_path / "b"), file).code == 0
    assert {g["model"] for g in listed(agentkv, tmp_path / "b")} == {"tiny"}
    engine = make_engine(disk_cache=str(tmp_path / "b"), **options)
    out = engine.generate(ids, params)
    assert out.cache.cached_by_tier["disk"] == 112 and out.choices[0].token_ids == first
