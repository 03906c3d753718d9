"""The behaviour of every kind of resource on the model machine, by its name in plan.json, and that of effects."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from imagegen.rehearsal.machine.files import parent
from imagegen.rehearsal.machine.firewall import Rule
from imagegen.rehearsal.machine.kinds import files, programs, settings
from imagegen.rehearsal.machine.kinds.kind import Kind, Supplies
from imagegen.rehearsal.machine.registry import Value
from imagegen.rehearsal.machine.services import MANUAL
from imagegen.steps.effects import EFFECTS, MadeFile, MadeRule, MadeService, Output

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imagegen.rehearsal.machine.plan import PlannedEffect
    from imagegen.rehearsal.machine.windows import Machine
    from imagegen.steps.resource import Resource

BEHAVIOUR: dict[str, Kind] = {
    "acl": Kind(files.get_acl, files.put_acl),
    "archive": Kind(files.get_archive, files.put_archive),
    "certificate": Kind(settings.get_certificate, settings.put_certificate),
    "command": Kind(settings.get_command, settings.put_command),
    "defender": Kind(settings.get_defender, settings.put_defender),
    "directory": Kind(files.get_directory, files.put_directory),
    "feature": Kind(settings.get_feature, settings.put_feature),
    "file": Kind(files.get_file, files.put_file),
    "firewall": Kind(settings.get_firewall, settings.put_firewall),
    "image": Kind(programs.get_image, programs.put_image),
    "package": Kind(programs.get_package, programs.put_package),
    "path": Kind(files.get_path, files.put_path),
    "registry": Kind(settings.get_registry, settings.put_registry),
    "script": Kind(programs.get_script, programs.put_script),
    "service": Kind(programs.get_service, programs.put_service),
    "task": Kind(settings.get_task, settings.put_task),
    "update": Kind(programs.get_update, programs.put_update),
    "volume": Kind(files.get_volume, files.put_volume),
}


def apply_effects(machine: Machine, effects: Sequence[PlannedEffect]) -> None:
    """Make the machine as a script leaves it."""
    made = [EFFECTS[effect.kind].model_validate(effect.fields) for effect in effects]
    paths = [one.path for one in made if isinstance(one, MadeFile)]
    for effect, one in zip(effects, made, strict=True):
        _apply_effect(machine, effect.kind, one, paths)


def _apply_effect(machine: Machine, kind: str, made: Resource, paths: Sequence[str]) -> None:
    """`paths` are those of the files that the script makes: a service without a command runs the one of its name."""
    if isinstance(made, MadeFile):
        machine.files.make_folder(parent(made.path))
        machine.files.write(made.path, b"MZ made by a script")
    elif isinstance(made, MadeRule):
        machine.firewall.add(Rule(**made.model_dump()))
    elif isinstance(made, MadeService):
        programs_ = [path for path in paths if path.lower().endswith(rf"\{made.name}.exe".lower())]
        if not machine.services.exists(made.name):
            machine.services.create(made.name, made.command or "".join(programs_[:1]), made.name, MANUAL)
        programs.put_service(machine, made, Supplies(0))
    elif isinstance(made, Output):
        _apply_query(machine, made)
    else:
        behaviour: Any = BEHAVIOUR[kind]
        behaviour.put(machine, made, Supplies(0))


def _apply_query(machine: Machine, made: Output) -> None:
    """Make what a query of the registry shows: the default value of a key, or a key below it."""
    query = re.fullmatch(r"query HKLM\\(\S+)( /ve)?", made.unless.arguments)
    if query is None:
        return
    # The text that the expression matches.
    text = re.sub(r"^\(\?i\)|\\(?=\W)", "", made.unless.matches[0])
    key = rf"HKLM:\{query[1]}"
    machine.registry.make_key(key if query[2] else rf"{key}\{text}")
    if query[2]:
        machine.registry.write(key, "", Value("String", text))
