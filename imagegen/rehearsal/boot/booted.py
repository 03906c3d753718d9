"""A node that was started from an image, and what was found out about it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import JsonValue

    from imagegen.boot.check import Verdict
    from imagegen.rehearsal.boot.view import MachineNode
    from imagegen.rehearsal.machine.windows import Machine
    from imagegen.settle.spec import Spec


@dataclasses.dataclass(frozen=True)
class Image:
    """A captured machine, and the settings of its target."""

    machine: Machine
    spec: Spec


@dataclasses.dataclass(frozen=True)
class Boot:
    """The verdicts on a node that was started from an image."""

    image: Image
    node: MachineNode
    """The machine, after its second start."""
    verdicts: tuple[Verdict, ...]
    reason: str
    """Why the cloudbase-init that ran is not the image's. Empty if it is."""
    unknown: tuple[str, ...]
    """What the rehearsal does not know of the programs that ran."""
    log: str
    """The log of cloudbase-init."""
    limits: tuple[str, ...] = ()
    """What the machine took as run."""

    @property
    def machine(self) -> Machine:
        return self.node.machine

    @property
    def cloudbase_init(self) -> str:
        """The version that ran. Empty if none ran."""
        return self.node.first.version

    @property
    def lines(self) -> list[str]:
        """One line for the cloudbase-init that ran, if any did, and one for each check that passed."""
        passed = [verdict.line for verdict in self.verdicts if verdict.passed]
        ran, wanted = self.cloudbase_init, self.image.spec.config.cloudbase_init.version
        if not ran:
            return passed
        version = f"cloudbase-init {ran} ran"
        if ran != wanted:
            version += f", and the image has {wanted}{f': {self.reason}' if self.reason else ''}"
        return [version, *passed]

    @property
    def faults(self) -> list[str]:
        """What failed, causes first: where a program's effect is unknown, what comes after it proves nothing."""
        return [*self.unknown, *(verdict.line for verdict in self.verdicts if not verdict.passed)]

    @property
    def failed(self) -> dict[str, JsonValue]:
        """The reasons of each check that failed, and `unknown` for what the rehearsal does not know."""
        note: dict[str, JsonValue] = {"unknown": [*self.unknown]} if self.unknown else {}
        for verdict in self.verdicts:
            if not verdict.passed:
                note[verdict.check.name] = [*verdict.texts]
        return note

    def record(self) -> dict[str, JsonValue]:
        """What the manifest keeps, beside what failed."""
        note: dict[str, JsonValue] = {
            # Setup's own restarts included.
            "starts": self.machine.boot_count,
            "cloudbase_init": self.cloudbase_init,
            "cloudbase_init_in_image": self.image.spec.config.cloudbase_init.version,
            "passed": [verdict.check.name for verdict in self.verdicts if verdict.passed],
        }
        if self.reason:
            note["cloudbase_init_reason"] = self.reason
        return note
