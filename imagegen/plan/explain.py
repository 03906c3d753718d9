"""Explains settled specs: values with their origins, and steps with their reasons, as text or JSON. Pure."""

import dataclasses
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence

import pydantic

from imagegen.base.errors import ConfigError
from imagegen.config.fields import keys
from imagegen.config.problems import closest, nearest
from imagegen.config.reference import flow
from imagegen.config.yaml import YamlPath, dotted
from imagegen.plan.context import evaluate_steps
from imagegen.settle.facts import FACTS, Facts, Origin
from imagegen.settle.spec import Spec
from imagegen.steps.describe import field_notes
from imagegen.steps.evaluate import ALWAYS, EvaluatedStep
from imagegen.steps.model import Step

STEPS = "steps"


@dataclasses.dataclass(frozen=True)
class Value:
    """One value, its origin and its description."""

    path: YamlPath
    value: object
    origin: Origin
    description: str


@dataclasses.dataclass(frozen=True)
class StepReason:
    """Why a step is in the plan of these targets, and which values it reads."""

    name: str
    summary: str
    targets: tuple[str, ...]
    because: str
    reads: tuple[str, ...]
    values: tuple[Value, ...]
    """The values of `reads`."""


@dataclasses.dataclass(frozen=True)
class Explanation:
    """The explanation of a config for some targets."""

    name: str
    targets: tuple[str, ...]
    values: tuple[Value, ...]
    steps: tuple[StepReason, ...]


def explain(specs: Sequence[Spec], steps: Mapping[str, Step]) -> Explanation:
    """The explanation of these targets only."""
    config, targets = specs[0].config, tuple(spec.target for spec in specs)
    evaluated = {spec.target: evaluate_steps(spec, steps) for spec in specs}
    clouds = {spec.provider for spec in specs}
    others: set[YamlPath] = {("targets", name) for name, _ in config.targets if name not in targets} | {
        ("cloudbase_init", section, name)
        for section in ("plugins", "metadata_services")
        for name, _ in getattr(config.cloudbase_init, section)
        if name not in clouds
    }
    found: dict[YamlPath, Value] = {}
    notes = field_notes(Facts)
    for spec in specs:
        facts = (
            Value(path, known.shown, known.origin, notes.get(str(path[-1]), ""))
            for path, known in spec.catalogue.items()
            if path[0] == FACTS and known.value
        )
        for value in (*_values(spec, spec.config, (), ""), *facts):
            # Another target may have a value for this path.
            if value.path not in found or found[value.path].value is None:
                found[value.path] = value
    found |= {value.path: value for value in _options(specs[0], evaluated)}
    values = [value for path, value in found.items() if not any(path[: len(section)] == section for section in others)]
    return Explanation(config.name, targets, tuple(values), tuple(_reasons(evaluated, values)))


def _values(spec: Spec, value: object, at: YamlPath, description: str) -> Iterator[Value]:
    if isinstance(value, pydantic.BaseModel):
        fields = type(value).model_fields
        for name, inner in value:
            yield from _values(spec, inner, (*at, name), (fields[name].description or "") if name in fields else "")
    elif isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from _values(spec, inner, (*at, name), description)
    elif isinstance(value, list) and any(isinstance(item, pydantic.BaseModel) for item in value):
        for index, item in enumerate(value):
            yield from _values(spec, item, (*at, index), description)
    else:
        known = spec.catalogue.get(at) if value is None else None
        yield Value(at, known.value if known else value, spec.origin(at), description)


def _options(spec: Spec, evaluated: Mapping[str, tuple[EvaluatedStep, ...]]) -> Iterator[Value]:
    """The options of the operator's own steps, with their defaults."""
    for step in {item.step.name: item.step for steps in evaluated.values() for item in steps}.values():
        for name, value in step.options(spec.config.step_options).items():
            path = ("step_options", step.name, name)
            yield Value(path, value, spec.origin(path), step.meta.options[name].description)


def _reasons(evaluated: Mapping[str, tuple[EvaluatedStep, ...]], values: list[Value]) -> Iterator[StepReason]:
    """Each step once, in the order of the plan, with the targets that use it."""
    found: dict[str, tuple[EvaluatedStep, list[str]]] = {}
    for target, steps in evaluated.items():
        for item in steps:
            found.setdefault(item.step.name, (item, []))[1].append(target)
    for name, (item, targets) in found.items():
        meta = item.step.meta
        behind = tuple(value for value in values if _is_behind(dotted(value.path), item))
        yield StepReason(name, meta.summary, tuple(targets), item.because, tuple(meta.reads), behind)


def _is_behind(path: str, item: EvaluatedStep) -> bool:
    """Whether a step reads a value, or gets an artifact from it."""
    meta = item.step.meta
    replaced = {name for file in meta.artifacts.values() for name in file.overrides}
    sections = [f"step_options.{item.step.name}", *(f"overrides.{name}" for name in replaced)]
    # An omitted section is one value: a step that reads a key of the section reads this value.
    return any(is_below(path, read) for read in (*meta.reads, *sections)) or any(
        is_below(read, path) for read in meta.reads
    )


def is_below(path: str, section: str) -> bool:
    """Whether a dotted path is in a section, or is the section itself."""
    return path == section or path.startswith((f"{section}.", f"{section}["))


