"""The booted model machine, as the checks read it."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING

from imagegen.boot.node import Access, FirstBoot, Given, SecondBoot, Service, Updates
from imagegen.rehearsal.boot.images import find_fault, find_sandbox_fault
from imagegen.rehearsal.machine.access import effective
from imagegen.rehearsal.machine.address import NODE_ADDRESS
from imagegen.rehearsal.machine.programs import check_can_run
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.machine.services import AUTOMATIC
from imagegen.rehearsal.machine.updates import CURRENT_VERSION, INSTALLED, SUPERSEDED, find_packages

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from imagegen.rehearsal.machine.windows import Machine
    from imagegen.settle.spec import Spec


@dataclasses.dataclass
class MachineNode:
    """An `imagegen.boot.node.Node` that answers from the model machine. `image` is the machine that was captured."""

    machine: Machine
    image: Machine
    spec: Spec
    given: Given
    first: FirstBoot
    second: SecondBoot
    nodes: Mapping[str, str]
    consoles: Mapping[str, bytes]
    addresses: Sequence[str] = (NODE_ADDRESS,)

    @property
    def refused(self) -> Mapping[str, str]:
        return self.machine.refused

    @property
    def host_name(self) -> str:
        return self.machine.host_name

    def read(self, path: str) -> bytes | None:
        # A command line or a configuration may have a path that is none.
        with contextlib.suppress(RefusedByWindows):
            return self.machine.files.read(path) if self.machine.files.is_file(path) else None
        return None

    def below(self, folder: str) -> Sequence[str]:
        return list(self.machine.files.below(folder)) if self.machine.files.is_folder(folder) else []

    def access(self, path: str) -> Iterator[Access]:
        files = self.machine.files
        if not files.exists(path):
            return
        # What an entry denies nobody else gets by it.
        for entry in effective(files, path).entries:
            if not entry.deny:
                yield Access(path, entry.sid, entry.rights)
        for name in files.names(path) if files.is_folder(path) else ():
            yield from self.access(rf"{path}\{name}")

    def value(self, key: str, name: str) -> object:
        value = self.machine.registry.value(key, name)
        return value.data if value else None

    def subkeys(self, key: str) -> Sequence[str]:
        return self.machine.registry.subkeys(key) if self.machine.registry.has_key(key) else []

    def service(self, name: str) -> Service | None:
        services, failure = self.machine.services, ""
        if not services.exists(name):
            return None
        command = services.command(name)
        parameters = rf"{services.key(name)}\Parameters"
        try:
            check_can_run(self.machine.files, self.machine.features, command)
            program = str(self.value(parameters, "Application") or "")
            if program and self.read(program) is None:
                failure = f"nssm cannot find its program {program}"
        except RefusedByWindows as refusal:
            failure = str(refusal)
        return Service(
            command=command,
            parameters=str(self.value(parameters, "AppParameters") or ""),
            is_automatic=services.start_type(name) == AUTOMATIC,
            is_running=services.is_running(name),
            failure=failure,
        )

    def lets_in(self, port: int) -> bool:
        return self.machine.firewall.lets_in(port)

    def has_feature(self, name: str) -> bool:
        return self.machine.features.is_installed(name)

    def runs_hypervisor(self) -> bool:
        return self.machine.runs_hypervisor

    def ports(self, protocol: str) -> frozenset[int]:
        return self.machine.ports.given(protocol)

    def unscanned(self) -> frozenset[str] | None:
        defender = self.machine.defender
        return frozenset(path.lower() for path in defender.processes) if defender.answers else None

    def updates(self) -> Updates:
        machine, known = self.machine, self.spec.facts.updates
        there = {kb for kb, state, _ in find_packages(machine) if state in (INSTALLED, SUPERSEDED)}
        return Updates(
            installed=frozenset(there),
            revision=machine.registry.number(CURRENT_VERSION, "UBR") or 0,
            offered=[offer.kb for offer in machine.updates.offered(machine, tuple(known.categories), ())],
            waits_for_restart=machine.restart_pending(),
            proxy=machine.updates.proxy or "",
        )

    def sandbox_fault(self) -> str:
        return find_sandbox_fault(self.machine, self.spec)

    def image_fault(self, name: str) -> str:
        return find_fault(self.machine, name)

    def image_digest(self, name: str) -> str:
        found = self.machine.images.get(name)
        return found.digest if found else ""

    def was_in_image(self, path: str) -> bool:
        return self.image.files.is_file(path)
