"""Stands for the guest's engine: applies a plan to the model machine, and says what Packer and the host read of a run.

It takes every script as run and tests nothing a second time: that the scripts do what they say is shown by real
PowerShell (tests/rehearsal/machine/test_powershell_runs.py) and on Windows (tests/windows)."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import itertools
import json
import zipfile
from typing import TYPE_CHECKING, Final

from imagegen.rehearsal.machine.access import ADMINISTRATORS, SYSTEM, AccessEntry, write
from imagegen.rehearsal.machine.credentials_file import Delivered, take_file
from imagegen.rehearsal.machine.downloads import ARTIFACTS, Web, fetch_artifacts, path_of
from imagegen.rehearsal.machine.events import Transcript
from imagegen.rehearsal.machine.kinds import BEHAVIOUR, apply_effects
from imagegen.rehearsal.machine.kinds.kind import Supplies
from imagegen.rehearsal.machine.plan import HOME, PLAN, UNPACKED, Item, Phase, Plan, items_of, read_plan
from imagegen.rehearsal.machine.refusal import Exit, KilledError, RefusedByWindows, StopError
from imagegen.rehearsal.machine.script_policy import check_script
from imagegen.rehearsal.machine.updates import CURRENT_VERSION, INSTALLED, find_packages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imagegen.rehearsal.machine.downloads import Fetch
    from imagegen.rehearsal.machine.windows import Machine

CHECK_MARK: Final = "imagegen-check: "
"""What the line with the result of a check begins with."""
FIRST_BOOT_LOG: Final = r"C:\Windows\Setup\Scripts\first-boot.log"
REPORT: Final = rf"{HOME}\report.json"
_STATE: Final = rf"{HOME}\state.json"
_LOG: Final = rf"{HOME}\engine.log"
_ENGINE: Final = ("engine.psm1", "common.psm1", "download.psm1")
_ALL: Final = "all"


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a script ended and what it wrote."""

    exit_code: int
    output: str


def run_entry(machine: Machine, arguments: Sequence[str], fetch: Fetch) -> Outcome:
    """Do what `-File start.ps1 <arguments>` does. `fetch` returns the bytes of a URL or raises an OSError."""
    transcript, is_check = Transcript(), "-Check" in arguments
    try:
        delivered = Delivered() if is_check else take_file(machine)
        code = _run(machine, dict(itertools.pairwise([*arguments, ""])), Web(fetch, None, delivered), transcript)
    except StopError as stop:
        transcript.say(f"failed: {stop.reason}")
        code = stop.code
    except KilledError:
        # As Windows says it of a process that another one ended.
        code = Exit.FAULT
    except RefusedByWindows as refusal:
        transcript.say(f"failed: {refusal}")
        code = Exit.FAULT
    if not is_check and machine.files.is_folder(HOME):
        log = machine.files.read(_LOG) if machine.files.is_file(_LOG) else b""
        machine.files.write(_LOG, log + transcript.text.encode())
    return Outcome(int(code), transcript.text)


def _run(machine: Machine, given: dict[str, str], web: Web, transcript: Transcript) -> Exit:
    contents = _open_bundle(machine.files.read(given["-Bundle"]), given)
    plan = read_plan(contents[PLAN])
    _check_contents(plan, contents)
    if machine.build != str(plan.windows.build):
        reason = f"the plan is for Windows Server {plan.windows.release}, build {plan.windows.build}"
        raise StopError(Exit.WRONG_BYTES, f"{reason}; this machine has build {machine.build}")
    items = items_of(plan)
    if "-Check" in given:
        return _check(machine, given, plan, items, transcript)
    _unpack(machine, contents)
    for name in _list_loaded(plan):
        check_script(machine, rf"{UNPACKED}\{name}".replace("/", "\\"))
    phase = next(phase for phase in plan.phases if phase.name == given["-Phase"])
    web = dataclasses.replace(web, proxy=plan.proxy)
    return _PhaseRun(machine, plan, phase, items, web, transcript).run(given["-PlanSha256"])


def _open_bundle(data: bytes, given: dict[str, str]) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        contents = {entry.filename: archive.read(entry) for entry in archive.infolist()}
    for name, found, expected in (
        ("the bundle", data, given["-BundleSha256"]),
        (PLAN, contents.get(PLAN, b""), given["-PlanSha256"]),
    ):
        if (sha256 := hashlib.sha256(found).hexdigest()) != expected:
            raise StopError(Exit.WRONG_BYTES, f"the sha256 of {name} is {sha256}, expected {expected}")
    return contents


def _check_contents(plan: Plan, contents: dict[str, bytes]) -> None:
    """Every file is listed with its digest, and the engine finds each script that it loads."""
    found = {name: hashlib.sha256(data).hexdigest() for name, data in contents.items() if name != PLAN}
    if differing := sorted(name for name, _ in found.items() ^ plan.files.items()):
        raise StopError(Exit.WRONG_BYTES, f"the bundle has other files than the plan lists: {', '.join(differing)}")
    if missing := sorted({*_list_loaded(plan)} - found.keys()):
        raise StopError(Exit.FAULT, f"the engine cannot load {', '.join(missing)}: the bundle does not have it")


