"""The references agree with what the engine runs, and with the textbook forms."""

from __future__ import annotations

import subprocess
import sys

import torch

import agentkv.kernels
from agentkv.engine.model.config import Rope
from agentkv.engine.model.rope import RopeTable, frequencies
from agentkv.kernels.rms_norm import rms_norm
from agentkv.kernels.rope import interleave, rope


def test_the_package_imports_nothing() -> None:
    # Another project's loader may import this folder under the plain name `kernels`.
    code = f"import sys; sys.path.insert(0, {str(agentkv.kernels.__path__[0] + '/..')!r}); import kernels; "
    code += "assert not {'torch', 'triton', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_rms_norm_is_torchs() -> None:
    x, weight = torch.randn(5, 3, 48), torch.randn(48)
    expected = torch.nn.functional.rms_norm(x, (48,), weight, 1e-5)
    assert torch.allclose(rms_norm(x, weight, 1e-5), expected, atol=1e-6)


def test_rotation_in_pair_order_is_the_rotation_of_halves() -> None:
    heads, dim, rows = 3, 16, 7
    x = torch.randn(rows, heads, dim)
    table = RopeTable(Rope(theta=10000.0), dim, device=torch.device("cpu"))
    positions = torch.tensor([0, 1, 2, 5, 100, 2047, 2048])
    angle = positions[:, None].float() * frequencies(Rope(theta=10000.0), dim)
    cos, sin = angle.cos(), angle.sin()
    # The form that checkpoints are made for: x * cos + rotate_half(x) * sin, halves apart.
    wide_cos, wide_sin = (torch.cat((t, t), -1)[:, None] for t in (cos, sin))
    half = torch.cat((-x[..., dim // 2 :], x[..., : dim // 2]), -1)
    expected = x * wide_cos + half * wide_sin
    # Reordered as `interleave` reorders a projection's rows, both are the same.
    order = interleave(torch.arange(dim)[:, None], dim).ravel()
    paired = x[..., order]
    assert torch.allclose(rope(paired, cos, sin), expected[..., order], atol=1e-5)
    inplace = paired.clone()
    RopeTable.rotate(inplace, table.at(positions))
    assert torch.allclose(inplace, expected[..., order], atol=1e-5)
