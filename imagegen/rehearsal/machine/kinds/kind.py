"""What a kind of resource is on the model machine, and what its *set* may use beyond the fields."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import TYPE_CHECKING, Any

from imagegen.rehearsal.machine.refusal import RefusedByWindows

if TYPE_CHECKING:
    from collections.abc import Callable

    from imagegen.rehearsal.machine.windows import Machine

# The JSON object that a report carries.
Facts = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Supplies:
    """Paths on the machine: the unpacked bundle, the artifact's file, a folder for logs; and the step's time."""

    bundle: str
    logs: str
    timeout_s: int
    artifact: str | None = None

    def need_artifact(self) -> str:
        if self.artifact is None:
            raise RefusedByWindows("there is no artifact to take the bytes from")
        return self.artifact


@dataclasses.dataclass(frozen=True)
class Kind:
    """get reads the machine; test says every difference; put makes it so and says whether a restart is due."""

    get: Callable[[Machine, Any], Facts | None]
    test: Callable[[Machine, Any, Facts | None], list[str]]
    put: Callable[[Machine, Any, Supplies], bool]


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
