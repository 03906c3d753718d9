"""The guest engine on the model machine: runs a phase as docs/guest.md says, and returns exit code and output."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from imagegen.rehearsal.machine import downloads
from imagegen.rehearsal.machine.arguments import ALL, EntryArguments, WrongArgumentsError, parse
from imagegen.rehearsal.machine.bundle import HOME, open_bundle, root_for
from imagegen.rehearsal.machine.converge import PhaseRun, converge, inspect, prefetch
from imagegen.rehearsal.machine.credentials_file import Delivered, take_file
from imagegen.rehearsal.machine.events import Transcript
from imagegen.rehearsal.machine.features import RESTART_KEY
from imagegen.rehearsal.machine.inspection import run_inspection
from imagegen.rehearsal.machine.plan import Item, Phase, items_of
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.machine.report import write_report
from imagegen.rehearsal.machine.state import State
from imagegen.rehearsal.machine.stop import Exit, KilledError, StopError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imagegen.rehearsal.machine.kinds.kind import Facts
    from imagegen.rehearsal.machine.windows import Machine

LOG = HOME + r"\engine.log"
# Windows may still be finishing a restart when the next phase starts.
_FINISHING_S = 120


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a script ended and what it wrote."""

    exit_code: int
    output: str


def run_entry(machine: Machine, arguments: Sequence[str], fetch: downloads.Fetch) -> Outcome:
    """Do what `-File start.ps1 <arguments>` does. `fetch` returns the bytes of a URL or raises an OSError."""
    transcript = Transcript()
    is_check = any(word.lower() == "-check" for word in arguments)
    try:
        delivered = Delivered() if is_check else take_file(machine)
        given = parse(arguments)
    except RefusedByWindows as refusal:
        transcript.say(f"failed: {refusal}")
        return Outcome(int(Exit.FAULT), transcript.text)
    except WrongArgumentsError as error:
        transcript.say(f"failed: {error}")
        return Outcome(int(Exit.ARGUMENTS), transcript.text)
    root = root_for(given)
    try:
        code = _run_arguments(machine, given, root, fetch, transcript, delivered)
    except StopError as stop:
        transcript.say(f"failed: {stop.reason}")
        code = stop.code
    except KilledError:
        # As Windows says it of a process that another one ended.
        code = Exit.FAULT
    except RefusedByWindows as refusal:
        transcript.say(f"failed: {refusal}")
        code = Exit.FAULT
    finally:
        # In `finally`, because no `except` catches an interrupt.
        if given.check and machine.files.exists(root):
            machine.files.remove(root)
    if not given.check and machine.files.is_folder(HOME):
        log = machine.files.read(LOG) if machine.files.is_file(LOG) else b""
        machine.files.write(LOG, log + transcript.text.encode())
    return Outcome(int(code), transcript.text)


def _run_arguments(
    machine: Machine,
    given: EntryArguments,
    root: str,
    fetch: downloads.Fetch,
    transcript: Transcript,
    delivered: Delivered,
) -> Exit:
    plan = open_bundle(machine, given, root)
    items = items_of(plan)
    names = [phase.name for phase in plan.phases]
    if given.phase not in names and given.phase != ALL:
        raise StopError(Exit.ARGUMENTS, f"the plan has no phase '{given.phase}': it has {', '.join(names)}")
    if machine.build != str(plan.windows.build):
        raise StopError(
            Exit.WRONG_BYTES,
            f"the plan is for Windows Server {plan.windows.release}, build {plan.windows.build};"
            f" this machine has build {machine.build}",
        )
    if given.check:
        return run_inspection(machine, given, plan, items, transcript)
    state = State(machine, given.plan_sha256, {item.id: item.phase for item in items})
    phase = next(phase for phase in plan.phases if phase.name == given.phase)
    web = downloads.Web(fetch, plan.proxy, delivered.downloads)
    run = PhaseRun(
        *(machine, plan, items, state, transcript, web, phase.name, phase.restart),
        began=machine.clock(),
        registries=delivered.registries,
    )
    return _run_phase(run, phase, given.plan_sha256)


