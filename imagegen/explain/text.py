"""Formats an explanation as text for people or as JSON for programs. Pure."""

import dataclasses
import textwrap
from collections.abc import Iterator

from imagegen.config.reference import flow
from imagegen.documents.yaml import dotted
from imagegen.explain.explain import Explanation, StepReason, Value
from imagegen.settle.spec import Origin
from imagegen.steps.evaluate import ALWAYS

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
