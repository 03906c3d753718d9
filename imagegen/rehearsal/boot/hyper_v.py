"""Looks at Hyper-V on a booted model machine: what the config wants of it, and what is."""

from __future__ import annotations

import dataclasses
import itertools
import tomllib
from typing import TYPE_CHECKING, Any, Final, Literal

from imagegen.boot import facts
from imagegen.rehearsal.machine.programs import words
from imagegen.rehearsal.machine.windows import HYPER_V_SERVICE
from imagegen.rehearsal.node.kubelet_options import last_values, split_map

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from imagegen.rehearsal.machine.windows import Machine
    from imagegen.settle.spec import Spec

HANDLER: Final = "runhcs-wcow-hypervisor"
_SHIM: Final = "io.containerd.runhcs.v1"
# The plugins with containerd's handlers, by the schema of its configuration.
_PLUGINS: Final = {2: "io.containerd.grpc.v1.cri", 3: "io.containerd.cri.v1.runtime"}
_IMAGES: Final = "io.containerd.cri.v1.images"
# The schemas in which a handler can have images of its own.
_BY_PLATFORM: Final = (3,)


@dataclasses.dataclass(frozen=True)
class WantedHyperV:
    """What a config wants of Hyper-V."""

    level: Literal["tools", "isolation"]
    builds: tuple[int, ...]
    """The builds of Windows for which containerd must have a handler."""
    gate: str
    """kubelet's feature gate. Empty if it needs none."""


def describe_wanted(spec: Spec) -> WantedHyperV | None:
    level = spec.config.windows.hyper_v
    return None if level == "none" else WantedHyperV(level, spec.facts.hyper_v.builds, spec.facts.hyper_v.gate)


def look_at_hyper_v(machine: Machine, wanted: WantedHyperV | None, arguments: Sequence[str]) -> facts.HyperV | None:
    """`arguments` are those of the kubelet that runs."""
    if wanted is None:
        return None
    names = [HANDLER, *(f"{HANDLER}-{build}" for build in wanted.builds)] if wanted.builds else []
    has = frozenset(find_handlers(machine)) if names else frozenset()
    flags = [(word.lstrip("-").partition("=")[0], word.partition("=")[2]) for word in arguments]
    gates = split_map(last_values(flags).get("feature-gates", ""))
    return facts.HyperV(
        wanted=wanted.level,
        service_runs=machine.services.is_running(HYPER_V_SERVICE),
        has_commands=machine.features.is_installed("Hyper-V-PowerShell"),
        runs_hypervisor=machine.runs_hypervisor,
        missing_handlers=tuple(name for name in names if name not in has),
        missing_gate="" if gates.get(wanted.gate, "").lower() == "true" else wanted.gate,
    )


def find_handlers(machine: Machine) -> Iterator[str]:
    """The handlers that isolate pods. One for a build also needs to know which image of a name it takes."""
    config = _read_config(machine)
    version = config.get("version", 0)
    plugins = config.get("plugins", {})
    runtimes: Mapping[str, Any] = plugins.get(_PLUGINS.get(version, ""), {}).get("containerd", {}).get("runtimes", {})
    platforms: Mapping[str, Any] = plugins.get(_IMAGES, {}).get("runtime_platforms", {})
    for name, row in runtimes.items():
        isolates = row.get("runtime_type") == _SHIM and row.get("options", {}).get("SandboxIsolation") == 1
        build = name.removeprefix(HANDLER).removeprefix("-")
        platform = platforms.get(name, {}).get("platform")
        if isolates and (version not in _BY_PLATFORM or not build or platform == f"windows(10.0.{build})/amd64"):
            yield name


def _read_config(machine: Machine) -> dict[str, Any]:
    """The configuration with which containerd's service runs."""
    given = dict(itertools.pairwise(words(machine.services.command("containerd"))))
    path = given.get("--config", "")
    return tomllib.loads(machine.files.read(path).decode()) if path and machine.files.is_file(path) else {}
