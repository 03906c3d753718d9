"""`make figures`: the structure of the code in figures, counted over its files, so that two commits can be compared."""

from __future__ import annotations

import ast
import hashlib
import json
import re
import subprocess
import sys
import tomllib
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
        "parameters of the widest function, without click's callbacks": max(map(parameters, functions)),
        "statements outside rehearsal/": sum(statements(tree) for tree in outside.values()),
        "statements of rehearsal/": sum(statements(tree) for path, tree in trees.items() if path not in outside),
        "modules outside rehearsal/": len(outside),
        "modules of rehearsal/": len(trees) - len(outside),
        "top-level names in imagegen/": len({path.parts[0] for path in trees} - {"__init__.py"}),
        "lines of Python in tests/": lines_of_tests(),
        "files of tests/": len(tracked("tests")),
        "runtime dependencies": runtime_dependencies(),
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


def parameters(function: Function) -> int:
    """The parameters of a function without `self`. 0 for a callback of click, whose options are its parameters."""
    if any("click." in ast.unparse(one) or "options." in ast.unparse(one) for one in function.decorator_list):
        return 0
    given = function.args
    named = [*given.posonlyargs, *given.args, *given.kwonlyargs, *filter(None, (given.vararg, given.kwarg))]
    return len([one for one in named if one.arg not in ("self", "cls")])


def tracked(folder: str) -> list[Path]:
    """The files of a folder that the repository has."""
    listed = subprocess.run(["git", "ls-files", "-z", folder], cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S603, S607 - git
    return [path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def lines_of_tests() -> int:
    """The lines of all Python files in tests/."""
    return sum(len(path.read_text().splitlines()) for path in tracked("tests") if path.suffix == ".py")


def runtime_dependencies() -> int:
    """The packages that an installed imagegen needs, without those of a rehearsal."""
    return len(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"])


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
