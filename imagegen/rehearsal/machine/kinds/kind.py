"""The type of a kind's behaviour on the model machine, and what its *set* may use besides the fields."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import TYPE_CHECKING, Any

from imagegen.rehearsal.machine.files import fold
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.machine.signatures import check_signature

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from imagegen.rehearsal.machine.plan import Signature
    from imagegen.rehearsal.machine.windows import Machine

# The JSON object that a report carries.
Facts = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Supplies:
    """Paths on the machine: the unpacked bundle, the artifact's file, a folder for logs; the step's timeout; and the
    credentials of registries, as a configuration of Docker."""

    bundle: str
    logs: str
    timeout_s: int
    artifact: str | None = None
    registries: str = ""
    files: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """The files of the bundle with their sha256."""
    signatures: Mapping[str, Signature | None] = dataclasses.field(default_factory=dict)
    """The signatures of the plan, by the sha256 of the file. None: it needs none."""
    checked: set[str] = dataclasses.field(default_factory=set)
    """The sha256 of the files whose signature was found. Each check adds to it."""
    left_out: list[str] = dataclasses.field(default_factory=list)
    """The files of an archive that the plan does not list. They are not put on the disk."""

    def need_artifact(self) -> str:
        if self.artifact is None:
            raise RefusedByWindows("there is no artifact to take the bytes from")
        return self.artifact


@dataclasses.dataclass(frozen=True)
class Kind:
    """get reads the machine, test returns all differences, put sets it and returns whether a restart is needed."""

    get: Callable[[Machine, Any], Facts | None]
    test: Callable[[Machine, Any, Facts | None], list[str]]
    put: Callable[[Machine, Any, Supplies], bool]


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def file_facts(data: bytes) -> Facts:
    """What a report says of a file."""
    return {"sha256": digest(data), "size": len(data)}


def copy_into_place(machine: Machine, data: bytes, path: str, sha256: str, supplies: Supplies) -> None:
    """Write a file through <path>.new, which is always removed. A read-only file is replaced too. If the plan has a
    signature for it, Windows must accept that before."""
    files, new = machine.files, path + ".new"
    check_signature(machine, data, path, supplies)
    files.write(new, data)
    try:
        if (found := digest(files.read(new))) != sha256:
            raise RefusedByWindows(f"the sha256 of {new} is {found}, not {sha256}")
        if users := machine.services.programs_in_use().get(fold(path)):
            names = ", ".join(users)
            raise RefusedByWindows(f"{path} is in use by service {names}: stop service {names}, or rebuild the image")
        if files.is_read_only(path):
            files.set_read_only(path, on=False)
        files.move(new, path)
    finally:
        if files.exists(new):
            files.remove(new)
