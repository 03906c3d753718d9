"""Parses the entry script's arguments. Pure.

PowerShell passes `-Name:value` to a script as two words, and drops a last word that ends with a colon.
"""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

NAMES = {"-Phase": "phase", "-Bundle": "bundle", "-BundleSha256": "bundle_sha256", "-PlanSha256": "plan_sha256"}
WITH_VALUE = {word.lower(): name for word, name in NAMES.items()}
SWITCHES = {"-check": "check"}
ALL = "all"
DIGEST = re.compile(r"[0-9a-f]{64}")
# powershell.exe accepts long dashes for a hyphen.
DROPPED_ARGUMENT = re.compile(r"[-\u2013\u2014\u2015]\w+:")


class WrongArgumentsError(Exception):
    """The arguments are invalid."""


@dataclasses.dataclass(frozen=True)
class EntryArguments:
    """The parsed arguments."""

    phase: str
    bundle: str
    bundle_sha256: str
    plan_sha256: str
    check: bool = False
    """Whether the machine is only tested and not changed."""


def parse(arguments: Sequence[str]) -> EntryArguments:
    """Parse full names, in any case, each once."""
    # The script reads the whole command line of its process: otherwise -Check: would be dropped and change the machine.
    if arguments and DROPPED_ARGUMENT.fullmatch(arguments[-1]):
        raise WrongArgumentsError("the last argument ends with a colon")
    values: dict[str, str] = {}
    switches: set[str] = set()
    rest = [part for word in arguments for part in _split(word)]
    while rest:
        word = rest.pop(0)
        name = WITH_VALUE.get(word.lower()) or SWITCHES.get(word.lower())
        if name is None:
            raise WrongArgumentsError(f"unknown argument: {word}")
        if name in values or name in switches:
            raise WrongArgumentsError(f"{word} is given twice")
        if name in SWITCHES.values():
            switches.add(name)
        elif not rest or rest[0].startswith("-"):
            raise WrongArgumentsError(f"{word} has no value")
        else:
            values[name] = rest.pop(0)
    for word, name in NAMES.items():
        if not values.get(name):
            raise WrongArgumentsError(f"{word} is missing")
    return _check(EntryArguments(**values, check="check" in switches))


def _split(word: str) -> list[str]:
    name, colon, value = word.partition(":")
    if not (word.startswith("-") and colon):
        return [word]
    return [name, value] if value else [name]


def _check(given: EntryArguments) -> EntryArguments:
    for name, digest in (("-BundleSha256", given.bundle_sha256), ("-PlanSha256", given.plan_sha256)):
        if not DIGEST.fullmatch(digest):
            raise WrongArgumentsError(f"{name} must be 64 lower-case hex digits")
    if given.phase == ALL and not given.check:
        raise WrongArgumentsError("-Phase all can be used only with -Check")
    return given
