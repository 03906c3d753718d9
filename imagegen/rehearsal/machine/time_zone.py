"""The machine's time zone, in the registry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imagegen.catalog.facts import table
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.machine.registry import Registry, Value

if TYPE_CHECKING:
    from imagegen.catalog.facts import JsonObject

KEY: Final = r"HKLM:\SYSTEM\CurrentControlSet\Control\TimeZoneInformation"
UTC: Final = "UTC"
# What Windows Setup chooses for the region en-US if its answer file names no zone.
OF_THE_REGION: Final = "Pacific Standard Time"


def write_time_zone(registry: Registry, name: str) -> None:
    zones = _zones()
    key_name = name.removesuffix(zones["without_daylight"])
    known = {zone.lower(): zone for zone in zones["names"]}
    if key_name.lower() not in known:
        raise RefusedByWindows(f"there is no time zone '{name}'")
    registry.make_key(KEY)
    registry.write(KEY, "TimeZoneKeyName", Value("String", known[key_name.lower()]))
    registry.write(KEY, "DynamicDaylightTimeDisabled", Value("DWord", int(name != key_name)))


def _zones() -> JsonObject:
    return table("time-zones")
