"""Reads one PowerShell file: text in, a tree with parents, scopes, functions and commands out. Touches nothing else."""

from __future__ import annotations

import collections
import dataclasses
import functools
from typing import TYPE_CHECKING

import tree_sitter
import tree_sitter_powershell

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_LANGUAGE = tree_sitter.Language(tree_sitter_powershell.language())


@dataclasses.dataclass(eq=False, slots=True)
class Node:
    """A node of the grammar, copied from tree-sitter's own: those are made anew on each visit, and slow to ask."""

    type: str
    start: int
    end: int
    line: int
    named: bool
    wrong: bool
    missing: bool
    parent: Node | None = dataclasses.field(repr=False)
    children: Sequence[Node] = dataclasses.field(default=(), repr=False)

    @property
    def words(self) -> list[Node]:
        """The children that have a name in the grammar and are no comments."""
        return [child for child in self.children if child.named and child.type not in {"comment", "empty_statement"}]

    def ancestors(self) -> Iterator[Node]:
        above = self.parent
        while above is not None:
            yield above
            above = above.parent

    def within(self, outer: Node) -> bool:
        return outer.start <= self.start and self.end <= outer.end

    def child(self, *types: str) -> Node | None:
        return next((child for child in self.children if child.type in types), None)

    def core(self) -> Node:
        """The node that says something, below the chain of precedence levels that each expression is wrapped in."""
        node = self
        while len(node.children) == 1 and node.children[0].named:
            node = node.children[0]
        return node

    def whole(self) -> Node:
        """The other way: the outermost node of a statement that holds nothing but this one."""
        node = self
        while node.parent is not None and len(node.parent.children) == 1 and node.parent.type != "statement_list":
            node = node.parent
        return node


def _copied(tree: tree_sitter.Tree, data: bytes) -> list[Node]:
    """The nodes of the text, each before its children."""
    cursor, has_error = tree.walk(), tree.root_node.has_error
    nodes: list[Node] = []
    parent: Node | None = None
    siblings: list[Node] = []
    above: list[list[Node]] = []
    # Not by start_point: in 0.26.0 it loses references until the interpreter crashes (tree-sitter/py-tree-sitter#466).
    line, break_at = 1, data.find(b"\n")
    while True:
        found = cursor.node
        assert found is not None
        start = found.start_byte
        while 0 <= break_at < start:
            line, break_at = line + 1, data.find(b"\n", break_at + 1)
        missing = has_error and found.is_missing
        wrong = missing or (has_error and found.is_error)
        node = Node(found.type, start, found.end_byte, line, found.is_named, wrong, missing, parent)
        nodes.append(node)
        siblings.append(node)
        if cursor.goto_first_child():
            above.append(siblings)
            parent, siblings = node, []
            node.children = siblings
            continue
        while not cursor.goto_next_sibling():
            if not cursor.goto_parent() or parent is None:
                return nodes
            parent, siblings = parent.parent, above.pop()


@dataclasses.dataclass(frozen=True)
class Parameter:
    """A parameter as a param block declares it."""

    name: str
    type: str


@dataclasses.dataclass(frozen=True)
class Function:
    """A function as a file defines it."""

    name: str
    parameters: tuple[Parameter, ...]
    advanced: bool
    node: Node


@dataclasses.dataclass(frozen=True)
class Element:
    """One word after a command's name; `joined` when it hangs on the parameter before it by a colon."""

    node: Node
    parameter: str
    joined: bool


@dataclasses.dataclass(frozen=True)
class Command:
    """A command as it stands: its operator (& or .) if any, its name as written, and the words after it."""

    node: Node
    operator: str
    name: str
    elements: tuple[Element, ...]


