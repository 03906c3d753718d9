"""The type of a kind's behaviour on the model machine, and what its *set* may use besides the fields."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import TYPE_CHECKING, Any

from imagegen.rehearsal.machine.files import fold
from imagegen.rehearsal.machine.refusal import RefusedByWindows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from imagegen.rehearsal.machine.plan import Signature
    from imagegen.rehearsal.machine.windows import Machine

# The JSON object that a report carries.
Facts = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Supplies:
    """What *set* may use: the artifact's file on the machine, and the credentials of registries, as a configuration of
    Docker."""

    timeout_s: int
    artifact: str | None = None
    registries: str = ""
    signatures: Mapping[str, Signature | None] = dataclasses.field(default_factory=dict)
    """The signatures of the plan, by the sha256 of the file. None: it needs none."""
    checked: set[str] = dataclasses.field(default_factory=set)
    """The sha256 of the files whose signature the guest checks. Each *set* adds to it."""
    left_out: list[str] = dataclasses.field(default_factory=list)
    """The files of an archive that the plan does not list. They are not put on the disk."""

    def need_artifact(self) -> str:
        if self.artifact is None:
            raise RefusedByWindows("there is no artifact to take the bytes from")
        return self.artifact

    def check_signature(self, sha256: str) -> None:
        """Note that the guest checks the signature of a file. A file that the plan does not know is refused."""
        if self.signatures and sha256 not in self.signatures:
            raise RefusedByWindows(f"the plan requires signatures, and knows no file with the sha256 {sha256}")
        wanted = self.signatures.get(sha256)
        if wanted is not None and wanted.hidden is None:
            self.checked.add(sha256)


@dataclasses.dataclass(frozen=True)
class Kind:
    """get reads the machine, put sets it and returns whether a restart is needed."""

    get: Callable[[Machine, Any], Facts | None]
    put: Callable[[Machine, Any, Supplies], bool | None]


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def file_facts(data: bytes) -> Facts:
    """What a report says of a file."""
    return {"sha256": digest(data), "size": len(data)}


def copy_into_place(machine: Machine, data: bytes, path: str, sha256: str, supplies: Supplies) -> None:
    """Write a file with this digest. A read-only file is replaced too, a program in use is not."""
    if (found := digest(data)) != sha256:
        raise RefusedByWindows(f"the sha256 of {path} is {found}, not {sha256}")
    supplies.check_signature(sha256)
    if users := machine.services.programs_in_use().get(fold(path)):
        raise RefusedByWindows(f"{path} is in use by service {', '.join(users)}")
    if machine.files.is_read_only(path):
        machine.files.set_read_only(path, on=False)
    machine.files.write(path, data)
