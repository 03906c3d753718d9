"""Describes a step: its purpose, what it reads, its artifacts, and what it changes on the machine."""

import dataclasses
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from imagegen.catalog.facts import paths
from imagegen.config.fields import Key, keys
from imagegen.settle.facts import Facts
from imagegen.steps.effects import EFFECTS, NONE
from imagegen.steps.evaluate import ALWAYS
from imagegen.steps.kinds import KINDS
from imagegen.steps.model import Step
from imagegen.steps.notes import field_notes
from imagegen.steps.resource import FIRST_BOOT

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
