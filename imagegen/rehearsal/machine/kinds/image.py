"""A container image in containerd's store on the model machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imagegen.rehearsal.machine.container_store import PINNED, open_store
from imagegen.rehearsal.machine.image_pull import pin, pull, tag
from imagegen.rehearsal.machine.refusal import RefusedByWindows

if TYPE_CHECKING:
    from imagegen.rehearsal.machine.kinds.kind import Facts, Supplies
    from imagegen.rehearsal.machine.windows import Machine
    from imagegen.resources.kinds import Image

_RESERVE = 2**30
_ATTEMPTS = 4


def get(machine: Machine, wanted: Image) -> Facts | None:
    _need(machine, wanted.ctr)
    store = open_store(machine)
    image = store.images().get(wanted.name)
    if image is None:
        return None
    return {
        "digest": image["target"],
        "unpacked": store.has_snapshot(wanted.layers),
        "pinned": image["labels"].get(PINNED[0]) == PINNED[1],
    }


def test(_machine: Machine, wanted: Image, facts: Facts | None) -> list[str]:
    if facts is None:
        return [f"containerd has no image {wanted.name}"]
    reasons = []
    if facts["digest"] != wanted.digest:
        reasons.append(f"digest is {facts['digest']}, not {wanted.digest}")
    if not facts["unpacked"]:
        reasons.append(f"its layers are not unpacked: there is no snapshot {wanted.layers}")
    if wanted.pinned and not facts["pinned"]:
        reasons.append("it is not pinned")
    return reasons


def put(machine: Machine, wanted: Image, _supplies: Supplies) -> bool:
    free = machine.volume.free
    if free < wanted.size + _RESERVE:
        raise RefusedByWindows(
            f"drive C has {free} bytes free, and {wanted.name} needs more than {wanted.size}: choose a larger disk"
        )
    _need(machine, wanted.crictl)
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            pull(machine, wanted.reference)
            break
        except RefusedByWindows as refusal:
            why = f"{wanted.reference} could not be pulled: {refusal}"
            if attempt == _ATTEMPTS:
                raise RefusedByWindows(why) from refusal
            machine.wait_until(lambda: False, 15 * attempt)
    if wanted.name != wanted.reference:
        tag(machine, wanted.reference, wanted.name)
    if wanted.pinned:
        pin(machine, wanted.name)
    return False


def _need(machine: Machine, program: str) -> None:
    if not machine.files.is_file(program):
        raise RefusedByWindows(f"cannot find {program} (error 2)")
