r"""Writes report.json to C:\ProgramData\imagegen: the facts of the machine after the last phase."""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING

from imagegen.rehearsal.machine.bundle import HOME
from imagegen.rehearsal.machine.features import SERVICING
from imagegen.rehearsal.machine.updates import CURRENT_VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imagegen.rehearsal.machine.converge import PhaseRun
    from imagegen.rehearsal.machine.kinds.kind import Facts
    from imagegen.rehearsal.machine.windows import Machine

REPORT = HOME + r"\report.json"
INSTALLED = 112


def write_report(run: PhaseRun, plan_sha256: str, facts: Mapping[str, Facts | None]) -> None:
    phases = [{"name": phase.name, **run.state.phases[phase.name].model_dump()} for phase in run.plan.phases]
    resources = [
        {
            "id": item.id,
            "phase": item.phase,
            "step": item.step,
            "kind": item.kind,
            **run.state.resources[item.id].model_dump(),
            "facts": facts.get(item.id),
        }
        for item in run.items
    ]
    report: dict[str, object] = {
        "report_version": 1,
        "plan_sha256": plan_sha256,
        "name": run.plan.name,
        "target": run.plan.target,
        "machine": machine_facts(run.machine),
        "phases": phases,
        "resources": resources,
        "signatures": {
            sha256: "machine" if sha256 in run.state.checked else "host"
            for sha256, signature in sorted(run.plan.signatures.items())
            if signature
        },
        "left_out": {name: one.model_dump() for name, one in run.state.left_out.items()},
    }
    run.machine.before_report(report)
    data = json.dumps(report, separators=(",", ":")).encode("ascii")
    run.machine.files.write(REPORT, data)
    run.transcript.report(REPORT, hashlib.sha256(data).hexdigest())


def machine_facts(machine: Machine) -> dict[str, object]:
    """The machine of a report, and of the result of a check."""
    registry = machine.registry
    packages = SERVICING + r"\Packages"
    updates: set[str] = set()
    for name in registry.subkeys(packages):
        key = f"{packages}\\{name}"
        if registry.number(key, "CurrentState") == INSTALLED:
            # The name of a cumulative update has no KB number, but its InstallLocation has.
            updates.update(re.findall(r"KB[0-9]+", f"{name} {registry.text(key, 'InstallLocation') or ''}"))
    return {
        "product": registry.text(CURRENT_VERSION, "ProductName"),
        "edition": registry.text(CURRENT_VERSION, "EditionID"),
        "installation": registry.text(CURRENT_VERSION, "InstallationType"),
        "build": int(machine.build),
        "ubr": registry.number(CURRENT_VERSION, "UBR"),
        "updates": sorted(updates),
    }
