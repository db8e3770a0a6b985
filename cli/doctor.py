"""`agentkv doctor`: what is here, what works, and which command helps where something does not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from agentkv.cli.output import Json, print_json

if TYPE_CHECKING:
    from agentkv.doctor.finding import Finding


def doctor(
    quick: Annotated[
        bool, typer.Option("--quick", help="Leave out the model and Triton's interpreter.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Exit status 1 when a check finds a problem; warnings do not count."""
    from agentkv.doctor.examine import examine, findings
    from agentkv.doctor.finding import Examination

    if as_json:
        examination = examine(quick=quick)
        print_json(examination.to_json())
    else:
        examination = Examination([])
        for finding in findings(quick=quick):
            examination.findings.append(finding)
            _print(finding)
    raise typer.Exit(0 if examination.ok else 1)


def _print(finding: Finding) -> None:
    print(f"{finding.status:8} {finding.check:12} {finding.text}", flush=True)
    if finding.fix is not None:
        print(f"{'':21} -> {finding.fix}", flush=True)
