"""Rules on variables and texts: nothing unset is read, nothing automatic is written, texts expand to what they show."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tests.powershell.tables import AUTOMATIC, LEAKY_COMMANDS, LEAKY_MEMBERS, NAMESPACES, PREFERENCES, UNTOUCHABLE

if TYPE_CHECKING:
    from tests.powershell.reader import Node, Script


def _name(script: Script, node: Node) -> str:
    """A variable's name in lower case, with its namespace: `script:x`."""
    return script.text(node).lstrip("$@").strip("{}").lower()


def _writes(script: Script) -> list[tuple[Node, str, int]]:
    """Every variable that is set: the node, its name, and the byte from which on it can be read."""
    found = []
    for assignment in script.of_type("assignment_expression"):
        if script.text(assignment.children[1]) != "=":
            continue
        found += [(node, _name(script, node), assignment.end) for node in _targets(assignment.children[0])]
    for loop in script.of_type("foreach_statement"):
        variable = next(child for child in loop.children if child.type == "variable")
        found.append((variable, _name(script, variable), variable.end))
    for parameter in script.of_type("script_parameter"):
        variable = next(child for child in parameter.children if child.type == "variable")
        found.append((variable, _name(script, variable), variable.end))
    return found


def _targets(left: Node) -> list[Node]:
    """The variables that an assignment sets; `$x.y = 1` and `$x[0] = 1` set none."""
    node = left.core()
    if node.type in {"variable", "braced_variable", "$_"}:
        return [node]
    if node.type == "array_literal_expression":
        return [target for child in node.words for target in _targets(child)]
    if node.type == "cast_expression":
        return _targets(node.words[-1])
    return []


def _place(script: Script, node: Node) -> tuple[Node, str]:
    """A variable as one of its scope: `$script:x` is the file's."""
    name = _name(script, node)
    return (script.root, name.removeprefix("script:")) if name.startswith("script:") else (script.scope(node), name)


def _reads(script: Script) -> list[Node]:
    written = {node.start for node, _, _ in _writes(script)}
    found = [node for node in script.of_type("variable") if node.start not in written]
    return [node for node in found if not _is_known(_name(script, node)) and not _is_arguments(script, node)]


def nothing_unset_is_read(script: Script) -> list[str]:
    """Strict mode throws where a variable was never set. By scope, and within a scope in the order of the text."""
    first: dict[tuple[Node, str], int] = {}
    for node, _, start in _writes(script):
        place = _place(script, node)
        first[place] = min(start, first.get(place, start))
    found = []
    for node in _reads(script):
        scope, name = _place(script, node)
        in_time = first.get((scope, name), node.start + 1) <= node.start
        elsewhere = script.scope(node) is not script.root and (script.root, name) in first
        if not in_time and not elsewhere:
            found.append(script.at(node, f"{script.text(node)} is read and was never set"))
    return found


def nothing_is_set_in_vain(script: Script) -> list[str]:
    """A name misspelled where it is set; parameters may go unread, the engine hands the same ones to every kind."""
    read = {_place(script, node) for node in _reads(script)}
    read |= {(script.root, name) for _, name in read}
    return [
        script.at(node, f"{script.text(node)} is set and never read")
        for node, name, end in _writes(script)
        if end != node.end and name not in PREFERENCES | UNTOUCHABLE | {"null"} and _place(script, node) not in read
    ]


def _is_known(name: str) -> bool:
    return name in AUTOMATIC or name in PREFERENCES or name.startswith("env:")


def _is_arguments(script: Script, node: Node) -> bool:
    """`$args` is set for what has no parameters; here only files have none."""
    own = _name(script, node) == "args" and script.scope(node) is script.root
    return own and not any(child.type == "param_block" for child in script.root.children)


def nothing_automatic_is_written(script: Script) -> list[str]:
    return [
        script.at(node, f"${name} is PowerShell's own")
        for node, name, _ in _writes(script)
        if re.sub(r"^(script|global|local):", "", name) in UNTOUCHABLE
    ]


def nothing_leaks(script: Script) -> list[str]:
    """What a statement leaves on the output is part of what its function returns."""
    calls = [
        (node, node.child("member_name"), node.child("argument_list"))
        for node in script.of_type("invokation_expression")
    ]
    found = [
        script.at(node, f"{script.text(node)} emits what it returns: $null = ...")
        for node, name, arguments in calls
        if name and script.text(name).lower() in LEAKY_MEMBERS and arguments and arguments.words and _stands_alone(node)
    ]
    for command in script.commands:
        if command.name.lower() in LEAKY_COMMANDS and _stands_alone(command.node):
            found.append(script.at(command.node, f"{command.name} emits what it made: $null = ..."))
    return found


def _stands_alone(node: Node) -> bool:
    """Whether this is a statement, or the end of its pipeline; $(...) and @(...) are there for their output."""
    statement = node.whole()
    while statement.type in {"command", "pipeline_chain"} and statement.parent is not None:
        if statement.parent.children[-1] is not statement:
            return False
        statement = statement.parent.whole()
    block = statement.parent
    if block is None or block.type != "statement_list" or block.parent is None:
        return False
    return block.parent.type not in {"sub_expression", "array_expression"}


def no_drive_references(script: Script) -> list[str]:
    """In a text `$name:` reads a variable of a drive of that name."""
    found = []
    for node in script.of_type("variable"):
        text = script.text(node)
        space, colon, _ = text.lstrip("$@{").partition(":")
        followed = script.data[node.end : node.end + 1] == b":" and not text.endswith("}")
        if colon and space.lower() not in NAMESPACES:
            found.append(script.at(node, f"{text} is a variable of the drive {space}: write ${{{space}}}:"))
        elif followed and _in_text(node):
            found.append(script.at(node, f"{text}: is a drive in a text: write ${{{text.lstrip('$')}}}:"))
    return found


def texts_expand(script: Script) -> list[str]:
    """In a text `$a.b` and `$a[0]` expand $a only."""
    found = []
    for node in script.of_type("variable"):
        following = script.data[node.end : node.end + 2].decode("ascii", "replace")
        if _in_text(node) and re.match(r"\.[A-Za-z_]|\[", following) and not script.text(node).endswith("}"):
            found.append(
                script.at(node, f"{script.text(node)}{following}… expands only the variable: $(...) or ${{...}}")
            )
    return found


def _in_text(node: Node) -> bool:
    parent = node.parent
    return parent is not None and parent.type in {"expandable_string_literal", "expandable_here_string_literal"}


RULES = (
    nothing_unset_is_read,
    nothing_is_set_in_vain,
    nothing_automatic_is_written,
    nothing_leaks,
    no_drive_references,
    texts_expand,
)
