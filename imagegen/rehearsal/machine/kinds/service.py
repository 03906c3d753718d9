"""A Windows service on the model machine. A field that is null is not checked and not changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.machine.registry import Value
from imagegen.rehearsal.machine.services import AUTOMATIC, DISABLED, MANUAL, RESTART_SERVICE, FailureActions

if TYPE_CHECKING:
    from imagegen.rehearsal.machine.kinds.kind import Facts, Supplies
    from imagegen.rehearsal.machine.windows import Machine
    from imagegen.steps.kinds import Service

STARTS = {"automatic": AUTOMATIC, "delayed": AUTOMATIC, "manual": MANUAL, "disabled": DISABLED}
WORDS = {AUTOMATIC: "automatic", MANUAL: "manual", DISABLED: "disabled"}
ACTIONS = 3  # first, second, and every later failure


def _start(machine: Machine, name: str) -> str:
    start = machine.services.start_type(name)
    delayed = machine.registry.number(machine.services.key(name), "DelayedAutostart")
    return "delayed" if start == AUTOMATIC and delayed else WORDS.get(start, f"start type {start}")


def _recovery(actions: FailureActions | None) -> dict[str, int | float] | None:
    """None unless every failure restarts the service after the same time."""
    if actions is None or len(set(actions.actions)) != 1:
        return None
    kind, delay_ms = actions.actions[0]
    if kind != RESTART_SERVICE:
        return None
    return {
        "restart_after_s": delay_ms / 1000 if delay_ms % 1000 else delay_ms // 1000,
        "reset_after_s": actions.reset_s,
    }


def get(machine: Machine, wanted: Service) -> Facts | None:
    services, name = machine.services, wanted.name
    if not services.exists(name):
        return None
    return {
        "display_name": machine.registry.text(services.key(name), "DisplayName"),
        "command": machine.registry.text(services.key(name), "ImagePath"),
        "start": _start(machine, name),
        "state": "running" if services.is_running(name) else "stopped",
        "depends_on": list(services.depends_on(name)),
        "recovery": _recovery(services.failure_actions(name)),
    }


def test(_machine: Machine, wanted: Service, facts: Facts | None) -> list[str]:
    if facts is None:
        return [f"there is no service {wanted.name}"]
    pairs = [(name, facts[name], getattr(wanted, name)) for name in ("display_name", "command", "start", "state")]
    reasons = [f"{name} is {have}, not {want}" for name, have, want in pairs if want is not None and have != want]
    if wanted.depends_on is not None:
        have, want = facts["depends_on"], wanted.depends_on
        if [name.lower() for name in have] != [name.lower() for name in want]:
            reasons.append(f"depends_on is {', '.join(have)}, not {', '.join(want)}")
    if wanted.recovery is not None and facts["recovery"] != wanted.recovery.model_dump():
        reasons.append(f"recovery is {_words(facts['recovery'])}, not {_words(wanted.recovery.model_dump())}")
    return reasons


def _words(recovery: dict[str, int] | None) -> str:
    if recovery is None:
        return "none of this kind"
    return f"restart after {recovery['restart_after_s']} s, reset after {recovery['reset_after_s']} s"


def put(machine: Machine, wanted: Service, supplies: Supplies) -> bool:
    services, name = machine.services, wanted.name
    machine.need_tool("sc.exe")
    if not services.exists(name):
        if wanted.command is None:
            raise RefusedByWindows(f"there is no service {name}, and the resource has no command to create it")
        services.create(name, wanted.command, name, MANUAL)
    elif wanted.command is not None and services.command(name) != wanted.command and wanted.state is not None:
        _move(machine, name, "stopped", supplies)  # the running service has the old command
    _configure(machine, wanted)
    if wanted.state is not None:
        _move(machine, name, wanted.state, supplies)
    return False


def _move(machine: Machine, name: str, state: str, supplies: Supplies) -> None:
    """Start or stop a service within the step's time. While it is starting, Windows does neither."""
    services = machine.services
    for act in (None, services.start if state == "running" else services.stop):
        if act is not None:
            act(name)
        if not machine.wait_until(lambda: not services.is_starting(name), supplies.timeout_s):
            raise RefusedByWindows(f"service {name} is starting, not {state}, and the step has no time left")


def _configure(machine: Machine, wanted: Service) -> None:
    values = {
        "Start": Value("DWord", STARTS[wanted.start]),
        "DelayedAutostart": Value("DWord", int(wanted.start == "delayed")),
    }
    if wanted.command is not None:
        values["ImagePath"] = Value("ExpandString", wanted.command)
    if wanted.display_name is not None:
        values["DisplayName"] = Value("String", wanted.display_name)
    if wanted.depends_on is not None:
        values["DependOnService"] = Value("MultiString", tuple(wanted.depends_on))
    if wanted.recovery is not None:
        action = (RESTART_SERVICE, wanted.recovery.restart_after_s * 1000)
        actions = FailureActions(wanted.recovery.reset_after_s, (action,) * ACTIONS)
        values["FailureActions"] = Value("Binary", actions.pack())
    for value_name, value in values.items():
        machine.services.configure(wanted.name, value_name, value)
