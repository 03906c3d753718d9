"""What is installed and run on the model machine: package, script, service, update and image. What scripts and
installers do is taken as run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from imagegen.rehearsal.machine.installer import find_version, install
from imagegen.rehearsal.machine.kinds.kind import digest
from imagegen.rehearsal.machine.plan import HOME, UNPACKED
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.machine.registry import Value
from imagegen.rehearsal.machine.script_policy import check_script
from imagegen.rehearsal.machine.services import AUTOMATIC, DISABLED, MANUAL, RESTART_SERVICE, FailureActions
from imagegen.rehearsal.machine.updates import CURRENT_VERSION
from imagegen.rehearsal.machine.windows import StoredImage
from imagegen.steps.kinds import RESTART_NEEDED

if TYPE_CHECKING:
    from imagegen.rehearsal.machine.kinds.kind import Facts, Supplies
    from imagegen.rehearsal.machine.windows import Machine
    from imagegen.steps import kinds
    from imagegen.steps.effects import MadeService
    from imagegen.steps.kinds import Update

STARTS = {"automatic": AUTOMATIC, "delayed": AUTOMATIC, "manual": MANUAL, "disabled": DISABLED}
WORDS = {AUTOMATIC: "automatic", MANUAL: "manual", DISABLED: "disabled"}
ACTIONS = 3  # first, second, and every later failure
MARKS = rf"{HOME}\scripts"


def get_package(machine: Machine, wanted: kinds.Package) -> Facts | None:
    version = find_version(machine.registry, wanted.product)
    if version is None:
        return None
    return {
        "product": wanted.product,
        "version": version,
        "files": {path: machine.files.is_file(path) for path in wanted.files},
        "services": {name: machine.services.exists(name) for name in wanted.services},
    }


def put_package(machine: Machine, wanted: kinds.Package, supplies: Supplies) -> None:
    data = machine.files.read(supplies.need_artifact())
    supplies.check_signature(digest(data))
    install(machine, data, dict(argument.split("=", 1) for argument in wanted.arguments))
    found = get_package(machine, wanted)
    if found is None:
        raise RefusedByWindows(f"{wanted.product} is not installed: the package has another product")
    if missing := [path for path, there in found["files"].items() if not there]:
        raise RefusedByWindows(f"there is no file {missing[0]}")
    if missing := [name for name, there in found["services"].items() if not there]:
        raise RefusedByWindows(f"there is no service {missing[0]}")


def get_script(machine: Machine, wanted: kinds.Script) -> Facts | None:
    path = rf"{MARKS}\{wanted.name}.json"
    found: Facts | None = json.loads(machine.files.read(path)) if machine.files.is_file(path) else None
    return found


def put_script(machine: Machine, wanted: kinds.Script, supplies: Supplies) -> bool:
    """The script is taken as run."""
    supplies.check_signature(wanted.sha256)
    check_script(machine, rf"{UNPACKED}\{wanted.source}")
    code = 0 if 0 in wanted.good_exit_codes else wanted.good_exit_codes[0]
    machine.files.make_folder(MARKS)
    mark = {"sha256": wanted.sha256, "arguments": wanted.arguments, "exit_code": code}
    machine.files.write(rf"{MARKS}\{wanted.name}.json", json.dumps(mark).encode())
    return code == RESTART_NEEDED


def get_service(machine: Machine, wanted: kinds.Service) -> Facts | None:
    services, name = machine.services, wanted.name
    if not services.exists(name):
        return None
    start = services.start_type(name)
    delayed = start == AUTOMATIC and machine.registry.number(services.key(name), "DelayedAutostart")
    return {
        "display_name": machine.registry.text(services.key(name), "DisplayName"),
        "command": machine.registry.text(services.key(name), "ImagePath"),
        "start": "delayed" if delayed else WORDS.get(start, f"start type {start}"),
        "state": "running" if services.is_running(name) else "stopped",
        "depends_on": list(services.depends_on(name)),
        "recovery": _recovery(services.failure_actions(name)),
    }


def _recovery(actions: FailureActions | None) -> dict[str, int] | None:
    """None unless every failure restarts the service after the same time."""
    if actions is None or len(set(actions.actions)) != 1 or actions.actions[0][0] != RESTART_SERVICE:
        return None
    return {"restart_after_s": actions.actions[0][1] // 1000, "reset_after_s": actions.reset_s}


def put_service(machine: Machine, wanted: kinds.Service | MadeService, _supplies: Supplies) -> None:
    services, name = machine.services, wanted.name
    if not services.exists(name):
        if wanted.command is None:
            raise RefusedByWindows(f"there is no service {name}, and the resource has no command to create it")
        services.create(name, wanted.command, name, MANUAL)
    elif wanted.command not in (None, services.command(name)) and wanted.state is not None:
        services.stop(name)  # the running service has the old command
    for value_name, value in _service_values(wanted).items():
        services.configure(name, value_name, value)
    if wanted.state is not None:
        (services.start if wanted.state == "running" else services.stop)(name)


def _service_values(wanted: kinds.Service | MadeService) -> dict[str, Value]:
    values = {}
    if wanted.start is not None:
        values["Start"] = Value("DWord", STARTS[wanted.start])
        values["DelayedAutostart"] = Value("DWord", int(wanted.start == "delayed"))
    if wanted.command is not None:
        values["ImagePath"] = Value("ExpandString", wanted.command)
    if wanted.display_name is not None:
        values["DisplayName"] = Value("String", wanted.display_name)
    if wanted.depends_on is not None:
        values["DependOnService"] = Value("MultiString", tuple(wanted.depends_on))
    if wanted.recovery is not None:
        action = (RESTART_SERVICE, wanted.recovery.restart_after_s * 1000)
        values["FailureActions"] = Value(
            "Binary", FailureActions(wanted.recovery.reset_after_s, (action,) * ACTIONS).pack()
        )
    return values


def get_update(machine: Machine, _wanted: Update) -> Facts | None:
    return {
        "rounds": machine.updates.rounds,
        "asked": machine.updates.asked,
        "ubr": machine.registry.number(CURRENT_VERSION, "UBR") or 0,
        "installed": sorted(machine.updates.chosen),
        "lost": [],
        "missing": [],
        "proxy_left": False,
    }


def put_update(machine: Machine, wanted: Update, _supplies: Supplies) -> bool:
    """Windows Update's own work, as the stand-in for it does it."""
    check_script(machine, rf"{UNPACKED}\{wanted.source}")
    offers = machine.updates.offered(machine, wanted.categories, {one.kb for one in wanted.kbs})
    return machine.updates.install(machine, [one for one in offers if one.kb not in wanted.exclude])


def get_image(machine: Machine, wanted: kinds.Image) -> Facts | None:
    found = machine.images.get(wanted.name)
    if found is None:
        return None
    own = {} if wanted.docker else {"unpacked": True, "pinned": found.pinned}
    return {"digest": found.digest, **own}


def put_image(machine: Machine, wanted: kinds.Image, _supplies: Supplies) -> None:
    """The pull, or the import of the tarball, is taken as run."""
    program, service = (wanted.docker, "docker") if wanted.docker else (wanted.ctr, "containerd")
    if not machine.files.is_file(str(program)) or not machine.services.is_running(service):
        raise RefusedByWindows(f"{wanted.name} cannot be pulled: {program} is missing, or service {service} is stopped")
    machine.images[wanted.name] = StoredImage(wanted.digest, wanted.pinned)