def narrow(explanation: Explanation, wanted: str) -> Explanation:
    """The explanation of one key, section, fact or step only. An unknown name is an error."""
    every = [
        *(dotted(value.path) for value in explanation.values),
        *(f"{STEPS}.{step.name}" for step in explanation.steps),
    ]
    written, known_keys = wanted, {key.path for key in keys()}
    # Problems name items of lists, but a list is explained as a whole.
    if not any(is_below(path, wanted) for path in every):
        wanted = re.sub(r"\[[0-9]+\]$", "", wanted)
    # A key of an omitted section has no value: the section explains it.
    while not any(is_below(path, wanted) for path in every):
        if wanted not in known_keys or "." not in wanted:
            if written.startswith(f"{FACTS}.") and written.removeprefix(f"{FACTS}.") in Facts.__dataclass_fields__:
                raise ConfigError(
                    f"{written} is not in use in this config", hint="`imagegen explain CONFIG facts` lists those in use"
                )
            raise ConfigError(f"the config has no {written!r}", hint=_nearest(written, explanation))
        wanted = wanted.rpartition(".")[0]
    return dataclasses.replace(
        explanation,
        values=tuple(value for value in explanation.values if is_below(dotted(value.path), wanted)),
        steps=tuple(step for step in explanation.steps if is_below(f"{STEPS}.{step.name}", wanted)),
    )


def _nearest(written: str, explanation: Explanation) -> str:
    """The path that was probably meant, at any depth, or else the list of sections."""
    top = [dotted(value.path[:1]) for value in explanation.values] + [STEPS]
    every = {dotted(value.path[:depth]) for value in explanation.values for depth in range(1, len(value.path) + 1)}
    every |= {STEPS, *(f"{STEPS}.{step.name}" for step in explanation.steps)}
    return nearest(written, sorted(every) if closest(written, sorted(every)) else list(dict.fromkeys(top)))


# A value that a step reads is cut here: the full value is shown above.
_LONGEST_READ = 40
_WIDEST_VALUE = 40


def explanation_json(explanation: Explanation) -> dict[str, object]:
    """The explanation for programs."""
    return {
        "name": explanation.name,
        "targets": list(explanation.targets),
        "values": [{**dataclasses.asdict(value), "path": dotted(value.path)} for value in explanation.values],
        "steps": [
            {**dataclasses.asdict(step), "values": {dotted(value.path): value.value for value in step.values}}
            for step in explanation.steps
        ],
    }


def explanation_lines(explanation: Explanation, width: int) -> list[str]:
    """Values by section, then steps, then the sources of catalogue values, in at most `width` columns."""
    notes: list[str] = []
    lines = [f"{explanation.name} for {' and '.join(explanation.targets)}"]
    sections: dict[str, list[Value]] = {}
    for value in explanation.values:
        sections.setdefault(dotted(value.path[:-1]), []).append(value)
    for section, values in sections.items():
        lines += ["", *([section] if section else []), *_section(values, width, notes)]
    if len(explanation.values) == 1:
        lines += textwrap.wrap(explanation.values[0].description, width, initial_indent="  ", subsequent_indent="  ")
    if explanation.steps:
        lines += ["", "steps", *(line for step in explanation.steps for line in _step(step, explanation, width))]
    for number, note in enumerate(notes, 1):
        lead = f"[{number}] "
        lines += ["", *textwrap.wrap(note, width, initial_indent=lead, subsequent_indent=" " * len(lead))][number > 1 :]
    return lines


def _section(values: list[Value], width: int, notes: list[str]) -> Iterator[str]:
    """One line for each value. A value that is too long for its column stands below its key."""
    names = [dotted(value.path[-1:]) for value in values]
    origins = [_origin_text(value.origin, notes) for value in values]
    first = max(len(name) for name in names)
    room = min(_WIDEST_VALUE, width - first - max(len(origin) for origin in origins) - len("      "))
    for name, value, origin in zip(names, values, origins, strict=True):
        shown = _shown(value.value)
        fits = len(shown) <= room
        line = f"  {name:<{first}}  {shown if fits else '':<{max(room, 0)}}  {origin}"
        yield from [line] if len(line) <= width else [f"  {name}", f"    {origin}"]
        if not fits:
            items = [f"- {_shown(item)}" for item in value.value] if isinstance(value.value, list) else [shown]
            yield from (part for item in items for part in _wrapped(item, width))


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, initial_indent="      ", subsequent_indent="        ", break_on_hyphens=False)


def _shown(value: object) -> str:
    return "-" if value is None or value in ([], {}) else flow(value)


def _origin_text(origin: Origin, notes: list[str]) -> str:
    if origin.kind == "default":
        return origin.kind
    if origin.kind != "catalogue" or not origin.source:
        return origin.where
    note = f"{origin.source} (read {origin.read})"
    if note not in notes:
        notes.append(note)
    return f"{origin.kind}: {origin.where} [{notes.index(note) + 1}]"


def _step(step: StepReason, explanation: Explanation, width: int) -> Iterator[str]:
    where = "" if step.targets == explanation.targets else f" on {' and '.join(step.targets)}"
    why = ALWAYS if step.because == ALWAYS else f"because this holds: {step.because}"
    yield from textwrap.wrap(f"{step.name}: {step.summary}", width, initial_indent="  ", subsequent_indent="      ")
    yield from _wrapped(f"in the plan{where} {why}", width)
    if step.values:
        yield from _wrapped(
            f"reads {', '.join(f'{dotted(value.path)} {_short(value)}' for value in step.values)}", width
        )


def _short(value: Value) -> str:
    text = _shown(value.value)
    return text if len(text) <= _LONGEST_READ else f"{text[:_LONGEST_READ]}…"
