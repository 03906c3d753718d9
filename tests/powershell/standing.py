"""Where a statement stands in a script: in which try, under which condition, after which other.

Each function makes a check, which tells what is not so; a statement that is not there is not so either.
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.powershell.cases import Rule
    from tests.powershell.reader import Node, Script


def found(script: Script, words: str, within: str = "") -> list[Node]:
    """The statements that these words begin or are part of, in a function or anywhere; what a comment says is none.

    Words that begin with a line's end and its indent stand at the beginning of their line.
    """
    outer = script.functions[within.lower()].node if within else script.root
    text = script.data.decode("ascii")
    statements = [node for block in script.of_type("statement_list") for node in block.words if node.within(outer)]
    comments = script.of_type("comment")
    nodes = []
    for match in re.finditer(re.escape(words), text):
        at = match.end() - len(words.lstrip())
        around = [node for node in statements if node.start <= at < node.end]
        if around and not any(comment.start <= at < comment.end for comment in comments):
            nodes.append(min(around, key=lambda node: node.end - node.start))
    return nodes


def _each(script: Script, words: str, within: str) -> tuple[list[Node], list[str]]:
    nodes = found(script, words, within)
    return nodes, [] if nodes else [f"{script.path}: there is no {words!r} in {within or 'the script'}"]


def _bodies(node: Node, statement: str) -> Iterator[Node]:
    """The statements of this kind whose own block, not another clause's, holds the node; the innermost first."""
    for above in node.ancestors():
        block = above.child("statement_block") if above.type == statement else None
        if block is not None and node.within(block):
            yield above


def tried(words: str, *, within: str = "", catch: str = "", at_last: str = "") -> Rule:
    """Each such statement stands in a try whose catch, or finally, has the other."""
    clause, other = ("catch_clauses", catch) if catch else ("finally_clause", at_last)

    def is_so(script: Script, node: Node) -> bool:
        clauses = [outer.child(clause) for outer in _bodies(node, "try_statement")]
        return any(one.within(block) for block in clauses if block for one in found(script, other, within))

    def check(script: Script) -> list[str]:
        nodes, faults = _each(script, words, within)
        wrong = [node for node in nodes if not is_so(script, node)]
        return faults + [script.at(node, f"stands in no try whose {clause} has {other!r}") for node in wrong]

    return check


def handed_to(call: str, words: str, *, within: str = "") -> Rule:
    """Each such statement stands in a block that is handed to this call."""

    def check(script: Script) -> list[str]:
        nodes, faults = _each(script, words, within)
        calls = found(script, call, within)
        outside = [node for node in nodes if not any(node is not one and node.within(one) for one in calls)]
        return faults + [script.at(node, f"is in no block that is handed to {call!r}") for node in outside]

    return check


def only_where(condition: str, words: str, *, within: str = "") -> Rule:
    """Each such statement stands in the block of an `if` with exactly this condition."""

    def is_so(script: Script, node: Node) -> bool:
        return any(script.text(outer.words[0]) == condition for outer in _bodies(node, "if_statement"))

    def check(script: Script) -> list[str]:
        nodes, faults = _each(script, words, within)
        return faults + [
            script.at(node, f"stands not under {condition!r}") for node in nodes if not is_so(script, node)
        ]

    return check


def in_order(*words: str, within: str = "") -> Rule:
    """Whoever comes to the last of these has passed by each of the others, in this order."""

    def check(script: Script) -> list[str]:
        faults = [fault for one in words for fault in _each(script, one, within)[1]]
        for first, then in itertools.pairwise(words):
            before = found(script, first, within)
            faults += [
                script.at(node, f"is reached without {first!r}")
                for node in found(script, then, within)
                if not any(one.end <= node.start and one.parent and node.within(one.parent) for one in before)
            ]
        return faults

    return check
