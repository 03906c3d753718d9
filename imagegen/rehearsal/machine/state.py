r"""state.json in C:\ProgramData\imagegen: what earlier runs of this plan did."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import pydantic

from imagegen.record.report import LeftOut
from imagegen.rehearsal.machine.bundle import HOME
from imagegen.steps.resource import Strict

if TYPE_CHECKING:
    from imagegen.rehearsal.machine.events import Transcript
    from imagegen.rehearsal.machine.windows import Machine

STATE = HOME + r"\state.json"
# A crash in the middle of a move leaves this file, which is complete.
NEW = STATE + ".new"


PhaseStatus = Literal["started", "finished", "failed"]
ResourceStatus = Literal["ok", "setting", "changed", "failed"]


class PhaseRecord(Strict):
    """The state of a phase."""

    status: PhaseStatus
    changed: int
    restart: bool
    ms: int


class ResourceRecord(Strict):
    """What was done to a resource. `setting`: a run began to set it, and no run has found it as planned since."""

    status: ResourceStatus
    ms: int


class _Saved(Strict):
    state_version: Literal[1]
    plan_sha256: str
    phases: dict[str, PhaseRecord]
    resources: dict[str, ResourceRecord]
    signatures: list[str]
    left_out: dict[str, LeftOut]


class State:
    """The records of one plan on one machine. Every change is written at once."""

    def __init__(self, machine: Machine, plan_sha256: str, phase_of: dict[str, str]) -> None:
        self._machine = machine
        self._plan_sha256 = plan_sha256
        self._phase_of = phase_of
        self.phases: dict[str, PhaseRecord] = {}
        self.resources: dict[str, ResourceRecord] = {}
        self.checked: set[str] = set()
        """The sha256 of the files whose signature Windows accepted."""
        self.left_out: dict[str, LeftOut] = {}

    def read(self, transcript: Transcript) -> None:
        """Read the state of earlier runs, and report what cannot be used."""
        for path in (STATE, NEW):
            if not self._machine.files.is_file(path):
                continue
            try:
                saved = _Saved.model_validate_json(self._machine.files.read(path))
            except pydantic.ValidationError:
                transcript.say(f"discarded {path}: it is not a complete state of version 1")
                continue
            if saved.plan_sha256 == self._plan_sha256:
                self.phases, self.resources = dict(saved.phases), dict(saved.resources)
                self.checked, self.left_out = set(saved.signatures), dict(saved.left_out)
                return
            transcript.say(f"discarded {path}: it is the state of another plan")

    def changed_in(self, phase: str) -> int:
        """How many resources of the phase any run changed."""
        return self._count(phase, "changed")

    def is_begun(self, phase: str) -> bool:
        """Whether a run of the phase changed something, began to, or needed a restart."""
        record = self.phases.get(phase)
        return (record is not None and record.restart) or self._count(phase, "changed", "setting") > 0

    def _count(self, phase: str, *statuses: ResourceStatus) -> int:
        records = [record for known, record in self.resources.items() if self._phase_of.get(known) == phase]
        return sum(record.status in statuses for record in records)

    def keep_phase(self, name: str, status: PhaseStatus, *, restart: bool, ms: int) -> None:
        self.phases[name] = PhaseRecord(status=status, changed=0, restart=restart, ms=ms)
        self._save()

    def mark_restart(self, name: str) -> None:
        """Save that a restart is needed, before anything else can fail."""
        self.phases[name] = self.phases[name].model_copy(update={"restart": True})
        self._save()

    def keep_resource(self, identity: str, status: ResourceStatus, ms: int) -> None:
        """Save a status. `changed` is never overwritten, `setting` only by `changed`: a failed set may change it."""
        known = self.resources.get(identity)
        if status == "changed" or known is None or known.status not in ("changed", "setting"):
            self.resources[identity] = ResourceRecord(status=status, ms=ms)
        self._save()

    def _save(self) -> None:
        self.phases = {
            name: record.model_copy(update={"changed": self.changed_in(name)}) for name, record in self.phases.items()
        }
        saved = _Saved(
            state_version=1,
            plan_sha256=self._plan_sha256,
            phases=self.phases,
            resources=self.resources,
            signatures=sorted(self.checked),
            left_out=self.left_out,
        )
        self._machine.files.write(NEW, saved.model_dump_json().encode())
        self._machine.files.move(NEW, STATE)
