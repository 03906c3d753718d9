"""The entry script's arguments: words of the command line in, what was asked out. Pure.

PowerShell itself hands `-Name:value` to a script as two words, and drops a last word that ends with a colon.
"""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

NAMES = {"-Phase": "phase", "-Bundle": "bundle", "-BundleSha256": "bundle_sha256", "-PlanSha256": "plan_sha256"}
WITH_VALUE = {word.lower(): name for word, name in NAMES.items()}
SWITCHES = {"-check": "check", "-whatif": "what_if"}
ALL = "all"
DIGEST = re.compile(r"[0-9a-f]{64}")
# powershell.exe takes long dashes for a hyphen.
DROPPED = re.compile(r"[-\u2013\u2014\u2015]\w+:")


class WrongArgumentsError(Exception):
    """The command line says something that the entry does not know."""


@dataclasses.dataclass(frozen=True)
class Asked:
    """What the command line asks."""

    phase: str
    bundle: str
    bundle_sha256: str
    plan_sha256: str
    check: bool = False
    what_if: bool = False

    @property
    def only_looks(self) -> bool:
        return self.check or self.what_if


def parse(arguments: Sequence[str]) -> Asked:
    """Full names only, in any case, each once."""
    # The script looks at its process's whole command line: without its last word, -Check: would not look, but change.
    if arguments and DROPPED.fullmatch(arguments[-1]):
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
    return _checked(Asked(**values, check="check" in switches, what_if="what_if" in switches))


def _split(word: str) -> list[str]:
    name, colon, value = word.partition(":")
    if not (word.startswith("-") and colon):
        return [word]
    return [name, value] if value else [name]


def _checked(asked: Asked) -> Asked:
    for name, digest in (("-BundleSha256", asked.bundle_sha256), ("-PlanSha256", asked.plan_sha256)):
        if not DIGEST.fullmatch(digest):
            raise WrongArgumentsError(f"{name} must be 64 lower-case hex digits")
    if asked.check and asked.what_if:
        raise WrongArgumentsError("-Check and -WhatIf cannot be used together")
    if asked.phase == ALL and not asked.only_looks:
        raise WrongArgumentsError("-Phase all can be used only with -Check or -WhatIf")
    return asked
