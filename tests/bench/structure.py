"""`make figures`: the structure of the code in figures, counted over its files, so that two commits can be compared."""

from __future__ import annotations

import ast
import hashlib
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "imagegen"
CLOUD = re.compile(r"(?<![a-z])(aws|azure|amazon|ec2|ami|gcp)(?![a-z])", re.IGNORECASE)

Function = ast.FunctionDef | ast.AsyncFunctionDef
WithDocstring = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def figures() -> dict[str, float]:
    """Every figure by its name."""
    modules = {path.relative_to(PACKAGE): path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}
    trees = {path: ast.parse(text) for path, text in modules.items()}
    outside = {path: tree for path, tree in trees.items() if path.parts[0] != "rehearsal"}
    functions = [node for tree in trees.values() for node in ast.walk(tree) if isinstance(node, Function)]
    return {
        "modules outside providers/ and rehearsal/ that name a cloud": len(naming_a_cloud(outside)),
        "functions with Any in their signature, percent": share_of_any(functions),
        "golden files that hold the digest of one guest script": most_goldens_of_one_script(),
        "steps that write down a phase": steps_with_a_phase(),
        "lines of the biggest module": max(len(text.splitlines()) for text in modules.values()),
        "lines of the longest function": max((node.end_lineno or 0) - node.lineno + 1 for node in functions),
        "statements outside rehearsal/": sum(statements(tree) for tree in outside.values()),
        "statements of rehearsal/": sum(statements(tree) for path, tree in trees.items() if path not in outside),
        "lines in packer/ and ansible-win/": lines_of_content(),
    }


def naming_a_cloud(trees: dict[Path, ast.Module]) -> list[Path]:
    """The modules that name a cloud in code: in a name, an attribute, an import or a string that is no docstring."""
    return [
        path for path, tree in trees.items() if path.parts[0] != "providers" and any(map(CLOUD.search, words(tree)))
    ]


def words(tree: ast.Module) -> Iterator[str]:
    """Every name and every string of a module, without its docstrings and comments."""
    documented = {id(node.body[0].value) for node in ast.walk(tree) if has_docstring(node)}  # type: ignore[attr-defined]  # has_docstring says so
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documented:
            yield node.value
        for field in ("id", "attr", "name", "arg", "module"):
            if isinstance(text := getattr(node, field, None), str):
                yield text.replace("_", " ")


def has_docstring(node: ast.AST) -> bool:
    """Whether a node begins with a string, be it of a module, a class or a function."""
    return isinstance(node, WithDocstring) and ast.get_docstring(node, clean=False) is not None


def share_of_any(functions: list[Function]) -> float:
    """In percent."""
    return round(100 * sum(map(takes_any, functions)) / len(functions), 1)


def takes_any(function: Function) -> bool:
    """Whether a parameter or the result of a function is of any type."""
    given = function.args
    arguments = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    annotations = [*(argument.annotation for argument in arguments if argument), function.returns]
    return any("Any" in ast.unparse(annotation) for annotation in annotations if annotation)


def statements(tree: ast.Module) -> int:
    """Statements, without docstrings: what is moved to data or another folder still counts there."""
    count = sum(isinstance(node, ast.stmt) for node in ast.walk(tree))
    strings = sum(isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) for node in ast.walk(tree))
    return count - strings


def most_goldens_of_one_script() -> int:
    """How many golden files a change of one guest script touches."""
    files = (ROOT / "tests/golden").rglob("*.*")
    texts = [path.read_text() for path in files if path.is_file() and path.suffix not in (".py", ".pyc")]
    digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in (ROOT / "packer/guest").rglob("*.ps*1")]
    return max(sum(digest in text for text in texts) for digest in digests)


def steps_with_a_phase() -> int:
    """Steps whose meta/step.yml says in which phase they are."""
    described = (ROOT / "ansible-win/roles").glob("*/meta/step.yml")
    return sum(bool(re.search(r"^phase:", path.read_text(), re.MULTILINE)) for path in described)


def lines_of_content() -> int:
    """Scripts, templates and data of what lies on the machine."""
    paths = [path for folder in ("packer", "ansible-win") for path in (ROOT / folder).rglob("*") if path.is_file()]
    return sum(len(path.read_text().splitlines()) for path in paths)


if __name__ == "__main__":
    if "--json" in sys.argv[1:]:
        print(json.dumps(figures(), indent=2))
    else:
        for what, figure in figures().items():
            print(f"{figure:>8g}  {what}")
