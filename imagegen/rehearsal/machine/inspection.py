"""-Check on the model machine: test every resource, change nothing, and print the result of a check."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from imagegen.rehearsal.machine.arguments import ALL, EntryArguments
from imagegen.rehearsal.machine.bundle import HOME
from imagegen.rehearsal.machine.converge import elapsed_ms, inspect
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.machine.report import machine_facts
from imagegen.rehearsal.machine.stop import Exit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imagegen.rehearsal.machine.events import Transcript
    from imagegen.rehearsal.machine.plan import Item, Phase, Plan
    from imagegen.rehearsal.machine.windows import Machine

CHECK_MARK: Final = "imagegen-check: "
"""What the line with the result of a check begins with."""
FIRST_BOOT_LOG: Final = r"C:\Windows\Setup\Scripts\first-boot.log"
_STATE: Final = rf"{HOME}\state.json"


def run_inspection(
    machine: Machine, given: EntryArguments, plan: Plan, items: Sequence[Item], transcript: Transcript
) -> Exit:
    """Test the resources of the given phases. One that cannot be read does not keep the others from being tested."""
    # SetupComplete.cmd writes the log at a node's first boot. Only a build has a state: then its base image was a node.
    booted = machine.files.is_file(FIRST_BOOT_LOG) and not machine.files.is_file(_STATE)
    inspection = _Inspection(machine, transcript, booted)
    for phase in (phase for phase in plan.phases if given.phase in (ALL, phase.name)):
        inspection.run(phase, [item for item in items if item.phase == phase.name and not item.repeated])
    result = {
        "check_version": 1,
        "plan_sha256": given.plan_sha256,
        "name": plan.name,
        "target": plan.target,
        "phase": given.phase,
        "node": machine.host_name,
        "booted": booted,
        "machine": machine_facts(machine),
        "count": inspection.count,
        "resources": inspection.tested,
    }
    transcript.say(CHECK_MARK + json.dumps(result, separators=(",", ":")))
    if inspection.count["failed"]:
        return Exit.FAILED
    return Exit.DRIFT if inspection.count["drifted"] else Exit.DONE


class _Inspection:
    """What was found so far."""

    def __init__(self, machine: Machine, transcript: Transcript, booted: bool) -> None:
        self._machine, self._transcript, self._booted = machine, transcript, booted
        self.count = dict.fromkeys(("ok", "drifted", "skipped", "failed"), 0)
        self.tested: list[dict[str, object]] = []

    def run(self, phase: Phase, items: Sequence[Item]) -> None:
        began, failures = self._machine.clock(), list[str]()
        self._tell(phase, "started", items)
        for item in items:
            lap = self._machine.clock()
            status, reasons = self._test(item)
            self.count[status] += 1
            ms = elapsed_ms(self._machine, lap)
            self._transcript.resource(item.phase, item.id, status, ms, "; ".join(reasons))
            self.tested.append({"id": item.id, "status": status, "reasons": reasons})
            failures += [item.failure(reasons[0])] if status == "failed" else []
        end = "failed" if failures else "finished"
        self._tell(phase, end, items, elapsed_ms(self._machine, began), "".join(failures[:1]))

    def _test(self, item: Item) -> tuple[str, list[str]]:
        if self._booted and item.until is not None:
            return "skipped", ["a node may change it after its first boot"]
        try:
            _, reasons = inspect(self._machine, item)
        except RefusedByWindows as refusal:
            return "failed", [str(refusal)]
        return ("drifted" if reasons else "ok"), reasons

    def _tell(self, phase: Phase, status: str, items: Sequence[Item], ms: int = 0, reason: str = "") -> None:
        self._transcript.phase(phase.name, status, resources=len(items), changed=0, restart=False, ms=ms, reason=reason)
