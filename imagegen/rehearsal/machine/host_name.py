"""The machine's name and primary DNS suffix in the registry: those in force, and those that the next start brings."""

from __future__ import annotations

import re

from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.machine.registry import Registry, Value

_NAMES = r"HKLM:\SYSTEM\CurrentControlSet\Control\ComputerName"
TCPIP = r"HKLM:\SYSTEM\CurrentControlSet\Services\Tcpip\Parameters"
_CONFIGURED = (TCPIP, "NV Hostname")
_IN_FORCE = (TCPIP, "Hostname")
_CONFIGURED_SUFFIX = (TCPIP, "NV Domain")
_SUFFIX_IN_FORCE = (TCPIP, "Domain")
# The NetBIOS name is at most so long; Windows cuts the rest.
_LONGEST_NETBIOS = 15
_LONGEST = 63


def read_host_name(registry: Registry) -> str:
    return registry.text(*_IN_FORCE) or ""


def write_host_name(registry: Registry, name: str) -> None:
    """Set the name that the next start brings, as SetComputerNameEx does."""
    if len(name) > _LONGEST or not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?", name) or name.isdigit():
        raise RefusedByWindows(f"a computer cannot have the name '{name}' (error 123)")
    _write(registry, *_CONFIGURED, name)
    _write(registry, rf"{_NAMES}\ComputerName", "ComputerName", name[:_LONGEST_NETBIOS].upper())


def apply_host_name(registry: Registry) -> None:
    """What a start does: the configured name and suffix are in force."""
    name = registry.text(*_CONFIGURED)
    if name:
        _write(registry, *_IN_FORCE, name)
        _write(registry, rf"{_NAMES}\ActiveComputerName", "ComputerName", name[:_LONGEST_NETBIOS].upper())
    suffix = registry.text(*_CONFIGURED_SUFFIX)
    if suffix is not None:
        _write(registry, *_SUFFIX_IN_FORCE, suffix)


def _write(registry: Registry, key: str, name: str, text: str) -> None:
    registry.make_key(key)
    registry.write(key, name, Value("String", text))