def _run_phase(run: PhaseRun, phase: Phase, plan_sha256: str) -> Exit:
    own = [item for item in run.items if item.phase == phase.name]
    run.transcript.phase(phase.name, "started", resources=len(own), changed=0, restart=False, ms=0)
    try:
        run.state.read(run.transcript)
        _steps(run, phase, own, plan_sha256)
    except StopError as stop:
        record = run.state.phases.get(phase.name)
        if record is not None and record.status == "started":  # a phase that failed before it started is not recorded
            run.state.keep_phase(phase.name, "failed", restart=record.restart, ms=run.ms)
        _report_end(run, "failed", len(own), stop.reason)
        raise
    _report_end(run, "finished", len(own))
    return Exit.RESTART_DUE if run.restart else Exit.DONE


def _report_end(run: PhaseRun, status: str, resources: int, reason: str = "") -> None:
    run.transcript.phase(
        run.phase, status, resources=resources, changed=run.changed, restart=run.restart, ms=run.ms, reason=reason
    )


def _steps(run: PhaseRun, phase: Phase, own: list[Item], plan_sha256: str) -> None:
    """Steps 2 to 7 of 'What a phase does'."""
    earlier = [other.name for other in run.plan.phases[: run.plan.phases.index(phase)]]
    _check_order(run, phase, earlier)
    before = run.state.phases.get(phase.name)
    kept = before is not None and before.restart
    # A restart that a run needed is still needed. A start of Windows removes the volatile key of a finished run.
    waits = run.machine.registry.has_key(RESTART_KEY)
    run.restart = kept and phase.restart and before is not None and (before.status != "finished" or waits)
    run.state.keep_phase(phase.name, "started", restart=kept, ms=0)
    for item in (item for item in run.items if item.phase in earlier and not item.repeated):
        converge(run, item, quiet=True)
    certificates = [item for item in own if item.kind == "certificate"]
    for item in certificates:
        converge(run, item)
    prefetch(run, own)
    for item in own:
        if item not in certificates:
            converge(run, item)
    last = phase is run.plan.phases[-1]
    facts = _verify(run) if last else {}
    run.restart = run.restart or run.machine.restart_pending()
    if run.restart and not phase.restart:
        raise StopError(Exit.FAILED, f"a restart is needed after {phase.name}, but the plan has none there")
    if run.machine.files.exists(downloads.ARTIFACTS):
        run.machine.files.remove(downloads.ARTIFACTS)
    restart = run.state.phases[phase.name].restart or run.restart
    if run.restart:
        run.machine.registry.make_key(RESTART_KEY)
    run.state.keep_phase(phase.name, "finished", restart=restart, ms=run.ms)
    if last:
        write_report(run, plan_sha256, facts)


def _check_order(run: PhaseRun, phase: Phase, earlier: Sequence[str]) -> None:
    for name in earlier:
        record = run.state.phases.get(name)
        if record is None or record.status != "finished":
            raise StopError(Exit.FAILED, f"{name} is not finished: it comes before {phase.name}")
    if not run.machine.restart_pending():
        return
    if run.state.is_begun(phase.name):
        # An earlier, unfinished run of this phase caused the pending restart.
        if phase.restart:
            return
        reason = f"Windows has a restart pending in the middle of {phase.name}, but the plan has none there"
        raise StopError(Exit.FAILED, f"{reason}: restart Windows and run the phase again")
    if earlier and run.machine.wait_until(lambda: not run.machine.restart_pending(), _FINISHING_S):
        return
    if earlier:
        raise StopError(Exit.FAILED, f"Windows has a restart pending: the one after {earlier[-1]} was not taken")
    raise StopError(
        Exit.FAILED,
        "the base image has a restart pending before the first phase: use a base image without one, or "
        "windows.updates, whose build begins with a restart",
    )


def _verify(run: PhaseRun) -> dict[str, Facts | None]:
    """Test the whole plan again before the report is written, and that no restart is pending."""
    facts: dict[str, Facts | None] = {}
    for item in (item for item in run.items if not item.repeated):
        try:
            facts[item.id], reasons = inspect(run.machine, item)
        except RefusedByWindows as refusal:
            reasons = [str(refusal)]
        if reasons:
            reason = item.failure(f"no longer as planned at the end: {'; '.join(reasons)}")
            run.transcript.resource(item.phase, item.id, "failed", 0, reason)
            raise StopError(Exit.FAILED, reason)
    if run.machine.restart_pending():
        raise StopError(Exit.FAILED, "Windows has a restart pending after the last phase")
    return facts
