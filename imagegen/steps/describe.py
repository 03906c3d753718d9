"""Describes a step: its purpose, what it reads, its artifacts, and what it changes on the machine. Describes a kind of
resource: its fields, from its model, and an example, from the shipped steps."""

import ast
import dataclasses
import functools
import inspect
import re
import textwrap
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, Literal

import annotated_types
import pydantic

from imagegen.catalog.facts import paths
from imagegen.config.fields import Key, keys
from imagegen.settle.facts import Facts
from imagegen.steps import kinds, resource
from imagegen.steps.effects import EFFECTS, NONE
from imagegen.steps.evaluate import ALWAYS
from imagegen.steps.kinds import KINDS
from imagegen.steps.model import Step
from imagegen.steps.resource import FIRST_BOOT, Resource, Strict


@functools.cache
def field_notes(described: type) -> Mapping[str, str]:
    """The text of each field that has one."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(described))).body
    notes = {}
    previous: ast.stmt | None = None
    for part in body.body if isinstance(body, ast.ClassDef) else []:
        match previous, part:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                notes[name] = inspect.cleandoc(text).replace("\n", " ")
            case _:
                pass
        previous = part
    return types.MappingProxyType(notes)


FACTS: Final = "facts."
UNTIL_FIRST_BOOT: Final = "until: first-boot. A node may change it afterwards: -Check passes over it there"
_PATH: Final = re.compile(r"\{\{ paths\.(\w+) \}\}")


@dataclasses.dataclass(frozen=True)
class Option:
    """A key of the config, or a fact, that the step reads."""

    path: str
    description: str


@dataclasses.dataclass(frozen=True)
class Download:
    """An artifact of the step. `url` is as its step has it, with the values that it takes from config and facts."""

    name: str
    url: str
    overrides: tuple[str, ...]
    """The keys of the config that give another URL. The first of them wins."""
    when: str
    """The condition for it."""


@dataclasses.dataclass(frozen=True)
class Change:
    """A resource of the step. `label` tells it apart from others of its kind, and is as the step has it."""

    kind: str
    label: str
    when: str
    each: str | None
    """The list of which each item is a resource."""
    until: str | None
    """`first-boot` if a node may change it after its first boot."""
    reason: str
    """The comment of the step."""
    effects: tuple[str, ...]
    """What its script makes: kind and label; or why it makes nothing."""


@dataclasses.dataclass(frozen=True)
class DescribedStep:
    """Everything that there is to know about a step without a config."""

    name: str
    summary: str
    when: str
    """The condition for the step."""
    follows: tuple[str, ...]
    """The steps before it."""
    needs_restart_of: tuple[str, ...]
    is_first: bool
    is_last: bool
    rounds: int
    timeout_s: int
    options: tuple[Option, ...]
    facts: tuple[Option, ...]
    """Those of the catalogue that the step reads."""
    artifacts: tuple[Download, ...]
    changes: tuple[Change, ...]


def describe_step(step: Step) -> DescribedStep:
    meta, reads = step.meta, step.meta.reads
    known = list(keys())
    return DescribedStep(
        name=step.name,
        summary=meta.summary,
        when=meta.when or ALWAYS,
        follows=tuple(meta.after),
        needs_restart_of=tuple(meta.needs_restart_of),
        is_first=meta.first,
        is_last=meta.last,
        rounds=meta.rounds,
        timeout_s=meta.timeout_s,
        options=tuple(_options([path for path in reads if not path.startswith(FACTS)], known)),
        facts=tuple(_facts([path.removeprefix(FACTS) for path in reads if path.startswith(FACTS)])),
        artifacts=tuple(
            Download(
                name=name,
                url=artifact.url or f"{artifact.base}/{artifact.path}",
                overrides=tuple(f"overrides.{override}" for override in artifact.overrides),
                when=artifact.when or ALWAYS,
            )
            for name, artifact in meta.artifacts.items()
        ),
        changes=tuple(_changes(step)),
    )


def _options(reads: Sequence[str], known: Sequence[Key]) -> Iterator[Option]:
    """The keys that hold a value, and not further keys."""
    for key in known:
        is_read = any(key.path == path or key.path.startswith((f"{path}.", f"{path}[")) for path in reads)
        if is_read and not key.inner:
            yield Option(key.path, key.field.description or "")


def _facts(reads: Sequence[str]) -> Iterator[Option]:
    notes = field_notes(Facts)
    for name in dict.fromkeys(path.partition(".")[0] for path in reads):
        yield Option(name, notes[name])


def _changes(step: Step) -> Iterator[Change]:
    lines = _lines(step)
    for index, entry in enumerate(step.resources.data):
        kind = next(name for name in entry if name in KINDS)
        yield Change(
            kind=kind,
            label=_with_paths(KINDS[kind].model_construct(**entry[kind]).label),
            when=str(entry.get("when", ALWAYS)),
            each=entry.get("each"),
            until=entry.get("until") if KINDS[kind].outlives_sealing else FIRST_BOOT,
            reason=_comment_above(lines, step.resources.place((index,)).line),
            effects=tuple(_effects(entry.get("effects", ()))),
        )


def _effects(declared: Mapping[str, str] | Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if isinstance(declared, Mapping):
        yield f"no effects: {declared[NONE]}"
        return
    for one in declared:
        kind = next(name for name in one if name in EFFECTS)
        label = _with_paths(EFFECTS[kind].model_construct(**one[kind]).label)
        each = f", for each of {one['each']}" if "each" in one else ""
        yield f"effect: {kind} {label}{each}"


def _with_paths(label: str) -> str:
    """A label with the paths that every config has, or has by default."""
    known = paths()
    return _PATH.sub(lambda match: known[match[1]], label)


def _lines(step: Step) -> list[str]:
    return (step.folder / "resources.yml").read_text().splitlines()


def _comment_above(lines: Sequence[str], number: int) -> str:
    """The comment directly above a line. Lines count from 1."""
    above = number - 1
    while above and lines[above - 1].startswith("#"):
        above -= 1
    return " ".join(line.removeprefix("#").strip() for line in lines[above : number - 1])


def resource_texts(step: Step, kind: str) -> dict[str, int]:
    """The resources of a kind, as they are written in the step, each with the number of its fields."""
    lines = _lines(step)
    starts = [step.resources.place((index,)).line for index in range(len(step.resources.data))]
    texts = {}
    for entry, start, end in zip(step.resources.data, starts, [*starts[1:], len(lines) + 1], strict=True):
        if kind in entry:
            own = lines[start - 1 : end - 1]
            # What stands between two resources belongs to the second.
            while own[-1].startswith("#") or not own[-1].strip():
                own.pop()
            texts["\n".join(own)] = len(entry[kind])
    return texts


def step_lines(step: DescribedStep, width: int) -> Iterator[str]:
    """A step as text."""
    yield from _wrapped(f"{step.name}: {step.summary}", width, "", "  ")
    yield from _wrapped(f"In a plan: {'always' if step.when == ALWAYS else f'if {step.when}'}", width, "  ", "    ")
    order = f"after {', '.join(step.follows)}" if step.follows else ""
    order = "before every other step" if step.is_first else "after every other step" if step.is_last else order
    restart = f"after the restart that {', '.join(step.needs_restart_of)} needs" if step.needs_restart_of else ""
    if order or restart:
        yield from _wrapped(f"Runs {' and '.join(filter(None, [order, restart]))}", width, "  ", "    ")
    if step.rounds > 1:
        yield f"  Runs {step.rounds} times, with a restart after each"
    limit = f"Time limit: {step.timeout_s} s. `timeouts.steps.{step.name}` sets another one, in minutes"
    yield from _wrapped(limit, width, "  ", "    ")
    if step.options:
        yield from ["", "Keys of the config"]
        yield from _columns([(option.path, option.description) for option in step.options], width)
    if step.facts:
        yield from ["", "Facts of the catalogue"]
        yield from _columns([(fact.path, fact.description) for fact in step.facts], width)
        where = "`imagegen explain CONFIG facts` shows the values for a config, with their sources."
        yield from _wrapped(where, width, "  ", "  ")
    if step.artifacts:
        yield from ["", "Artifacts"]
        for artifact in step.artifacts:
            replaced = f", replaced by {' or '.join(artifact.overrides)}" if artifact.overrides else ""
            condition = "" if artifact.when == ALWAYS else f", if {artifact.when}"
            yield from _wrapped(f"{artifact.name}{replaced}{condition}", width, "  ", "    ")
            # Not wrapped, so that it can be copied.
            yield f"    {artifact.url}"
    yield from ["", "On the machine"]
    for change in step.changes:
        yield from _change_lines(change, width)


def _change_lines(change: Change, width: int) -> Iterator[str]:
    if change.reason:
        yield from _wrapped(change.reason, width, "  # ", "  # ")
    notes = [
        "" if change.when == ALWAYS else f"if {change.when}",
        f"for each of {change.each}" if change.each else "",
        UNTIL_FIRST_BOOT if change.until else "",
        *change.effects,
    ]
    yield f"  {change.kind:<11} {change.label}"
    yield from (line for note in notes if note for line in _wrapped(note, width, " " * 14, " " * 16))


def _columns(rows: Sequence[tuple[str, str]], width: int) -> Iterator[str]:
    first = max(len(name) for name, _ in rows)
    for name, text in rows:
        lead = f"  {name:<{first}}  "
        yield from _wrapped(text, width, lead, " " * len(lead))


def _wrapped(text: str, width: int, first: str, rest: str) -> list[str]:
    return textwrap.wrap(
        text, width, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False, break_long_words=False
    )


# The types that have a name of their own. Types are compared by value, and a list does not need them hashable.
_NAMED: Final[tuple[tuple[object, str], ...]] = (
    (resource.WindowsPath, "Windows path"),
    (resource.Sha256, "sha256"),
    (resource.Name, "name"),
    (kinds.BundledFile, "bundled file"),
    (kinds.CommandLine, "command line"),
    (kinds.Expression, "regular expression"),
    (kinds.MemberPath, "path in the archive"),
    (kinds.MemberName, "path in the archive, with /"),
    (kinds.RegistryKey, "registry key"),
    (kinds.Seconds, "seconds"),
    (kinds.Sid, "SID"),
)
_PLAIN: Final[Mapping[object, str]] = {str: "string", int: "number", bool: "true or false", types.NoneType: "null"}
_SPLIT: Final = (typing.Union, types.UnionType)


@dataclasses.dataclass(frozen=True)
class Field:
    """A field of a kind, or of a section in it: then its `name` begins with that of the section."""

    name: str
    type: str
    default: str | None
    """None: it must be given."""
    description: str


@dataclasses.dataclass(frozen=True)
class DescribedKind:
    """Everything that there is to know about a kind before it is used."""

    name: str
    summary: str
    fields: tuple[Field, ...]
    until: str | None
    """`first-boot` if a node no longer shows that such a resource is as planned."""
    used_by: tuple[str, ...]
    """The shipped steps with such a resource."""
    example: str
    """Such a resource of a shipped step, as it is written there: the one with the most fields."""


def describe_kind(name: str, steps: Mapping[str, Step]) -> DescribedKind:
    """Describe a kind that exists."""
    kind = kinds.KINDS[name]
    written = {step.name: found for step in steps.values() if (found := resource_texts(step, name))}
    texts = {text: count for found in written.values() for text, count in found.items()}
    return DescribedKind(
        name=name,
        summary=summary_of(kind),
        fields=tuple(_fields(kind, "")),
        until=None if kind.outlives_sealing else FIRST_BOOT,
        used_by=tuple(written),
        example=max(texts, key=lambda text: (texts[text], -len(text)), default=""),
    )


def summary_of(kind: type[Resource]) -> str:
    """What a resource of this kind is."""
    return inspect.cleandoc(kind.__doc__ or "").replace("\n", " ")


def _fields(section: type[Strict], under: str) -> Iterator[Field]:
    notes = field_notes(section)
    for name, annotation in inspect.get_annotations(section, eval_str=True).items():
        if name not in section.model_fields:
            continue
        found = section.model_fields[name]
        default = None if found.is_required() else _words_of_value(found.get_default(call_default_factory=True))
        yield Field(f"{under}{name}", _words(annotation), default, notes.get(name, ""))
        for inner, mark in _sections(annotation):
            yield from _fields(inner, f"{under}{name}{mark}.")


def _sections(annotation: object) -> Iterator[tuple[type[Strict], str]]:
    """The sections that a value is or holds, and how a path says which."""
    if isinstance(annotation, type) and issubclass(annotation, Strict):
        yield annotation, ""
        return
    mark = "[]" if typing.get_origin(annotation) is list else ""
    for inner in typing.get_args(annotation) if typing.get_origin(annotation) in (list, Annotated, *_SPLIT) else ():
        yield from ((section, mark + below) for section, below in _sections(inner))


def _words(annotation: object) -> str:
    """A type in words."""
    named = next((word for known, word in _NAMED if known == annotation), None)
    if named is not None:
        return named
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        return _words(inner[0]) + _bounds(inner[1:])
    if origin is Literal or origin in _SPLIT:
        return _any_of(list(_choices(annotation)))
    if origin is list:
        return f"list ({_words(inner[0])})"
    if isinstance(annotation, type) and issubclass(annotation, Strict):
        return "map"
    return _PLAIN[annotation]


def _choices(annotation: object) -> Iterator[str]:
    """What a value can be, each in words."""
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Literal:
        yield from map(str, inner)
    elif origin in _SPLIT:
        yield from (choice for part in inner for choice in _choices(part))
    else:
        yield _words(annotation)


def _bounds(metadata: tuple[object, ...]) -> str:
    """The smallest and largest number, if both are declared."""
    rules = [rule for part in metadata if isinstance(part, pydantic.fields.FieldInfo) for rule in part.metadata]
    least = [rule.ge for rule in rules if isinstance(rule, annotated_types.Ge)]
    most = [rule.le for rule in rules if isinstance(rule, annotated_types.Le)]
    return f", {least[0]} to {most[0]}" if least and most else ""


def _any_of(words: list[str]) -> str:
    return " or ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def _words_of_value(value: object) -> str:
    return "null" if value is None else str(value)


def kind_lines(kind: DescribedKind, width: int) -> Iterator[str]:
    """A kind as text."""
    yield from textwrap.wrap(f"{kind.name}: {kind.summary}", width, subsequent_indent="  ")
    if kind.until:
        yield from textwrap.wrap(f"Always {UNTIL_FIRST_BOOT}", width, initial_indent="  ", subsequent_indent="  ")
    yield from ["", "Fields in a plan"]
    first = max(len(field.name) for field in kind.fields)
    for field in kind.fields:
        default = "" if field.default is None else f"; default: {field.default}"
        lead = f"  {field.name:<{first}}  "
        text = ". ".join(filter(None, [f"{field.type}{default}", field.description]))
        yield from textwrap.wrap(
            text, width, initial_indent=lead, subsequent_indent=" " * len(lead), break_on_hyphens=False
        )
    if kind.used_by:
        yield from ["", "In a step", ""]
        # Not wrapped, so that it can be copied.
        yield from (f"    {line}".rstrip() for line in kind.example.splitlines())
        yield from ["", *textwrap.wrap(f"Used by: {', '.join(kind.used_by)}", width, subsequent_indent="  ")]
