"""Rules on commands: that they exist, that their parameters exist, and what may not be called at all."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tests.powershell.cmdlets import RELEASES, bind, cmdlets, own_function, parameter_names
from tests.powershell.tables import (
    COMPILING_SCRIPTS,
    DIRECT_NATIVE,
    FORBIDDEN_COMMANDS,
    GONE_PARAMETERS,
    NATIVE_TOOLS,
    NETWORK_COMMANDS,
    NETWORK_SCRIPT,
    NO_LITERAL_PATH,
    POSITIONAL,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.powershell.cmdlets import Bound
    from tests.powershell.reader import Command, Node, Script

_KIND_KEYS = frozenset({"get", "test", "set"})


def _named(script: Script) -> list[Command]:
    """The commands called by a plain name."""
    return [command for command in script.commands if not command.operator]


def commands_exist(script: Script) -> list[str]:
    found = []
    for command in _named(script):
        name = command.name.lower()
        function, cmdlet = own_function(script, command), cmdlets().get(name)
        spelling = function.name if function else cmdlet.name if cmdlet else None
        if name in FORBIDDEN_COMMANDS or name in NETWORK_COMMANDS:
            continue
        if spelling is None:
            direct = name in NATIVE_TOOLS and script.file_name in DIRECT_NATIVE
            if not direct:
                found.append(script.at(command.node, f"there is no command {command.name}, or it is an alias"))
        elif spelling != command.name:
            found.append(script.at(command.node, f"{command.name} is written {spelling}"))
        elif function is None and cmdlet is not None and not cmdlet.releases.issuperset(RELEASES):
            where = ", ".join(sorted(cmdlet.releases))
            found.append(script.at(command.node, f"{command.name} is on {where} only"))
        elif function and script.scope(command.node) is script.root and _before_definition(script, command):
            found.append(script.at(command.node, f"{command.name} is called before it is defined"))
    return found


def _before_definition(script: Script, command: Command) -> bool:
    own = script.functions.get(command.name.lower())
    return own is not None and command.node.start < own.node.start


def _known(script: Script) -> list[tuple[Command, Bound]]:
    """The commands that exist, with their words bound."""
    found = [command for command in _named(script) if parameter_names(script, command) is not None]
    return [(command, bind(script, command)) for command in found]


def parameters_exist(script: Script) -> list[str]:
    found = []
    for command, bound in _known(script):
        known = parameter_names(script, command) or frozenset()
        given = [*bound.given, *(key for splat in bound.splats for key in _keys(script, command, splat))]
        found += [
            script.at(command.node, f"{command.name} has no parameter -{name}, or it is an alias or cut short")
            for name in given
            if name not in known or name.lower() in GONE_PARAMETERS
        ]
        lower = [name.lower() for name in given]
        repeated = sorted({name for name in lower if lower.count(name) > 1})
        found += [script.at(command.node, f"{command.name} gets -{name} twice") for name in repeated]
    return found


def _keys(script: Script, command: Command, variable: str) -> list[str]:
    """The keys of the hashtables that a splatted variable gets in this scope, and of what is added to it."""
    keys: dict[str, None] = {}
    for node in script.of_type("assignment_expression"):
        if script.scope(node) is not script.scope(command.node):
            continue
        target, value = node.words[0].core(), node.words[-1].core()
        if script.text(target).lower() == f"${variable.lower()}" and value.type == "hash_literal_expression":
            entries = [entry for entry in script.of_type("hash_entry") if entry.within(value)]
            keys |= {script.text(entry.words[0].core()).strip("'\""): None for entry in entries}
        member = re.fullmatch(rf"\${re.escape(variable)}(?:\.(\w+)|\['(\w+)'\])", script.text(target), re.IGNORECASE)
        if member:
            keys[member.group(1) or member.group(2)] = None
    return list(keys)


def parameters_have_values(script: Script) -> list[str]:
    found = []
    for command, bound in _known(script):
        found += [script.at(command.node, f"{command.name} -{name} has no value") for name in bound.missing]
        found += [
            script.at(command.node, f"{command.name}: {script.text(word.node)} is text here: put it in parentheses")
            for word in bound.words()
            if script.text(word.node).startswith("[")
        ]
    return found


def named_parameters(script: Script) -> list[str]:
    found = []
    for command, bound in _known(script):
        allowed = POSITIONAL.get(command.name.lower(), 0)
        if len(bound.positional) > allowed:
            words = " ".join(script.text(word.node) for word in bound.positional[allowed:])
            found.append(script.at(command.node, f"{command.name}: without a parameter's name: {words}"))
    return found


def called_values(script: Script) -> list[str]:
    """`&` runs script blocks and scripts; a program goes through Invoke-Native, which judges its exit code."""
    found = []
    for command in script.commands:
        if command.operator == ".":
            found.append(script.at(command.node, "dot-sourcing brings names that nobody declared"))
        elif command.operator and script.file_name not in DIRECT_NATIVE and not _is_block(script, command):
            found.append(script.at(command.node, f"& {command.name}: a program goes through Invoke-Native"))
    return found


def _is_block(script: Script, command: Command) -> bool:
    text = command.name
    if text.startswith("{") or (text.startswith("(") and "'.ps1'" in text):
        return True
    match = re.fullmatch(r"\$\w+\.(\w+)", text)
    if match:
        return match.group(1).lower() in _KIND_KEYS
    scope = script.scope(command.node)
    blocks = {f"${item.name}".lower() for item in script.parameters(scope) if item.type == "scriptblock"}
    loops = [above for above in command.node.ancestors() if above.type == "foreach_statement"]
    return text.lower() in blocks | {script.text(loop.words[0]).lower() for loop in loops if _is_over_blocks(loop)}


def _is_over_blocks(loop: Node) -> bool:
    """foreach ($x in @({ ... }, { ... }))"""
    items = loop.words[1].core()
    if items.type == "array_expression" and items.words:
        items = items.words[0].core()
    each = items.words if items.type == "array_literal_expression" else [items]
    return all(item.core().type == "script_block_expression" for item in each)


def native_tools(script: Script) -> list[str]:
    """Every program that a text names is one we know of."""
    found = []
    for node in script.of_type("string_literal", "command_name", "generic_token"):
        for name in re.findall(r"[\w.-]+\.exe\b", script.text(node), re.IGNORECASE):
            if name.lower() not in NATIVE_TOOLS:
                found.append(script.at(node, f"{name} is no program that we know of"))
    return found


def forbidden_commands(script: Script) -> list[str]:
    reasons = FORBIDDEN_COMMANDS if script.file_name == NETWORK_SCRIPT else FORBIDDEN_COMMANDS | NETWORK_COMMANDS
    return [
        script.at(command.node, f"no {command.name}: {reasons[command.name.lower()]}")
        for command in script.commands
        if command.name.lower() in reasons
    ]


def no_redirection(script: Script) -> list[str]:
    reason = "a redirected stderr throws in 5.1, and a redirected file is UTF-16: assign, or [System.IO.File]"
    return [script.at(node, f"{script.text(node)}: {reason}") for node in script.of_type("redirection")]


def literal_paths(script: Script) -> list[str]:
    """Brackets in a -Path are wildcards."""
    found = []
    for command, bound in _known(script):
        name = command.name.lower()
        cmdlet = cmdlets().get(name)
        if cmdlet is None or own_function(script, command) or "LiteralPath" not in cmdlet.parameters:
            continue
        if bound.has("Path") and name not in NO_LITERAL_PATH:
            found.append(script.at(command.node, f"{command.name}: -LiteralPath, not -Path"))
        if name == "remove-item" and bound.has("Recurse") and not bound.has("LiteralPath"):
            found.append(script.at(command.node, f"{command.name} -Recurse without -LiteralPath"))
    return found


def careful_parameters(script: Script) -> list[str]:
    """Parameters that must be there, or must not, for 5.1 to do what it looks like."""
    return [
        script.at(command.node, f"{command.name}: {message}")
        for command, bound in _known(script)
        for name, is_trap, message in _TRAPS
        if command.name.lower() == name and is_trap(script, bound)
    ]


def _value_text(script: Script, bound: Bound, parameter: str) -> str:
    value = bound.values.get(parameter)
    return script.text(value.node).strip("'\"").lower() if value else ""


_TRAPS: tuple[tuple[str, Callable[[Script, Bound], bool], str], ...] = (
    ("convertto-json", lambda _, bound: not bound.has("Depth"), "without -Depth 5.1 cuts at two levels"),
    (
        "add-type",
        lambda script, bound: not bound.has("AssemblyName") and script.file_name not in COMPILING_SCRIPTS,
        "compiles, which takes a second and alarms Defender",
    ),
    ("get-content", lambda _, bound: not bound.has("Encoding"), "without -Encoding 5.1 reads ANSI"),
    ("set-itemproperty", lambda _, bound: not bound.has("Type"), "without -Type the old type stays"),
    ("new-itemproperty", lambda _, bound: not bound.has("PropertyType"), "without -PropertyType it is a String"),
    (
        "new-item",
        lambda script, bound: bound.has("Force") and _value_text(script, bound, "ItemType") != "directory",
        "-Force wipes a registry key or a file that is there",
    ),
    (
        "get-ciminstance",
        lambda script, bound: _value_text(script, bound, "ClassName") == "win32_product",
        "Win32_Product repairs every MSI: read the Uninstall keys",
    ),
)

RULES = (
    commands_exist, parameters_exist, parameters_have_values, named_parameters, called_values, native_tools,
    forbidden_commands, no_redirection, literal_paths, careful_parameters,
)  # fmt: skip
