"""Runs `start.ps1 -Check` on a booted node, as an operator does, before and after a file is changed."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Final

from imagegen.boot.upkeep import Drift
from imagegen.rehearsal.expected import BUNDLE_PATH
from imagegen.rehearsal.machine.engine import CHECK_MARK, run_entry

if TYPE_CHECKING:
    from imagegen.rehearsal.expected import Expected
    from imagegen.rehearsal.machine.windows import Machine

_PLANTED: Final = b"# changed by somebody\n"


@dataclasses.dataclass(frozen=True)
class Bundle:
    """The bundle that made an image, and the arguments of start.ps1 that pin it."""

    data: bytes
    pins: tuple[str, ...]

    @classmethod
    def of_tree(cls, tree: Expected) -> Bundle:
        # After -Phase and its value.
        return cls(tree.bundle, tree.phases[0].arguments[2:])


def look_for_drift(machine: Machine, bundle: Bundle, kubernetes: str) -> Drift:
    """What -Check says of the node as it is, and once the script in the folder `kubernetes` is changed."""
    script = rf"{kubernetes}\start-kubelet.ps1"
    exit_code, found = check(machine, bundle)
    before = machine.files.read(script) if machine.files.is_file(script) else b""
    machine.files.write(script, before + _PLANTED)
    planted_code, planted = check(machine, bundle)
    machine.files.write(script, before)
    new = tuple(name for name in planted if planted[name] != found.get(name))
    return Drift(
        exit_code=exit_code,
        found=tuple(f"{name}: {why}" for name, why in found.items()),
        planted=script,
        planted_code=planted_code,
        found_planted=new,
    )


def check(machine: Machine, bundle: Bundle) -> tuple[int, dict[str, str]]:
    """The exit code of -Check, and the reasons of each resource that is not as planned."""
    machine.files.write(BUNDLE_PATH, bundle.data)
    outcome = run_entry(machine, ["-Phase", "all", *bundle.pins, "-Check"], _download_nothing)
    machine.files.remove(BUNDLE_PATH)
    lines = [line for line in outcome.output.splitlines() if line.startswith(CHECK_MARK)]
    if not lines:
        return outcome.exit_code, {"-Check": outcome.output.strip().rpartition("\n")[2]}
    tested = json.loads(lines[0].removeprefix(CHECK_MARK))["resources"]
    return outcome.exit_code, {
        one["id"]: "; ".join(one["reasons"]) for one in tested if one["status"] not in ("ok", "skipped")
    }


def _download_nothing(url: str, _authorization: str, _proxy: str | None) -> bytes:
    raise ConnectionError(f"-Check asked for {url}: it must download nothing")
