r"""state.json: what earlier runs of this plan did; read from and written to C:\ProgramData\imagegen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import pydantic

from imagegen.rehearsal.machine.bundle import HOME
from imagegen.rehearsal.machine.stop import Exit, StopError
from imagegen.resources.model import Strict

if TYPE_CHECKING:
    from imagegen.rehearsal.machine.windows import Machine

STATE = HOME + r"\state.json"


class PhaseRecord(Strict):
    """How a phase stands."""

    status: Literal["started", "finished", "failed"]
    changed: int
    restart: bool
    ms: int


class ResourceRecord(Strict):
    """What was done to a resource under this plan."""

    status: Literal["ok", "changed", "failed"]
    ms: int


class _Saved(Strict):
    state_version: Literal[1]
    plan_sha256: str
    phases: dict[str, PhaseRecord]
    resources: dict[str, ResourceRecord]


class State:
    """The records of one plan on one machine; every change is written at once."""

    def __init__(self, machine: Machine, plan_sha256: str, phase_of: dict[str, str]) -> None:
        self._machine = machine
        self._plan_sha256 = plan_sha256
        self._phase_of = phase_of
        self.phases: dict[str, PhaseRecord] = {}
        self.resources: dict[str, ResourceRecord] = {}
        if not machine.files.is_file(STATE):
            return
        try:
            saved = _Saved.model_validate_json(machine.files.read(STATE))
        except pydantic.ValidationError as error:
            raise StopError(Exit.FAULT, f"{STATE} cannot be read: {error}") from error
        if saved.plan_sha256 == plan_sha256:
            self.phases, self.resources = dict(saved.phases), dict(saved.resources)

    def changed_in(self, phase: str) -> int:
        """How many of the phase's resources any run changed."""
        return sum(
            1
            for known, record in self.resources.items()
            if record.status == "changed" and self._phase_of.get(known) == phase
        )

    def keep_phase(
        self, name: str, status: Literal["started", "finished", "failed"], *, restart: bool, ms: int
    ) -> None:
        self.phases[name] = PhaseRecord(status=status, changed=0, restart=restart, ms=ms)
        self._save()

    def restart_is_due(self, name: str) -> None:
        """Kept before anything can fail."""
        self.phases[name] = self.phases[name].model_copy(update={"restart": True})
        self._save()

    def keep_resource(self, identity: str, status: Literal["ok", "changed", "failed"], ms: int) -> None:
        """Once changed, changed for good."""
        known = self.resources.get(identity)
        if status == "changed" or known is None or known.status != "changed":
            self.resources[identity] = ResourceRecord(status=status, ms=ms)
        self._save()

    def _save(self) -> None:
        self.phases = {
            name: record.model_copy(update={"changed": self.changed_in(name)}) for name, record in self.phases.items()
        }
        saved = _Saved(state_version=1, plan_sha256=self._plan_sha256, phases=self.phases, resources=self.resources)
        self._machine.files.write(STATE, saved.model_dump_json().encode())
