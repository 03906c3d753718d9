"""Rules on the order of things: loops that end, sleeps that are polls, errors that are seen, jumps that land."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tests.powershell.tables import CLOCK_FUNCTIONS, CLOCK_WORD

if TYPE_CHECKING:
    from tests.powershell.reader import Node, Script

_OPEN_LOOPS = ("while_statement", "do_statement", "for_statement")
_LOOPS = (*_OPEN_LOOPS, "foreach_statement", "switch_statement")
_BLOCKS = ("function_statement", "script_block_expression")


def _looks_at_a_clock(script: Script, loop: Node) -> bool:
    names = [script.text(node) for node in script.of_type("variable", "member_name") if node.within(loop)]
    calls = {command.name.lower() for command in script.commands if command.node.within(loop)}
    return any(CLOCK_WORD.search(name) for name in names) or not calls.isdisjoint(CLOCK_FUNCTIONS)


def sleeps_are_polls(script: Script) -> list[str]:
    found = []
    for command in script.commands:
        if command.name.lower() != "start-sleep":
            continue
        loops = [above for above in command.node.ancestors() if above.type in _OPEN_LOOPS]
        if not any(_looks_at_a_clock(script, loop) for loop in loops):
            found.append(script.at(command.node, "a sleep belongs in a loop that looks at a clock"))
    return found


def loops_end(script: Script) -> list[str]:
    found = []
    for loop in script.of_type(*_OPEN_LOOPS):
        conditions = [child for child in loop.children if child.type in {"while_condition", "for_condition"}]
        text = script.text(conditions[0]).lower() if conditions else ""
        is_until = any(child.type == "until" for child in loop.children)
        endless = text in ({"$false", "0"} if is_until else {"", "$true", "1"})
        if endless and not _looks_at_a_clock(script, loop):
            found.append(script.at(loop, "a loop without condition must look at a clock"))
    return found


def errors_are_seen(script: Script) -> list[str]:
    found = []
    for clause in script.of_type("catch_clause"):
        block = clause.children[-1]
        if not [child for child in block.words if child.type != "comment"]:
            found.append(script.at(clause, "an empty catch hides what went wrong"))
    for jump in script.of_type("flow_control_statement"):
        if re.fullmatch(r"throw\s+\$_\.Exception\.Message", script.text(jump), re.IGNORECASE):
            found.append(script.at(jump, "loses the error and its stack: throw alone"))
    return found


def jumps_land(script: Script) -> list[str]:
    """`break` and `continue` outside a loop end the script; in a cmdlet's block `return` means the next item."""
    found = []
    for jump in script.of_type("flow_control_statement"):
        word = script.text(jump).split()[0].lower()
        if word in {"break", "continue"}:
            above = next((node for node in jump.ancestors() if node.type in (*_LOOPS, *_BLOCKS)), None)
            if above is None or above.type in _BLOCKS:
                found.append(script.at(jump, f"{word} outside a loop ends the script"))
        elif word == "return" and _in_pipeline_block(script, jump):
            found.append(script.at(jump, "return in the block of a cmdlet goes to its next item"))
    return found


def _in_pipeline_block(script: Script, jump: Node) -> bool:
    block = next((node for node in jump.ancestors() if node.type in _BLOCKS), None)
    if block is None or block.type != "script_block_expression":
        return False
    for above in block.ancestors():
        if above.type == "command":
            name = next((script.text(child).lower() for child in above.children if child.type == "command_name"), "")
            return name in {"foreach-object", "where-object"}
        if above.type not in {"command_elements", "array_literal_expression", "unary_expression"}:
            return False
    return False


def null_on_the_left(script: Script) -> list[str]:
    """With a list on the left a comparison is a filter."""
    found = []
    for node in script.of_type("comparison_expression", "comparison_argument_expression"):
        operators = [child for child in node.words if child.type == "comparison_operator"]
        equality = operators and re.fullmatch(r"-[ci]?(eq|ne)", script.text(operators[0]), re.IGNORECASE)
        if equality and script.text(node.words[-1].core()).lower() == "$null":
            found.append(script.at(node, f"{script.text(node)}: $null belongs on the left"))
    return found


RULES = (sleeps_are_polls, loops_end, errors_are_seen, jumps_land, null_on_the_left)
