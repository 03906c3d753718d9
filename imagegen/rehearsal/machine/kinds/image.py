"""A container image in the store of containerd or Docker on the model machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imagegen.rehearsal.machine import docker_store, image_pull
from imagegen.rehearsal.machine.container_store import PINNED, open_store
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.machine.registry_credentials import DOCKER_FOLDER, auth_of
from imagegen.steps.image_name import ImageName

if TYPE_CHECKING:
    from imagegen.rehearsal.machine.kinds.kind import Facts, Supplies
    from imagegen.rehearsal.machine.windows import Machine
    from imagegen.steps.kinds import Image

_RESERVE = 2**30
_ATTEMPTS = 4


def get(machine: Machine, wanted: Image) -> Facts | None:
    try:
        _need(machine, wanted.docker or wanted.ctr)
        return _look(machine, wanted)
    except RefusedByWindows as refusal:
        raise RefusedByWindows(f"it could not be looked at: {refusal}") from refusal


def _look(machine: Machine, wanted: Image) -> Facts | None:
    if wanted.docker:
        found = docker_store.open_docker(machine).ids().get(docker_store.spell(ImageName.parse(wanted.name)))
        return None if found is None else {"digest": found}
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
        return [f"there is no image {wanted.name}"]
    reasons = []
    if facts["digest"] != wanted.digest:
        reasons.append(f"digest is {facts['digest']}, not {wanted.digest}")
    if wanted.docker:
        return reasons
    if not facts["unpacked"]:
        reasons.append(f"its layers are not unpacked: there is no snapshot {wanted.layers}")
    if wanted.pinned and not facts["pinned"]:
        reasons.append("it is not pinned")
    return reasons


def put(machine: Machine, wanted: Image, supplies: Supplies) -> bool:
    free = machine.volume.free
    if free < wanted.size + _RESERVE:
        raise RefusedByWindows(
            f"drive C has {free} bytes free, and {wanted.name} needs more than {wanted.size}: choose a larger disk"
        )
    _need(machine, wanted.docker or (wanted.ctr if wanted.artifact else wanted.crictl))
    attempts = 1 if wanted.artifact else _ATTEMPTS
    for attempt in range(1, attempts + 1):
        try:
            _fetch(machine, wanted, supplies)
            break
        except RefusedByWindows as refusal:
            why = f"{wanted.name} could not be pulled or imported: {refusal}"
            if attempt == attempts:
                raise RefusedByWindows(why) from refusal
            machine.wait_until(lambda: False, 15 * attempt)
    if wanted.reference and wanted.name != wanted.reference:
        (docker_store if wanted.docker else image_pull).tag(machine, wanted.reference, wanted.name)
    if wanted.pinned:
        image_pull.pin(machine, wanted.name)
    return False


def _fetch(machine: Machine, wanted: Image, supplies: Supplies) -> None:
    if wanted.reference and wanted.docker:
        _pull_with_docker(machine, wanted.reference, supplies)
    elif wanted.reference:
        auth = auth_of(supplies.registries, wanted.reference.partition("/")[0])
        image_pull.pull(machine, wanted.reference, auth)
    elif wanted.docker:
        docker_store.load(machine, supplies.need_artifact())
    else:
        image_pull.import_tarball(machine, supplies.need_artifact())


def _pull_with_docker(machine: Machine, reference: str, supplies: Supplies) -> None:
    if not supplies.registries:
        docker_store.pull(machine, reference)
        return
    try:
        machine.files.make_folder(DOCKER_FOLDER)
        machine.files.write(rf"{DOCKER_FOLDER}\config.json", supplies.registries.encode())
        docker_store.pull(machine, reference)
    finally:
        machine.files.remove(DOCKER_FOLDER)


def _need(machine: Machine, program: str | None) -> None:
    if program is None or not machine.files.is_file(program):
        raise RefusedByWindows(f"cannot find {program} (error 2)")