def _list_loaded(plan: Plan) -> tuple[str, ...]:
    """The scripts that the engine imports or runs when it starts."""
    entries = [entry for phase in plan.phases for step in phase.steps for entry in step.resources]
    tested = {effect.kind for entry in entries if entry.kind != "file" for effect in entry.effects}
    return (*_ENGINE, *(f"kinds/{kind}.ps1" for kind in sorted({entry.kind for entry in entries} | tested)))


def _unpack(machine: Machine, contents: dict[str, bytes]) -> None:
    machine.files.make_folder(HOME)
    owners = [AccessEntry(sid, "FullControl", inherit=True) for sid in (SYSTEM, ADMINISTRATORS)]
    write(machine.files, HOME, owners, protected=True)
    if machine.files.exists(UNPACKED):
        machine.files.remove(UNPACKED)
    for name, data in contents.items():
        path = f"{UNPACKED}\\{name}".replace("/", "\\")
        machine.files.make_folder(path.rpartition("\\")[0])
        machine.files.write(path, data)
    # Only a build has a state. Here the records are in memory.
    machine.files.write(_STATE, b"{}")


class _PhaseRun:
    """One run of one phase."""

    def __init__(
        self, machine: Machine, plan: Plan, phase: Phase, items: Sequence[Item], web: Web, transcript: Transcript
    ) -> None:
        self._machine, self._plan, self._phase, self._items = machine, plan, phase, items
        self._web, self._transcript = web, transcript
        self._own = [item for item in items if item.phase == phase.name]
        self._began = machine.clock()
        self._changed = 0
        self._restart = False

    def run(self, plan_sha256: str) -> Exit:
        self._tell("started")
        try:
            self._set_all()
        except StopError as stop:
            self._tell("failed", stop.reason)
            raise
        self._keep_record()
        if self._phase is self._plan.phases[-1]:
            self._write_report(plan_sha256)
        self._tell("finished")
        return Exit.RESTART_DUE if self._restart else Exit.DONE

    def _set_all(self) -> None:
        certificates = [item for item in self._own if item.kind == "certificate"]
        for item in certificates:
            self._set(item)
        self._fetch()
        for item in self._own:
            if item not in certificates:
                self._set(item)
        self._restart = self._restart or self._machine.restart_pending()
        if self._restart and not self._phase.restart:
            reason = f"a restart is needed after {self._phase.name}, but the plan has none there"
            raise StopError(Exit.FAILED, reason)
        if self._machine.files.exists(ARTIFACTS):
            self._machine.files.remove(ARTIFACTS)

    def _fetch(self) -> None:
        """Download the artifacts of the resources that no earlier run of the phase has set."""
        known = self._machine.progress.resources
        wanted = {
            item.resource.artifact_name: item
            for item in reversed(self._own)
            if item.resource.artifact_name and known.get(item.id) not in ("ok", "changed")
        }
        names = {name: self._plan.artifacts[name] for name in reversed(wanted) if name}
        try:
            fetch_artifacts(self._machine, self._transcript, self._web, names)
        except StopError as error:
            raise StopError(error.code, wanted[error.about].failure(error.reason)) from error

    def _set(self, item: Item) -> None:
        machine, progress, began = self._machine, self._machine.progress, self._machine.clock()
        try:
            status = self._apply(item)
        except RefusedByWindows as refusal:
            stop = StopError(Exit.FAILED, item.failure(str(refusal)))
            progress.keep(item.id, "failed")
            self._transcript.resource(item.phase, item.id, "failed", elapsed_ms(machine, began), stop.reason)
            raise stop from refusal
        self._changed += status == "changed"
        progress.keep(item.id, status)
        self._transcript.resource(item.phase, item.id, status, elapsed_ms(machine, began))

    def _apply(self, item: Item) -> str:
        kind, machine, progress = BEHAVIOUR[item.kind], self._machine, self._machine.progress
        # An image cannot be looked at before its runtime runs.
        before = kind.get(machine, item.resource)
        if progress.resources.get(item.id) in ("ok", "changed") and before == progress.facts.get(item.id):
            return "ok"
        machine.before_set(item.id)
        name = item.resource.artifact_name
        supplies = Supplies(
            *(item.timeout_s, path_of(self._plan.artifacts[name]) if name else None, self._web.delivered.registries),
            signatures=self._plan.signatures,
            checked=progress.checked,
        )
        if kind.put(machine, item.resource, supplies):
            self._restart = True
        if item.kind != "file":
            apply_effects(machine, item.effects)
        if supplies.left_out:
            progress.left_out[item.id] = {"count": len(supplies.left_out), "names": supplies.left_out[:10]}
        after = progress.facts[item.id] = kind.get(machine, item.resource)
        return "ok" if before == after else "changed"

    def _keep_record(self) -> None:
        # Of an earlier run of the phase too.
        known = self._machine.progress.resources
        self._machine.progress.phases[self._phase.name] = {
            "name": self._phase.name,
            "status": "finished",
            "changed": sum(known[item.id] == "changed" for item in self._own),
            "restart": self._restart,
            "ms": elapsed_ms(self._machine, self._began),
        }

    def _tell(self, status: str, reason: str = "") -> None:
        ms = 0 if status == "started" else elapsed_ms(self._machine, self._began)
        self._transcript.phase(
            self._phase.name,
            status,
            resources=len(self._own),
            changed=self._changed,
            restart=self._restart,
            ms=ms,
            reason=reason,
        )

    def _write_report(self, plan_sha256: str) -> None:
        machine, progress = self._machine, self._machine.progress
        if self._machine.restart_pending():
            raise StopError(Exit.FAILED, "Windows has a restart pending after the last phase")
        for item in self._items:
            progress.facts[item.id] = None if item.repeated else BEHAVIOUR[item.kind].get(machine, item.resource)
        report: dict[str, object] = {
            "report_version": 1,
            "plan_sha256": plan_sha256,
            "name": self._plan.name,
            "target": self._plan.target,
            "machine": _describe(machine),
            "phases": [progress.phases[phase.name] for phase in self._plan.phases],
            "resources": [
                {
                    **{"id": item.id, "phase": item.phase, "step": item.step, "kind": item.kind},
                    **{"status": progress.resources[item.id], "ms": 0, "facts": progress.facts[item.id]},
                }
                for item in self._items
            ],
            "signatures": {
                sha256: "machine" if sha256 in progress.checked else "host"
                for sha256, signature in sorted(self._plan.signatures.items())
                if signature
            },
            "left_out": progress.left_out,
        }
        machine.before_report(report)
        data = json.dumps(report, separators=(",", ":")).encode("ascii")
        machine.files.write(REPORT, data)
        self._transcript.report(REPORT, hashlib.sha256(data).hexdigest())


