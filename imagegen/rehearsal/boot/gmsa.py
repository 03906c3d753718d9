"""Looks at the plugin of gMSAs on a booted model machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imagegen.boot import facts
from imagegen.rehearsal.machine.commands import list_publishers

if TYPE_CHECKING:
    from imagegen.rehearsal.machine.windows import Machine

_SOURCES = ("Microsoft-AKSGMSAPlugin", "Microsoft-Windows-Containers-CCG")


def look_at_gmsa(machine: Machine, *, wanted: bool) -> facts.Gmsa | None:
    """None if the image should have no such plugin."""
    if not wanted:
        return None
    known = {name.lower() for name in list_publishers(machine)}
    dll = r"C:\Windows\System32\CCGAKVPlugin.dll"
    # The registration is taken as made: the guest tests the effects of its script.
    return facts.Gmsa(
        is_listed=True,
        dll=dll,
        has_dll=machine.files.is_file(dll),
        surrogate=True,
        is_open=False,
        sources=tuple(name for name in _SOURCES if name.lower() not in known),
    )
