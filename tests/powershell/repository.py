"""The scripts of this repository, each read with the functions that the bundle's modules bring into it."""

from __future__ import annotations

import functools
import re
from pathlib import Path

from tests.powershell import rules_flow, rules_form, rules_types, rules_values, rules_words
from tests.powershell.reader import Function, Script
from tests.powershell.tables import SCRIPT_GLOBS

ROOT = Path(__file__).parents[2]
MODULES = "packer/guest"
# The engine imports it for everyone; the other modules are seen by those who import them.
SHARED_MODULE = "common.psm1"

RULES = (*rules_form.RULES, *rules_words.RULES, *rules_types.RULES, *rules_flow.RULES, *rules_values.RULES)


def script_paths() -> list[str]:
    found = {path for pattern in SCRIPT_GLOBS for path in ROOT.glob(pattern)}
    return sorted(path.relative_to(ROOT).as_posix() for path in found)


def exported(module: Script) -> dict[str, Function]:
    """What a module lets others see: all it defines, or what Export-ModuleMember names."""
    names = {
        name.lower()
        for command in module.commands
        if command.name == "Export-ModuleMember"
        for element in command.elements
        for name in re.findall(r"[\w]+-[\w]+", module.text(element.node) if not element.parameter else "")
    }
    return {name: function for name, function in module.functions.items() if not names or name in names}


@functools.cache
def _modules() -> dict[str, dict[str, Function]]:
    paths = [path for path in script_paths() if path.startswith(f"{MODULES}/") and path.endswith(".psm1")]
    return {Path(path).name: exported(Script(path, (ROOT / path).read_bytes())) for path in paths}


def imported(path: str, data: bytes) -> dict[str, Function]:
    """The bundle's functions that a script can call: the shared ones reach all who import a module, and the kinds."""
    names = {name for name in _modules() if re.search(rb"['\\\\]" + re.escape(name.encode()) + rb"['\"]", data)}
    if names or path.startswith((f"{MODULES}/kinds/", f"{MODULES}/download")):
        names.add(SHARED_MODULE)
    return {name: function for module in sorted(names) for name, function in _modules().get(module, {}).items()}


@functools.cache
def script(path: str) -> Script:
    data = (ROOT / path).read_bytes()
    return Script(path, data, imported(path, data))
