"""The names of overrides with the artifacts that they replace, and other facts that the model of a config lacks."""

import dataclasses
import textwrap
from collections.abc import Iterator, Mapping, Sequence

from imagegen.catalog.facts import table
from imagegen.config.schema import Known
from imagegen.plan import loading
from imagegen.rules.unimplemented import notes


@dataclasses.dataclass(frozen=True)
class ReplacedArtifact:
    """One artifact that an override replaces."""

    artifact: str
    step: str
    """The step that downloads it."""
    address: str
    """The public address that the override replaces."""
    file: str = ""
    """Its file name, if the override is a base URL or of one of the files of a base URL."""
    conditional: bool = False
    """Whether some configs do not need it."""

    def as_json(self) -> dict[str, str]:
        return {"artifact": self.artifact, "step": self.step, "address": self.address}


def overrides() -> dict[str, list[ReplacedArtifact]]:
    """Every override that a config may have, with the artifacts that it replaces."""
    found: dict[str, list[ReplacedArtifact]] = {}
    for step in loading.load_steps().values():
        for name, meta in step.meta.artifacts.items():
            file = (meta.path or "").rpartition("/")[2]
            artifact = ReplacedArtifact(name, step.name, meta.url or f"{meta.base}/{meta.path}", file, bool(meta.when))
            for override in meta.overrides:
                found.setdefault(override, []).append(artifact)
    return dict(sorted(found.items()))


def override_lines(found: Mapping[str, Sequence[ReplacedArtifact]], width: int) -> Iterator[str]:
    """Each override with the public addresses that it replaces."""
    for name, artifacts in found.items():
        yield from textwrap.wrap(f"{name}: {_content(artifacts)}", width, subsequent_indent="    ")
        # Not wrapped, so that an address can be copied.
        yield from dict.fromkeys(f"  {artifact.address}" for artifact in artifacts)


def _content(artifacts: Sequence[ReplacedArtifact]) -> str:
    """What the URL of an override must serve."""
    files = list(dict.fromkeys(artifact.file for artifact in artifacts if artifact.file))
    if len(files) > 1:
        used = " (those that the config uses)" if any(artifact.conditional for artifact in artifacts) else ""
        listed = f"{', '.join(files[:-1])} and {files[-1]}{used}"
        return f"a folder with {listed}, or of an archive with them, or a template with {{name}}"
    return f"{files[0]}, or of an archive with it" if files else artifacts[0].artifact


def known_facts() -> Known:
    """The facts about keys that are not in the model, but in the catalogue, the steps and the rules."""
    descriptions = {
        name: f"The https URL of {_content(artifacts)}, instead of the public one."
        for name, artifacts in overrides().items()
    }
    gates = {name: _describe_gate(row) for name, row in table("kubelet")["feature_gates"].items()}
    return Known(list(table("windows")["releases"]), descriptions, gates, notes())


def _describe_gate(row: Mapping[str, str | None]) -> str:
    """The Kubernetes versions that have a feature gate."""
    since = f"from {row['first']} " if row["first"] else ""
    until = f"up to {row['last']}" if row["last"] else "on"
    fixed = f"; it cannot be switched off from {row['locked']} on" if row["locked"] else ""
    return f"Kubernetes has it {since}{until}{fixed}."