def elapsed_ms(machine: Machine, began: float) -> int:
    return int((machine.clock() - began) * 1000)


def find_differences(machine: Machine, item: Item) -> list[str]:
    """The facts of a resource that are no longer those of the end of the build."""
    before, now = machine.progress.facts.get(item.id) or {}, BEHAVIOUR[item.kind].get(machine, item.resource)
    if now is None:
        return [f"{item.id} is gone"]
    # What a service's resource leaves out, such as its state, may change.
    stated = [name for name in now if getattr(item.resource, name, "") is not None]
    return [f"{name} is {now[name]}, not {before.get(name)}" for name in stated if now[name] != before.get(name)]


def _check(machine: Machine, given: dict[str, str], plan: Plan, items: Sequence[Item], transcript: Transcript) -> Exit:
    """-Check: compare the facts of every resource with those of the end of the build, and print the result."""
    # SetupComplete.cmd writes the log at a node's first boot. Only a build has a state.
    booted = machine.files.is_file(FIRST_BOOT_LOG) and not machine.files.is_file(_STATE)
    tested: list[dict[str, object]] = []
    for phase in plan.phases:
        own = [item for item in items if item.phase == phase.name and not item.repeated]
        transcript.phase(phase.name, "started", resources=len(own))
        for item in own:
            status, reasons = _check_item(machine, item, booted=booted)
            tested.append({"id": item.id, "status": status, "reasons": reasons})
            transcript.resource(item.phase, item.id, status, 0, "; ".join(reasons))
        transcript.phase(phase.name, "finished", resources=len(own))
    count = {name: sum(one["status"] == name for one in tested) for name in ("ok", "drifted", "skipped", "failed")}
    result = {
        **{"check_version": 1, "plan_sha256": given["-PlanSha256"], "name": plan.name, "target": plan.target},
        **{"phase": given["-Phase"], "node": machine.host_name, "booted": booted, "machine": _describe(machine)},
        **{"count": count, "resources": tested},
    }
    transcript.say(CHECK_MARK + json.dumps(result, separators=(",", ":")))
    if count["failed"]:
        return Exit.FAILED
    return Exit.DRIFT if count["drifted"] else Exit.DONE


def _check_item(machine: Machine, item: Item, *, booted: bool) -> tuple[str, list[str]]:
    status, reasons = "skipped", ["a node may change it after its first boot"]
    if not booted or item.until is None:
        try:
            reasons = find_differences(machine, item)
            status = "drifted" if reasons else "ok"
        except RefusedByWindows as refusal:
            status, reasons = "failed", [str(refusal)]
    return status, reasons


def _describe(machine: Machine) -> dict[str, object]:
    """The machine of a report, and of the result of a check."""
    registry = machine.registry
    return {
        "product": registry.text(CURRENT_VERSION, "ProductName"),
        "edition": registry.text(CURRENT_VERSION, "EditionID"),
        "installation": registry.text(CURRENT_VERSION, "InstallationType"),
        "build": int(machine.build),
        "ubr": registry.number(CURRENT_VERSION, "UBR"),
        "updates": sorted(kb for kb, state, _ in find_packages(machine) if state == INSTALLED),
    }
