"""Brings one resource at a time to its planned state: get, test, and if needed set, get, test; then event and state."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from imagegen.record.report import LeftOut
from imagegen.rehearsal.machine import downloads
from imagegen.rehearsal.machine.bundle import HOME, UNPACKED
from imagegen.rehearsal.machine.kinds import BEHAVIOUR
from imagegen.rehearsal.machine.kinds.kind import Facts, Supplies
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.machine.stop import Exit, StopError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from imagegen.rehearsal.machine.events import Transcript
    from imagegen.rehearsal.machine.plan import Item, Plan
    from imagegen.rehearsal.machine.state import State
    from imagegen.rehearsal.machine.windows import Machine


@dataclasses.dataclass
class PhaseRun:
    """One run of one phase. `restart` and `changed` are its results so far."""

    machine: Machine
    plan: Plan
    items: tuple[Item, ...]
    state: State
    transcript: Transcript
    web: downloads.Web
    phase: str
    may_restart: bool
    restart: bool = False
    changed: int = 0
    began: float = 0.0
    registries: str = ""
    """Docker's configuration with the credentials of registries. Only in memory."""

    @property
    def ms(self) -> int:
        return elapsed_ms(self.machine, self.began)


def elapsed_ms(machine: Machine, began: float) -> int:
    return int((machine.clock() - began) * 1000)


def inspect(machine: Machine, item: Item) -> tuple[Facts | None, list[str]]:
    """The facts of a resource, and every difference from the plan."""
    kind = BEHAVIOUR[item.kind]
    facts = kind.get(machine, item.resource)
    return facts, kind.test(machine, item.resource, facts)


def converge(run: PhaseRun, item: Item, *, quiet: bool = False) -> None:
    """Set a resource if it is not as planned. With `quiet` only changes are reported."""
    began = run.machine.clock()
    try:
        _, reasons = inspect(run.machine, item)
        if reasons:
            _set(run, item)
    except (RefusedByWindows, StopError) as error:
        stop = _stop(item, error)
        ms = elapsed_ms(run.machine, began)
        run.state.keep_resource(item.id, "failed", ms)
        run.transcript.resource(item.phase, item.id, "failed", ms, stop.reason)
        raise stop from error
    ms = elapsed_ms(run.machine, began)
    known = run.state.resources.get(item.id)
    if quiet and not reasons and known is not None and known.status in ("ok", "changed"):
        return
    if not reasons and known is not None and known.status == "setting":
        reasons = ["an earlier run began to set it"]
    run.changed += bool(reasons)
    run.state.keep_resource(item.id, "changed" if reasons else "ok", ms)
    run.transcript.resource(item.phase, item.id, "changed" if reasons else "ok", ms, "; ".join(reasons))
    # Fails at once and names the resource, because no restart follows this phase.
    if run.restart and not run.may_restart:
        reason = f"it was set and needs a restart, but the plan has none after {run.phase}"
        raise StopError(Exit.FAILED, item.failure(reason))


def prefetch(run: PhaseRun, items: Iterable[Item]) -> None:
    """Download the artifacts of the resources that are not as planned, each once."""
    wanted: dict[str, Item] = {}
    for item in items:
        name = item.resource.artifact_name
        if name is not None and name not in wanted and _may_differ(run.machine, item):
            wanted[name] = item
    missing = [
        (name, item)
        for name, item in wanted.items()
        if downloads.announce(run.machine, run.transcript, name, run.plan.artifacts[name])
    ]
    for name, item in missing:
        try:
            downloads.download(run.machine, run.transcript, run.web, name, run.plan.artifacts[name])
        except StopError as error:
            raise _stop(item, error) from error


def _may_differ(machine: Machine, item: Item) -> bool:
    try:
        return bool(inspect(machine, item)[1])
    except RefusedByWindows:
        # An image, before its runtime runs.
        return True


def _set(run: PhaseRun, item: Item) -> None:
    artifact = _fetch_artifact(run, item)
    supplies = Supplies(
        *(UNPACKED, HOME, item.timeout_s, artifact, run.registries),
        files=run.plan.files,
        signatures=run.plan.signatures,
        checked=run.state.checked,
    )
    run.state.keep_resource(item.id, "setting", 0)
    run.machine.before_set(item.id)
    if BEHAVIOUR[item.kind].put(run.machine, item.resource, supplies):
        run.restart = True
        run.state.mark_restart(run.phase)
    if supplies.left_out:
        run.state.left_out[item.id] = LeftOut(count=len(supplies.left_out), names=supplies.left_out[:10])
        run.transcript.say(f"left out, because the plan does not list them: {len(supplies.left_out)} files")
    _, reasons = inspect(run.machine, item)
    if reasons:
        raise RefusedByWindows(f"not as planned after it was set: {'; '.join(reasons)}")


def _fetch_artifact(run: PhaseRun, item: Item) -> str | None:
    name = item.resource.artifact_name
    if name is None:
        return None
    artifact = run.plan.artifacts[name]
    path = downloads.path_of(artifact)
    # Missing if the resource was as planned when the phase began, and was changed since.
    if not run.machine.files.is_file(path) and downloads.announce(run.machine, run.transcript, name, artifact):
        downloads.download(run.machine, run.transcript, run.web, name, artifact)
    return path


def _stop(item: Item, error: RefusedByWindows | StopError) -> StopError:
    code = error.code if isinstance(error, StopError) else Exit.FAILED
    return StopError(code, item.failure(str(error)))
