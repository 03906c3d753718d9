"""The names by which configs move artifacts, what each moves, and what schema and reference say beside the model."""

import dataclasses
import textwrap
from collections.abc import Iterator, Mapping

from imagegen import loading
from imagegen.catalog.facts import table
from imagegen.config.schema import Known
from imagegen.rules.unimplemented import notes, override_names


@dataclasses.dataclass(frozen=True)
class Moved:
    """One artifact that an override moves."""

    artifact: str
    step: str | None
    """The step that downloads it; none where that is not built yet."""
    address: str | None
    """The public address that the override replaces."""
    file: str
    """Its name in the folder of a base URL; empty for a URL of its own."""

    def as_json(self) -> dict[str, str | bool | None]:
        """The artifact for machines."""
        return {"artifact": self.artifact, "step": self.step, "address": self.address, "built": self.step is not None}


def overrides() -> dict[str, list[Moved]]:
    """Every name that a config may use, with what it moves."""
    found = {name: [Moved(what, None, None, "")] for name, what in override_names().items()}
    for step in loading.load_steps().values():
        for artifact, meta in step.meta.artifacts.items():
            file = (meta.path or "").rpartition("/")[2]
            moved = Moved(artifact, step.name, meta.url or f"{meta.base}/{meta.path}", file)
            found.setdefault(meta.override, []).append(moved)
    return dict(sorted(found.items()))


def override_lines(found: Mapping[str, list[Moved]], width: int) -> Iterator[str]:
    """What each name moves, for people."""
    for name, moved in found.items():
        yield from textwrap.wrap(f"{name}: {_holds(moved)}{_unbuilt(moved)}", width, subsequent_indent="    ")
        for item in moved:
            if item.address:
                # Not wrapped: an address is copied.
                yield f"  {item.address}"


def _unbuilt(moved: list[Moved]) -> str:
    return "" if moved[0].step else " (not implemented yet)"


def _holds(moved: list[Moved]) -> str:
    """What must be at the address."""
    if files := [item.file for item in moved if item.file]:
        return f"a folder with {', '.join(files[:-1])} and {files[-1]}"
    return moved[0].artifact


def known_words() -> Known:
    """What the catalogue, the steps and the rules know of keys beside the model."""
    described = {
        name: f"The https URL of {_holds(moved)}, instead of the public one.{_unbuilt(moved)}"
        for name, moved in overrides().items()
    }
    gates = {name: _of_gate(row) for name, row in table("kubelet")["feature_gates"].items()}
    return Known(list(table("windows")["releases"]), described, gates, notes())


def _of_gate(row: Mapping[str, str | None]) -> str:
    """Which Kubernetes has a feature gate."""
    first, locked, last = row["first"], row["locked"], row["last"]
    since = f"from {first}" if first else ""
    until = f"up to {last}" if last else "on"
    fixed = f"; it cannot be switched off from {locked} on" if locked else ""
    return f"Kubernetes has it {' '.join(part for part in (since, until) if part)}{fixed}."
