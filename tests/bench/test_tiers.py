"""The benches of the tiers, small: what they count is what they say."""

from __future__ import annotations

from pathlib import Path

from agentkv.bench import costs, index, tiers


def test_lower_tiers_restore_what_a_small_pool_loses(tiny_llama_dir: Path) -> None:
    report = tiers.run(
        str(tiny_llama_dir), clients=4, turns=3, new_tokens=64, answer_tokens=8, pool_share=0.25,
        parallel=1, dtype="float32", host="8MiB",
    )  # fmt: skip
    rows = {str(row["run"]): row for row in report.rows}
    assert rows["cache off"]["hit"] == 0
    assert rows["pool + host"]["host"] > 0 and rows["pool only"]["host"] == 0
    oracle = rows["oracle (all in the pool)"]["hit"]
    assert rows["pool only"]["hit"] < rows["pool + host"]["hit"] <= oracle
    answers = [c for c in report.checks if "answers" in c.name]
    assert len(answers) == 4 and all(c.ok for c in answers)


def test_a_restarted_engine_reads_from_disk(tiny_llama_dir: Path) -> None:
    report = tiers.restart(str(tiny_llama_dir), turns=4, dtype="float32", repeats=1)
    same = next(c for c in report.checks if "answers" in c.name)
    assert same.ok and report.rows[0]["files_mib"] > 0


def test_an_index_of_many_groups_is_read_and_no_file_is_opened() -> None:
    report = index.run(0.25, repeats=1)
    (row,) = report.rows
    assert row["groups"] > 200 and row["tokens"] > 10_000
    checks = {c.name: c for c in report.checks}
    assert checks["files opened"].ok and checks["prefixes not found whole"].ok


def test_expected_and_measured_costs_are_told_apart(tiny_llama_dir: Path) -> None:
    loads, slow = costs.run(
        str(tiny_llama_dir), sizes=(128, 256), rounds=3, dtype="float32", patience=0.0
    )
    tiers_seen = {row["tier"] for row in loads.rows}
    assert tiers_seen == {"host", "disk"}
    assert all(row["measured_ms"] > 0 and row["loads"] >= 1 for row in loads.rows)
    assert slow.rows[-1]["what"] == "fast again"
