"""Compile kernels for a GPU that is not there, and read what they cost from the result.

Inside `compile_only("sm_90")` every operation of this package takes its Triton path and every launch
compiles instead of running, with CPU tensors in the place of the device's: the operation's own code
chooses tiles, warps and stages as it would there. What operations return is garbage.

Not in a process that interprets kernels. One process compiles for one target after the other; a fault
in the compiler may end the process.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from agentkv.kernels.device import INTERPRETED, compiling_for
from agentkv.kernels.jit import triton


@dataclass(frozen=True, slots=True)
class Target:
    """An architecture. `shared`: bytes that one program may take; `unit_shared`: bytes that a
    multiprocessor has. `matrix`: how the names of its matrix instructions begin."""

    backend: str
    name: int | str
    warp: int
    shared: int
    unit_shared: int
    matrix: tuple[str, ...]
    registers: int = 65536
    warps: int = 64


TARGETS = {
    "sm_80": Target("cuda", 80, 32, 163 << 10, 164 << 10, ("HMMA",)),
    "sm_86": Target("cuda", 86, 32, 99 << 10, 100 << 10, ("HMMA",), warps=48),
    "sm_90": Target("cuda", 90, 32, 227 << 10, 228 << 10, ("HMMA", "HGMMA")),
    "sm_100": Target("cuda", 100, 32, 227 << 10, 228 << 10, ("HMMA", "UTCHMMA")),
    "gfx942": Target("hip", "gfx942", 64, 64 << 10, 64 << 10, ("v_mfma",), 4 * 512 * 64, 32),
}


@dataclass(frozen=True, slots=True)
class Row:
    """One compiled kernel.

    `registers`: of a thread. `spills`: bytes of a thread's registers in memory. `shared`: bytes of a
    program. `matrix`: matrix instructions, `matrix_kind`: how most of them are called (HMMA is a
    warp's, HGMMA and UTCHMMA are those of a group of warps). `wide_loads`: instructions that load 16 bytes a lane (from
    global memory, to registers or to shared memory). `programs`: how many fit a multiprocessor at
    once, by registers, shared memory and warps.
    """

    kernel: str
    target: str
    registers: int
    spills: int
    shared: int
    warps: int
    matrix: int
    matrix_kind: str
    wide_loads: int
    programs: int
    opcodes: dict[str, int] = field(default_factory=dict, repr=False, compare=False)


@contextlib.contextmanager
def compile_only(target: str) -> Iterator[list[Row]]:
    """Yields the list that a `Row` of every launch is appended to."""
    if triton is None:
        raise RuntimeError("compiling needs Triton: pip install triton")
    if INTERPRETED:
        raise RuntimeError("a process with TRITON_INTERPRET=1 cannot compile; unset it")
    from triton.runtime import driver
    from triton.runtime.jit import JITFunction

    rows: list[Row] = []

    def launcher(kernel: Any, grid: Any) -> Any:
        def launch(*args: Any, **named: Any) -> None:
            rows.append(_inspect(kernel.warmup(*args, grid=grid, **named), target))

        return launch

    original = JITFunction.__getitem__
    JITFunction.__getitem__ = launcher
    driver.set_active(_Driver(target))
    try:
        with compiling_for(target):
            yield rows
    finally:
        JITFunction.__getitem__ = original
        driver._active = None  # `reset_active` would look for a device


class _Driver:
    """As much of a driver as compiling asks for."""

    def __init__(self, target: str) -> None:
        self._target = target

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        facts = TARGETS[self._target]
        return GPUTarget(facts.backend, facts.name, facts.warp)

    def get_current_device(self) -> int:
        return list(TARGETS).index(self._target)  # compiled kernels are kept by device

    def get_current_stream(self, device: int | None = None) -> int:
        return 0

    def map_python_to_cpp_type(self, name: str) -> str:
        return name


def _inspect(compiled: Any, target: str) -> Row:
    facts, warps = TARGETS[target], compiled.metadata.num_warps
    read = _read_nvidia if "cubin" in compiled.asm else _read_amd
    registers, spills, opcodes = read(compiled.asm)
    wide = r"(LDGSTS|LDG|UTMALDG).*\.128|UTMALDG|(global|buffer)_load_dwordx4"
    shared = compiled.metadata.shared
    matrix = Counter({op: n for op, n in opcodes.items() if op.startswith(facts.matrix)})
    return Row(
        kernel=compiled.metadata.name.removeprefix("_"),
        target=target,
        registers=registers,
        spills=spills,
        shared=shared,
        warps=warps,
        matrix=matrix.total(),
        matrix_kind=matrix.most_common(1)[0][0].split(".")[0] if matrix else "",
        wide_loads=sum(n for op, n in opcodes.items() if re.match(wide, op)),
        programs=_programs(facts, registers, shared, warps),
        opcodes=opcodes,
    )


def _programs(facts: Target, registers: int, shared: int, warps: int) -> int:
    # Registers are given to a warp in lots of 256 (NVIDIA); 1 KiB of shared memory is the system's.
    lot = 256 if facts.backend == "cuda" else 8 * facts.warp
    each = -(-max(1, registers) * facts.warp // lot) * lot
    own = shared + (1024 if facts.backend == "cuda" else 0)
    by_shared = facts.unit_shared // own if own else facts.warps
    return min(facts.registers // (each * warps), by_shared, facts.warps // warps)


def _read_nvidia(asm: dict[str, Any]) -> tuple[int, int, dict[str, int]]:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(asm["cubin"])
        file.flush()
        usage = _tool("cuobjdump", "-res-usage", file.name)
        code = _tool("nvdisasm", "-c", file.name)
    found = re.search(r"REG:(\d+) STACK:(\d+) SHARED:\d+ LOCAL:(\d+)", usage)
    if found is None:
        raise RuntimeError("cuobjdump says nothing of registers:\n" + usage)
    names = re.findall(
        r"^\s+(?:/\*[0-9a-f]+\*/\s+)?(?:@!?U?P\d+\s+)?([A-Z][A-Z0-9_]*(?:\.[A-Za-z0-9_]+)*)",
        code,
        re.M,
    )
    # Spilled registers are counted as stack.
    return int(found[1]), int(found[2]) + int(found[3]), dict(Counter(names))


def _read_amd(asm: dict[str, Any]) -> tuple[int, int, dict[str, int]]:
    code = asm["amdgcn"]

    def fact(name: str) -> int:
        found = re.search(rf"\.{name}:\s+(\d+)", code)
        if found is None:
            raise RuntimeError(f"the assembly does not say {name}")
        return int(found[1])

    # Scalar registers spill into lanes of vector registers, not into memory.
    spills = 4 * fact("vgpr_spill_count") + fact("private_segment_fixed_size")
    return fact("vgpr_count"), spills, dict(Counter(re.findall(r"^\s+([a-z]\w+)\b", code, re.M)))


def _tool(name: str, *args: str) -> str:
    path = getattr(triton.knobs.nvidia, name).path
    done = subprocess.run([path, *args], capture_output=True, text=True, check=True)
    return done.stdout
