"""Settings of Windows on the model machine: certificate, command, defender, feature, firewall, registry and task."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from imagegen.rehearsal.machine.certificates import Certificate as Stored
from imagegen.rehearsal.machine.commands import apply_command
from imagegen.rehearsal.machine.firewall import Rule
from imagegen.rehearsal.machine.kinds.kind import digest
from imagegen.rehearsal.machine.plan import UNPACKED
from imagegen.rehearsal.machine.registry import Data, Value
from imagegen.rehearsal.machine.tasks import AT_START, Task
from imagegen.steps.kinds import RESTART_NEEDED

if TYPE_CHECKING:
    from imagegen.rehearsal.machine.kinds.kind import Facts, Supplies
    from imagegen.rehearsal.machine.windows import Machine
    from imagegen.steps import kinds
    from imagegen.steps.kinds import Certificate, Firewall

# As the engine writes the facts of a task.
_TASK_FACTS = ("triggers", "actions", "every_s", "repeats_for_s", "delay_s", "limit_s", "start", "ends", "program")


def get_certificate(machine: Machine, wanted: Certificate) -> Facts | None:
    found = machine.certificates.find(wanted.thumbprint, rf"LocalMachine\{wanted.store}")
    return {"sha256": digest(found.data)} if found else None


def put_certificate(machine: Machine, wanted: Certificate, supplies: Supplies) -> None:
    # The guest checks the scripts of a publisher before it trusts that publisher.
    for sha256, signature in supplies.signatures.items():
        if signature is not None and signature.thumbprint == wanted.sha256:
            supplies.check_signature(sha256)
    data = machine.files.read(f"{UNPACKED}\\{wanted.source}")
    machine.certificates.add(Stored(wanted.thumbprint, data), rf"LocalMachine\{wanted.store}")


def get_command(machine: Machine, wanted: kinds.Command) -> Facts | None:
    return {"matches": [wanted.name in machine.progress.commands] * len(wanted.unless.matches)}


def put_command(machine: Machine, wanted: kinds.Command, _supplies: Supplies) -> bool:
    """The command is taken as run."""
    apply_command(machine, wanted.program, wanted.arguments)
    machine.progress.commands.add(wanted.name)
    return RESTART_NEEDED in wanted.good_exit_codes


def get_defender(machine: Machine, wanted: kinds.Defender) -> Facts | None:
    defender = machine.defender
    if defender.is_absent:
        return {"absent": True}
    name, known = ("process", defender.processes) if wanted.process else ("path", defender.paths)
    return next(({name: one} for one in known if one.lower() == wanted.label.lower()), None)


def put_defender(machine: Machine, wanted: kinds.Defender, _supplies: Supplies) -> None:
    if not machine.defender.is_absent:
        (machine.defender.processes if wanted.process else machine.defender.paths).append(wanted.label)


def get_feature(machine: Machine, wanted: kinds.Feature) -> Facts | None:
    return {"state": machine.features.state(wanted.name)}


def put_feature(machine: Machine, wanted: kinds.Feature, _supplies: Supplies) -> bool:
    return machine.features.install(wanted.name)


def get_firewall(machine: Machine, wanted: Firewall) -> Facts | None:
    rule = machine.firewall.rule(wanted.name)
    if rule is None:
        return None
    names = ("display_name", "enabled", "direction", "action", "protocol", "port", "profile")
    return {name: getattr(rule, name) for name in names}


def put_firewall(machine: Machine, wanted: Firewall, _supplies: Supplies) -> None:
    if machine.firewall.rule(wanted.name):
        machine.firewall.remove(wanted.name)
    machine.firewall.add(Rule(**{**wanted.model_dump(), "port": str(wanted.port)}))


def get_registry(machine: Machine, wanted: kinds.Registry) -> Facts | None:
    value = machine.registry.value(wanted.key, wanted.name)
    return {"type": value.type, "data": _make_plain(value.data)} if value else None


def _make_plain(data: Data) -> str | int | list[str] | list[int]:
    if isinstance(data, bytes):
        return [*data]
    return [*data] if isinstance(data, tuple) else data


def put_registry(machine: Machine, wanted: kinds.Registry, _supplies: Supplies) -> None:
    data = tuple(wanted.data) if isinstance(wanted.data, list) else wanted.data
    machine.registry.make_key(wanted.key)
    machine.registry.write(wanted.key, wanted.name, Value(wanted.type, data))


def get_task(machine: Machine, wanted: kinds.Task) -> Facts | None:
    task = machine.tasks.task(wanted.name)
    if task is None:
        return None
    stored = {name: value for name, value in dataclasses.asdict(task).items() if name != "name"}
    lists = {"triggers": ", ".join(task.triggers), "actions": ", ".join(task.actions)}
    return {**dict.fromkeys(_TASK_FACTS), **stored, **lists}


def put_task(machine: Machine, wanted: kinds.Task, _supplies: Supplies) -> None:
    task = Task(wanted.name, wanted.program, wanted.arguments, wanted.every_s, wanted.limit_s)
    is_repeated = wanted.every_s is not None
    machine.tasks.register(task if is_repeated else dataclasses.replace(task, triggers=(AT_START,), start=""))
