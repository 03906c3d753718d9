"""A node that was started from an image, and what was found out about it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import JsonValue

    from imagegen.boot.check import Verdict
    from imagegen.rehearsal.boot.image import Image
    from imagegen.rehearsal.machine.windows import Machine


@dataclasses.dataclass(frozen=True)
class Boot:
    """The verdicts on a node that was started from an image."""

    image: Image
    machine: Machine
    """The node, after its second start."""
    verdicts: tuple[Verdict, ...]
    cloudbase_init: str
    """The version that ran. Empty if none ran."""
    reason: str
    """Why it is not the image's. Empty if it is."""
    unknown: tuple[str, ...]
    """What the rehearsal does not know of the programs that ran."""
    log: str
    """The log of cloudbase-init."""
    limits: tuple[str, ...] = ()
    """What scripts of the operator did that the rehearsal does not know."""

    @property
    def lines(self) -> list[str]:
        """One line for the cloudbase-init that ran, if any did, and one for each check that passed."""
        passed = [verdict.line for verdict in self.verdicts if verdict.passed]
        ran, wanted = self.cloudbase_init, self.image.cloudbase_init
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
            "cloudbase_init_in_image": self.image.cloudbase_init,
            "passed": [verdict.check.name for verdict in self.verdicts if verdict.passed],
        }
        if self.reason:
            note["cloudbase_init_reason"] = self.reason
        return note
