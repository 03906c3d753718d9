"""The cmdlets of Windows Server, from windows-commands.json beside this file; binds a command's words to parameters."""

from __future__ import annotations

import dataclasses
import functools
import json
from pathlib import Path
from typing import TYPE_CHECKING

from tests.powershell.tables import COMMON_PARAMETERS, SWITCHES

if TYPE_CHECKING:
    from tests.powershell.reader import Command, Element, Function, Script

RELEASES = ("2019", "2022", "2025")


@dataclasses.dataclass(frozen=True)
class Cmdlet:
    """A cmdlet of Windows PowerShell 5.1: where it is, and what it takes (each parameter with its aliases)."""

    name: str
    module: str
    releases: frozenset[str]
    parameters: dict[str, tuple[str, ...]]


@functools.cache
def cmdlets() -> dict[str, Cmdlet]:
    """Every cmdlet of the table, by lower-case name."""
    table = json.loads((Path(__file__).parent / "windows-commands.json").read_text("utf-8"))
    return {
        name.lower(): Cmdlet(
            name,
            facts["module"],
            frozenset(facts["on"]),
            {parameter: tuple(aliases) for parameter, aliases in facts["parameters"].items()},
        )
        for name, facts in table.items()
    }


@dataclasses.dataclass(frozen=True)
class Bound:
    """A command's words after binding: values by parameter as written, what is left over, and splatted variables."""

    values: dict[str, Element | None]
    given: tuple[str, ...]
    positional: tuple[Element, ...]
    splats: tuple[str, ...]
    missing: tuple[str, ...]

    def has(self, parameter: str) -> bool:
        return parameter in self.values

    def words(self) -> tuple[Element, ...]:
        return (*(value for value in self.values.values() if value is not None), *self.positional)


def own_function(script: Script, command: Command) -> Function | None:
    name = command.name.lower()
    return script.functions.get(name) or script.imported.get(name)


def parameter_names(script: Script, command: Command) -> frozenset[str] | None:
    """The parameters a command takes, spelled as declared; None for a command that is not known."""
    function = own_function(script, command)
    if function is not None:
        names = frozenset(parameter.name for parameter in function.parameters)
        return names | COMMON_PARAMETERS if function.advanced else names
    cmdlet = cmdlets().get(command.name.lower())
    return None if cmdlet is None else frozenset(cmdlet.parameters) | COMMON_PARAMETERS


def _takes_no_value(script: Script, command: Command, parameter: str) -> bool:
    function = own_function(script, command)
    if function is not None:
        types = {item.name.lower(): item.type for item in function.parameters}
        return types.get(parameter.lower(), "") == "switch"
    return parameter.lower() in SWITCHES


def bind(script: Script, command: Command) -> Bound:
    values: dict[str, Element | None] = {}
    given: list[str] = []
    positional: list[Element] = []
    splats: list[str] = []
    missing: list[str] = []
    wanting = ""
    for element in command.elements:
        text = script.text(element.node)
        if element.parameter:
            missing += [wanting] if wanting else []
            given.append(element.parameter)
            values[element.parameter] = None
            wanting = "" if _takes_no_value(script, command, element.parameter) else element.parameter
        elif element.joined or wanting:
            values[given[-1]] = element
            wanting = ""
        elif text.startswith("@") and not text.startswith(("@(", "@{")):
            splats.append(text.lstrip("@"))
        else:
            positional.append(element)
    missing += [wanting] if wanting else []
    return Bound(values, tuple(given), tuple(positional), tuple(splats), tuple(missing))
