"""Rules on a file as a whole: its bytes, its grammar, its first lines, how it ends, its functions, a kind's shape."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from imagegen.steps.kinds import KINDS, PLANNED_KINDS
from tests.powershell.tables import ENTRY_SCRIPTS, FALSE_ALARMS, VERBS

if TYPE_CHECKING:
    from tests.powershell.reader import Node, Script

HEADER = (
    "Set-StrictMode -Version Latest",
    "$ErrorActionPreference, $ProgressPreference = 'Stop', 'SilentlyContinue'",
)
# The engine calls them with these, by position.
KIND_PARAMETERS = {
    "Get": (("Resource",),),
    "Test": (("Resource", "Now"),),
    "Set": (("Resource",), ("Resource", "Context")),
}


def plain_bytes(script: Script) -> list[str]:
    """5.1 reads a file without BOM as ANSI, and a signature covers the line ends."""
    if not script.data:
        return [f"{script.path}:1: the file is empty"]
    found = [f"{script.path}:1: begins with a BOM"] if script.data.startswith(b"\xef\xbb\xbf") else []
    for number, line in enumerate(script.data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if not line.isascii():
            found.append(f"{script.path}:{number}: has characters that are not ASCII")
        if line != line.rstrip(b" \t"):
            found.append(f"{script.path}:{number}: ends with blanks, which undo a backtick")
        if b"\r" in line:
            found.append(f"{script.path}:{number}: has a CR: lines end with LF")
    if not script.data.endswith(b"\n"):
        found.append(f"{script.path}:{script.data.count(10) + 1}: does not end with a newline")
    return found


def parses(script: Script) -> list[str]:
    """Ternary, ?? and ?. are errors here too: the grammar is that of 5.1."""
    lines = script.data.decode("utf-8", "replace").split("\n")
    found: dict[str, None] = {}
    for node in script.wrong:
        line = lines[node.line - 1].strip()
        # In an empty script block the grammar misses a ';' that PowerShell does not.
        if not (node.missing and node.type == ";") and (script.path, line) not in FALSE_ALARMS:
            found[script.at(node, f"does not parse: {line}")] = None
    return list(found)


def only_old_syntax(script: Script) -> list[str]:
    found = [script.at(node, "5.1 has no && and no ||") for node in script.of_type("pipeline_chain_tail")]
    found += [
        script.at(node, "no classes: 5.1 cannot load them anew")
        for node in script.of_type("class_statement", "enum_statement")
    ]
    traps = [node for node in script.of_type("trap_statement") if not _ends_the_script(script, node)]
    return found + [script.at(node, "no trap, but one that ends an entry script: try and catch") for node in traps]


def _ends_the_script(script: Script, trap: Node) -> bool:
    """The handler of a whole entry script: in a function, or without an exit, a trap would go on somewhere."""
    is_outermost = not any(
        above.type in {"function_statement", "script_block_expression"} for above in trap.ancestors()
    )
    return is_outermost and script.file_name in ENTRY_SCRIPTS and script.text(trap).endswith("; exit 1 }")


def strict_header(script: Script) -> list[str]:
    """Modules and scripts take over neither strict mode nor preferences from their caller.

    The blocks of a kind do: they run in the engine, when the kind's own file has ended, and its settings with it.
    """
    if kind_of(script) is not None:
        return []
    first = [script.text(node).rstrip(";") for node in script.statements[: len(HEADER)]]
    return [f"{script.path}:1: the first statements lack: {line}" for line in HEADER if line not in first]


def exits_only_at_the_entry(script: Script) -> list[str]:
    exits = [
        node
        for node in script.of_type("flow_control_statement")
        if re.match(r"exit\b", script.text(node), re.IGNORECASE)
    ]
    if script.file_name not in ENTRY_SCRIPTS:
        return [script.at(node, "exit ends the whole process: throw, and let the entry script exit") for node in exits]
    last = script.statements[-1] if script.statements else script.root
    if not re.match(r"exit\s+\S", script.text(last)):
        return [script.at(last, "an entry script ends with an explicit exit and a code")]
    return []


def function_names(script: Script) -> list[str]:
    found = []
    for function in script.functions.values():
        match = re.fullmatch(r"([A-Z][A-Za-z]+)-([A-Z][A-Za-z0-9]+)", function.name)
        if match is None or match.group(1) not in VERBS:
            found.append(script.at(function.node, f"{function.name} is not an approved verb, a hyphen and a noun"))
        if not function.advanced:
            found.append(
                script.at(function.node, f"{function.name} has no [CmdletBinding()]: unknown arguments go unnoticed")
            )
    return found


def entry_parameters(script: Script) -> list[str]:
    """Asked of the whole file only: a prompt hangs a machine, inside it the caller is at hand."""
    blocks = [child for child in script.root.children if child.type == "param_block"]
    found = [node for block in blocks for node in script.of_type("attribute") if node.within(block)]
    return [
        script.at(node, "a mandatory parameter prompts when it is missing")
        for node in found
        if re.match(r"\[Parameter\(.*Mandatory(?!\s*=\s*\$false)", script.text(node), re.IGNORECASE | re.DOTALL)
    ]


def kind_of(script: Script) -> str | None:
    match = re.search(r"(?:^|/)kinds/([^/]+)\.ps1$", script.path)
    return match.group(1) if match else None


def kind_shape(script: Script) -> list[str]:
    """A kind's script is only a hashtable of get, test and set, with the parameters that the engine hands them."""
    if kind_of(script) is None:
        return []
    table = script.statements[0].core() if len(script.statements) == 1 else script.root
    if table.type != "hash_literal_expression":
        return [f"{script.path}:1: is not one hashtable"]
    entries = {script.text(entry.words[0].core()).strip("'\""): entry for entry in _entries(table)}
    if sorted(entries) != sorted(KIND_PARAMETERS):
        return [script.at(table, f"has the keys {', '.join(sorted(entries))}, not Get, Set, Test")]
    found = []
    for key, allowed in KIND_PARAMETERS.items():
        block = entries[key].words[1].core()
        names = tuple(parameter.name for parameter in script.parameters(block))
        if block.type != "script_block_expression" or names not in allowed:
            wanted = " or ".join("(" + ", ".join(words) + ")" for words in allowed)
            found.append(script.at(entries[key], f"{key} takes {wanted}, not ({', '.join(names)})"))
    return found


def _entries(table: Node) -> list[Node]:
    bodies = [child for child in table.words if child.type == "hash_literal_body"]
    return [entry for body in bodies for entry in body.words if entry.type == "hash_entry"]


def kind_fields(script: Script) -> list[str]:
    """What the script reads of its resource is what the model says a resource has: no more, no less."""
    kind = kind_of(script)
    if kind is None:
        return []
    if kind not in PLANNED_KINDS:
        return [f"{script.path}:1: there is no kind {kind}"]
    fields = set(KINDS[kind].model_fields)
    reads: dict[str, Node] = {}
    for node in script.of_type("member_access", "invokation_expression"):
        parts = [child for child in node.words if child.type not in {"argument_list", "comment"}]
        if len(parts) == 2 and script.text(parts[0]).lower() == "$resource":
            reads.setdefault(script.text(parts[1]), node)
    found = [
        script.at(node, f"the kind {kind} has no field {name}") for name, node in reads.items() if name not in fields
    ]
    return found + [f"{script.path}:1: never reads the field {name}" for name in sorted(fields - set(reads))]


RULES = (
    plain_bytes, parses, only_old_syntax, strict_header, exits_only_at_the_entry, function_names, entry_parameters,
    kind_shape, kind_fields,
)  # fmt: skip
