"""Hash traces as tokens: equal ids are equal tokens, and only those."""

from __future__ import annotations

import json
from pathlib import Path

from agentkv.bench.blocks import block_tokens, read_block_trace


def write(path: Path, *rows: tuple[int, int, list[int]]) -> Path:
    names = ("input_length", "output_length", "hash_ids")
    path.write_text("".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows))
    return path


def test_blocks_depend_on_their_id_alone_and_differ() -> None:
    assert block_tokens(7, 8, 32_000, 0).tolist() == block_tokens(7, 8, 32_000, 0).tolist()
    assert len({block_tokens(i, 8, 32_000, 0).tobytes() for i in range(5000)}) == 5000
    tokens = block_tokens(12_345, 64, 100, 3)
    assert tokens.min() >= 0 and tokens.max() < 100 and len(set(tokens.tolist())) > 20


def test_lengths_are_scaled_and_prefixes_shared(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", (1000, 130, [1, 2]), (1024, 1, [1, 3]), (10, 0, [1]))
    a, b, c = read_block_trace(path, limit=10)
    assert [len(r.prompt) for r in (a, b, c)] == [16, 16, 1]
    assert [r.output_tokens for r in (a, b, c)] == [3, 1, 1]
    assert a.prompt[:8].tolist() == b.prompt[:8].tolist()
    assert a.prompt[8:].tolist() != b.prompt[8:].tolist()
    assert c.prompt[0] == a.prompt[0]
    assert len(read_block_trace(path, limit=2)) == 2
