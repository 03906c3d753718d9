"""Windows updates on the model machine: as update.ps1 and its script in a task of SYSTEM install them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from imagegen.rehearsal.machine.bundle import HOME
from imagegen.rehearsal.machine.kinds.kind import digest
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.machine.script_policy import check_script
from imagegen.rehearsal.machine.tasks import SERVICE
from imagegen.rehearsal.machine.updates import (
    CURRENT_VERSION,
    INSTALL_UPDATES_SHA256,
    INSTALLED,
    PENDING,
    PERMANENT,
    SUPERSEDED,
    find_packages,
)
from imagegen.steps.kinds import POWERSHELL
from imagegen.trust.block import without_signature

if TYPE_CHECKING:
    from imagegen.rehearsal.machine.kinds.kind import Facts, Supplies
    from imagegen.rehearsal.machine.updates import Ended
    from imagegen.rehearsal.machine.windows import Machine
    from imagegen.steps.kinds import Update

FOLDER = HOME + r"\updates"
KEPT = FOLDER + r"\winhttp.txt"
_PARTIALLY = 101


def get(machine: Machine, wanted: Update) -> Facts | None:
    record = _read(machine, wanted)
    states = {SUPERSEDED, INSTALLED, PERMANENT, *((PENDING, _PARTIALLY) if machine.restart_pending() else ())}
    there = {kb for kb, state, _ in find_packages(machine) if state in states}
    ubr = machine.registry.number(CURRENT_VERSION, "UBR") or 0

    def has(kb: str, revision: int | None) -> bool:
        return kb in there or (revision is not None and ubr >= revision)

    return {
        "rounds": record["rounds"],
        "asked": machine.updates.asked,
        "ubr": ubr,
        "installed": record["installed"],
        "lost": [one["kb"] for one in record["serviced"] if not has(one["kb"], one["ubr"])],
        "missing": [one.kb for one in wanted.kbs if one.kb not in record["installed"] and not has(one.kb, one.ubr)],
        "proxy_left": machine.files.is_file(KEPT),
    }


def test(_machine: Machine, wanted: Update, facts: Facts | None) -> list[str]:
    found = facts or {}
    reasons = ["WinHTTP still has the proxy of the updates"] if found["proxy_left"] else []
    rounds, ubr = found["rounds"], found["ubr"]
    if not found["asked"] and rounds < wanted.rounds:
        reasons.append(f"Windows Update was asked in {rounds} of {wanted.rounds} rounds")
    reasons += [
        f"{kb} was installed, and is no longer there: Windows took it back, and has the revision {ubr}"
        for kb in found["lost"]
    ]
    # An update may be offered only after another one is installed.
    if rounds >= wanted.rounds:
        reasons += [
            f"{kb} is not installed, and Windows Update does not offer it: it may be of another release, withdrawn, or "
            f"replaced (Windows has the revision {ubr})"
            for kb in found["missing"]
        ]
    return reasons


def put(machine: Machine, wanted: Update, supplies: Supplies) -> bool:
    if not machine.files.is_file(POWERSHELL):
        raise RefusedByWindows(f"cannot find {POWERSHELL}")
    if not machine.services.is_running(SERVICE):
        raise RefusedByWindows(f"the task scheduler does not answer: service {SERVICE} is not running")
    script = machine.files.read(f"{supplies.bundle}\\{wanted.source}")
    if digest(script) != wanted.sha256:
        raise RefusedByWindows(f"the sha256 of {wanted.source} is {digest(script)}, not {wanted.sha256}")
    check_script(machine, f"{supplies.bundle}\\{wanted.source}")
    if digest(without_signature(script)) != INSTALL_UPDATES_SHA256:
        raise RefusedByWindows(f"the rehearsal does not know what {wanted.source} does")
    machine.files.make_folder(FOLDER)
    if wanted.proxy is not None:
        if not machine.files.is_file(KEPT):
            machine.files.write(KEPT, (machine.updates.proxy or "").encode())
        machine.updates.proxy = wanted.proxy
    try:
        found, ended, code = _install(machine, wanted)
    finally:
        if machine.files.is_file(KEPT):
            machine.updates.proxy = machine.files.read(KEPT).decode() or None
            machine.files.remove(KEPT)
    _check(wanted, ended, code)
    _keep(machine, wanted, found, {one.offer.kb for one in ended})
    machine.updates.asked = True
    return any(one.offer.restarts for one in ended)


def _install(machine: Machine, wanted: Update) -> tuple[int, list[Ended], str]:
    """How many updates were found, how each ended, and the code with which Windows Update failed itself."""
    kbs = {one.kb for one in wanted.kbs}
    offers = machine.updates.search(machine, set(wanted.categories), kbs)
    if isinstance(offers, str):
        return 0, [], offers
    chosen = [offer for offer in offers if offer.kb not in wanted.exclude]
    return len(chosen), list(machine.updates.install(machine, chosen)), ""


def _check(wanted: Update, ended: list[Ended], code: str) -> None:
    failed = [one for one in ended if one.code]
    told = [f"could not {one.step} {one.offer.kb}, {one.offer.kb}: {one.code}" for one in failed]
    told += [f"failed: {code}"] if code else []
    codes = {code, *(one.code for one in failed)}
    if told:
        meanings = [f"{one.code} means: {one.means}" for one in wanted.codes if one.code in codes]
        raise RefusedByWindows(f"Windows Update {'; '.join([*told, *meanings])}")


def _keep(machine: Machine, wanted: Update, found: int, done: set[str]) -> None:
    record = _read(machine, wanted)
    rounds = record["rounds"] + 1
    new = [{"kb": kb, "ubr": revision} for kb, _, revision in find_packages(machine) if kb in done]
    kept = {
        # Without anything to install, later rounds would find nothing either: unless a killed run installed something
        # that waits for a restart.
        "rounds": rounds if found or machine.restart_pending() else max(rounds, wanted.rounds),
        "installed": sorted({*record["installed"], *done}),
        "serviced": [*record["serviced"], *new],
    }
    machine.files.write(_path(wanted), json.dumps(kept).encode())


def _path(wanted: Update) -> str:
    return rf"{FOLDER}\{wanted.name}.json"


def _read(machine: Machine, wanted: Update) -> dict[str, Any]:
    """The record of the rounds. A run that was killed may have left a part of it, which counts as none."""
    if machine.files.is_file(_path(wanted)):
        try:
            found = json.loads(machine.files.read(_path(wanted)))
            return {name: found[name] for name in ("rounds", "installed", "serviced")}
        except (ValueError, KeyError, TypeError):
            pass
    return {"rounds": 0, "installed": [], "serviced": []}
