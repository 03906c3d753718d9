"""Rules on variables and texts: nothing unset is read, nothing automatic is written, texts expand to what they show."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tests.powershell.tables import AUTOMATIC, NAMESPACES, PREFERENCES, UNTOUCHABLE

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


def nothing_unset_is_read(script: Script) -> list[str]:
    """Strict mode throws where a variable was never set. By scope, and within a scope in the order of the text."""
    first: dict[tuple[Node, str], int] = {}
    writes = _writes(script)
    for node, name, start in writes:
        key = (script.scope(node), name.removeprefix("script:"))
        first[key] = min(start, first.get(key, start))
        if name.startswith("script:"):
            first.setdefault((script.root, key[1]), start)
    written = {node.start for node, _, _ in writes}
    found = []
    for node in script.of_type("variable"):
        name, scope = _name(script, node), script.scope(node)
        if node.start in written or _is_known(name):
            continue
        own = first.get((scope, name))
        outer = None if scope is script.root else first.get((script.root, name.removeprefix("script:")))
        if name.startswith("script:") and scope is script.root:
            own = first.get((scope, name.removeprefix("script:")))
        if outer is None and (own is None or own > node.start):
            found.append(script.at(node, f"{script.text(node)} is read and was never set"))
    return found


def _is_known(name: str) -> bool:
    return name in AUTOMATIC or name in PREFERENCES or name.startswith("env:")


def nothing_automatic_is_written(script: Script) -> list[str]:
    return [
        script.at(node, f"${name} is PowerShell's own")
        for node, name, _ in _writes(script)
        if re.sub(r"^(script|global|local):", "", name) in UNTOUCHABLE
    ]


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


RULES = (nothing_unset_is_read, nothing_automatic_is_written, no_drive_references, texts_expand)