class Script:
    """A parsed file. `path` is relative to the repository; `imported` are the functions that modules bring into it."""

    def __init__(self, path: str, data: bytes, imported: Mapping[str, Function] | None = None) -> None:
        self.path = path
        self.data = data
        self.imported = dict(imported or {})
        self._tree = tree_sitter.Parser(_LANGUAGE).parse(data)

    @functools.cached_property
    def _nodes(self) -> list[Node]:
        """Copied when a check asks: many need no more than the text, and that it has no error."""
        return _copied(self._tree, self.data)

    @functools.cached_property
    def root(self) -> Node:
        return self._nodes[0]

    @functools.cached_property
    def wrong(self) -> list[Node]:
        return [node for node in self._nodes if node.wrong] if self._tree.root_node.has_error else []

    @functools.cached_property
    def _of_type(self) -> dict[str, list[Node]]:
        found: dict[str, list[Node]] = collections.defaultdict(list)
        for node in self._nodes:
            found[node.type].append(node)
        return found

    @property
    def file_name(self) -> str:
        return self.path.rsplit("/", 1)[-1]

    def of_type(self, *types: str) -> list[Node]:
        """The nodes of these types, in the order of the text."""
        found = [node for type_ in types if type_ in self._of_type for node in self._of_type[type_]]
        return sorted(found, key=lambda node: node.start)

    def text(self, node: Node) -> str:
        return self.data[node.start : node.end].decode("utf-8", "replace").strip()

    def at(self, node: Node, message: str) -> str:
        """A finding, as people's editors know it."""
        return f"{self.path}:{node.line}: {message}"

    def scope(self, node: Node) -> Node:
        """Where a variable lives: the function, or the script block that a hashtable holds, or the file."""
        for above in node.ancestors():
            if above.type == "function_statement":
                return above
            if above.type == "script_block_expression":
                holder = above.whole().parent
                if holder is not None and holder.type == "hash_entry":
                    return above
        return self.root

    @functools.cached_property
    def statements(self) -> list[Node]:
        """The statements of the file itself."""
        return [node for block in self.root.children if block.type == "statement_list" for node in block.words]

    @functools.cached_property
    def functions(self) -> dict[str, Function]:
        """The functions that this file defines, by lower-case name."""
        found = (self._function(node) for node in self.of_type("function_statement"))
        return {function.name.lower(): function for function in found}

    def _function(self, node: Node) -> Function:
        name = node.child("function_name")
        blocks = [block for block in self._param_blocks(node) if block.type == "param_block"]
        attributes = [
            self.text(child).lower() for block in blocks for child in block.words if child.type == "attribute_list"
        ]
        advanced = any("cmdletbinding" in attribute for attribute in attributes)
        return Function(self.text(name) if name else "", self.parameters(node), advanced, node)

    def _param_blocks(self, node: Node) -> list[Node]:
        inner = [child for child in node.children if child.type in {"script_block", "function_parameter_declaration"}]
        blocks = [*node.children, *(grandchild for child in inner for grandchild in child.children)]
        return [block for block in blocks if block.type in {"param_block", "parameter_list"}]

    def parameters(self, node: Node) -> tuple[Parameter, ...]:
        """The parameters of a function, a script block or the file."""
        found = []
        for block in self._param_blocks(node):
            items = block if block.type == "parameter_list" else block.child("parameter_list")
            for item in items.words if items else []:
                variable = item.child("variable")
                if variable is not None:
                    found.append(Parameter(self.text(variable).lstrip("$"), self._parameter_type(item)))
        return tuple(found)

    def _parameter_type(self, item: Node) -> str:
        attributes = item.child("attribute_list")
        words = [self.text(attribute) for attribute in attributes.words] if attributes else []
        return next((word.strip("[]").lower() for word in words if "(" not in word), "")

    @functools.cached_property
    def commands(self) -> list[Command]:
        found = (self._command(node) for node in self.of_type("command"))
        # The grammar reads the range in (1..3) as a command; PowerShell reads a number where a digit comes first.
        return [command for command in found if command.name and not command.name[0].isdigit()]

    def _command(self, node: Node) -> Command:
        operator, name = node.child("command_invokation_operator"), node.child("command_name", "command_name_expr")
        elements: list[Element] = []
        joined = False
        for child in (word for block in node.children if block.type == "command_elements" for word in block.children):
            if child.type == "command_argument_sep":
                joined = self.text(child) == ":"
            elif child.type == "command_parameter":
                elements.append(Element(child, self.text(child).lstrip("-"), joined=False))
            elif child.type not in {"redirection", "argument_list", "comment"}:
                # An argument_list belongs to the word before it: $x.Trim() is two nodes here.
                elements.append(Element(child, "", joined))
        return Command(node, self.text(operator) if operator else "", self.text(name) if name else "", tuple(elements))
