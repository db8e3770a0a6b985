"""`agentkv bench device`: everything that only a GPU can show, measured part by part.

    roofs     what memory copies and what matrix units multiply, on this device, now
    kernels   decode, extend, cascade, small: right first, then beside roofs and peers
    engine    ttft, decode, shared: a model of 8 billion random weights, end to end

A file gets everything measured so far after each section. A run that was cut short goes on from it,
and repeats the sections that were not completed, or in which something failed.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from agentkv.bench import (
    device_engine,
    device_goals,
    device_kernels,
    device_roofs,
    device_small,
)
from agentkv.bench.check import Report, progress
from agentkv.bench.device_facts import machine
from agentkv.bench.device_run import OutOfTime, Run, Section
from agentkv.bench.device_sizes import DRY, FULL
from agentkv.bench.device_time import Clock

SCHEMA = 1
PARTS = ("roofs", "kernels", "engine")
OUT = Path("agentkv-device.json")

SECTIONS: dict[str, tuple[str, float]] = {
    "roofs": ("Roofs of this device", 10),
    "kernels/decode": ("Decode attention", 110),
    "kernels/extend": ("Extend attention", 50),
    "kernels/cascade": ("Cascade attention", 40),
    "kernels/small": ("Small kernels", 30),
    "engine/ttft": ("Engine: first token of a long prompt", 50),
    "engine/decode": ("Engine: decoding", 130),
    "engine/shared": ("Engine: a batch that shares a prefix", 30),
}
"""Title, and estimated seconds on one H200, compilation included (nobody has measured them yet)."""


class NoDevice(RuntimeError):
    """There is no CUDA device here."""


class BadFile(ValueError):
    """The file to resume from is not one of this bench, or of another machine or size."""


def run(
    *,
    parts: Sequence[str] = PARTS,
    out: Path | None = None,
    resume: Path | None = None,
    seconds: float | None = None,
    dry: bool = False,
    peers: bool = True,
    write: bool = True,
    seed: int = 0,
) -> list[Report]:
    """Measure `parts` and return their tables, with the goals last.

    `out`: where to write (by default `resume`, or agentkv-device.json; a dry run writes only where it
    is told to; nothing is written over a file that is not resumed). `seconds`: begin nothing new after
    so many. `dry`: on the CPU, at sizes that prove the script and nothing else. `write=False`: no file.
    Raises `NoDevice` or `BadFile`.
    """
    device = torch.device("cpu" if dry else "cuda")
    if not dry and not torch.cuda.is_available():
        raise NoDevice(
            "bench device measures a CUDA GPU, and torch sees none here. `agentkv doctor` says why; "
            "`agentkv bench device --dry-run` proves the script on this machine."
        )
    if not dry:
        device = torch.device("cuda", torch.cuda.current_device())
    facts = machine() | {"device": "cpu" if dry else torch.cuda.get_device_name(device)}
    found = {} if resume is None else load(resume, facts, dry=dry)
    target = (out or resume or (None if dry else OUT)) if write else None
    if target is not None and target != resume and target.exists():
        raise BadFile(
            f"{target} is there already: go on with --resume {target}, or give another --out."
        )
    clock = Clock(device, seconds=1e-3, least=1, most=2) if dry else Clock(device)
    deadline = None if seconds is None else time.monotonic() + seconds
    state = Run(device, DRY if dry else FULL, clock, deadline, peers, seed, found)
    for name, work in wanted(state, parts):
        title, estimate = SECTIONS[name]
        section = Section(name, title)
        progress(f"{name} (about {estimate:.0f} s on an H200)")
        began = time.monotonic()
        try:
            work(section)
            section.complete = True
        except OutOfTime as stop:
            section.note(f"cut short at {stop}; go on with --resume")
        except Exception as error:  # what a device raises must not lose what was measured before
            section.failures.append(f"{type(error).__name__}: {error}"[:300])
            section.complete = True
        section.seconds = time.monotonic() - began
        state.found[name] = section
        state.found = {n: state.found[n] for n in SECTIONS if n in state.found}
        if target is not None:
            save(target, state, facts, dry=dry)
        if not section.complete:
            break
    return reports(state, facts, dry=dry, target=target)


def wanted(state: Run, parts: Sequence[str]) -> list[tuple[str, Callable[[Section], None]]]:
    """The sections to run, in order: those of `parts` that are not done, and the roofs that the kernels
    are measured against."""
    made: list[device_engine.Bench] = []

    def engine(name: str) -> Callable[[Section], None]:
        def work(section: Section) -> None:
            if not made:
                made.append(device_engine.Bench(state))
            getattr(made[0], name)(section)

        return work

    work: dict[str, Callable[[Section], None]] = {
        "roofs": lambda s: device_roofs.measure(state, s),
        "kernels/decode": lambda s: device_kernels.decode(state, s),
        "kernels/extend": lambda s: device_kernels.extend(state, s),
        "kernels/cascade": lambda s: device_kernels.cascade(state, s),
        "kernels/small": lambda s: device_small.measure(state, s),
        "engine/ttft": engine("ttft"),
        "engine/decode": engine("decode"),
        "engine/shared": engine("shared"),
    }
    return [
        (name, work[name])
        for name in SECTIONS
        if (name == "roofs" or name.split("/")[0] in parts)
        and not (name in state.found and state.found[name].done)
    ]


def save(path: Path, state: Run, facts: dict[str, Any], *, dry: bool) -> None:
    """Write all sections so far, whole or not at all."""
    value = {
        "schema": SCHEMA,
        "bench": "device",
        "dry_run": dry,
        "machine": facts,
        "sections": {name: section.to_json() for name, section in state.found.items()},
    }
    staged = path.with_name(path.name + ".new")
    staged.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    os.replace(staged, path)


def load(path: Path, facts: dict[str, Any], *, dry: bool) -> dict[str, Section]:
    """The sections of a file. Raises `BadFile`."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        if value["bench"] != "device" or value["schema"] != SCHEMA:
            raise KeyError("bench")
        sections = {n: Section.of(n, v) for n, v in value["sections"].items() if n in SECTIONS}
        before, was_dry = value["machine"], value["dry_run"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadFile(
            f"{path} cannot be resumed: it is no file of bench device ({error})."
        ) from error
    if was_dry != dry:
        raise BadFile(f"{path} is of a {'dry' if was_dry else 'real'} run; start one anew.")
    for key in ("device", "torch", "triton", "agentkv"):
        if before.get(key) != facts.get(key):
            raise BadFile(
                f"{path} was measured with {key} {before.get(key)}, and this is {facts.get(key)}; "
                "start a run of its own with --out."
            )
    return sections


def reports(
    state: Run, facts: dict[str, Any], *, dry: bool, target: Path | None = None
) -> list[Report]:
    """A table for each section, then goals and correctness."""
    tables = []
    for name, section in state.found.items():
        table = Report(name, section.title, section.rows, notes=list(section.notes))
        for failure in section.failures:
            table.check(failure, "failed", "a measurement", ok=False)
        if not section.complete:
            table.check("measured", "in part", "all of it", ok=False)
        tables.append(table)
    last = Report("device", "Goals")
    wrong = device_goals.wrong(state.found)
    last.check("answers that differ from the references", str(len(wrong)), "0", ok=not wrong)
    last.notes += wrong
    if dry:
        last.notes.append("A dry run at tiny sizes on the CPU: no number in it means anything.")
    else:
        for verdict in device_goals.judge(state.found):
            last.check(verdict.goal.name, verdict.said, verdict.goal.target, ok=verdict.met)
    spent = sum(section.seconds for section in state.found.values())
    last.notes.append(
        f"{facts['device']}, driver {facts['driver'] or 'none'}, torch {facts['torch']}, triton "
        f"{facts['triton']}, {spent:.0f} s" + (f"; all of it in {target}" if target else "")
    )
    return [*tables, last]
