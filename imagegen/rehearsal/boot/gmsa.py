"""Looks at the plugin of gMSAs on a booted model machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imagegen.boot import facts
from imagegen.rehearsal.machine.commands import list_publishers
from imagegen.rehearsal.machine.credential_plugins import APPLICATION, CLASS, CLASSES, LISTED, SERVER, is_listed

if TYPE_CHECKING:
    from imagegen.rehearsal.machine.windows import Machine

_SOURCES = ("Microsoft-AKSGMSAPlugin", "Microsoft-Windows-Containers-CCG")


def look_at_gmsa(machine: Machine, *, wanted: bool) -> facts.Gmsa | None:
    """None if the image should have no such plugin."""
    if not wanted:
        return None
    registry = machine.registry
    dll, application = registry.text(SERVER, "") or "", registry.text(rf"{CLASSES}\CLSID\{CLASS}", "AppID") or ""
    known = {name.lower() for name in list_publishers(machine)}
    return facts.Gmsa(
        is_listed=is_listed(machine, CLASS),
        dll=dll,
        has_dll=bool(dll) and machine.files.is_file(dll),
        surrogate=application == APPLICATION
        and registry.text(rf"{CLASSES}\AppID\{application}", "DllSurrogate") is not None,
        is_open=LISTED.lower() in registry.opened,
        sources=tuple(name for name in _SOURCES if name.lower() not in known),
    )
