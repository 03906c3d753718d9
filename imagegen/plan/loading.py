"""Loads a config: checks its form and rules, settles its targets, and reports every problem at once.

The first stage of the pipeline, and all that `imagegen validate` needs.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from imagegen.base.contents import SHIPPED, Contents
from imagegen.base.errors import ERROR, ConfigError, Problem, RefusedError
from imagegen.base.lines import counted
from imagegen.config.load import read_config
from imagegen.config.model import ImageConfig
from imagegen.config.own_files import read_own_files
from imagegen.config.yaml import dotted
from imagegen.fetch.policy import refused_hosts, refused_registries
from imagegen.plan.context import artifact_requests, evaluate_steps, image_requests
from imagegen.plan.lint import find_mistakes
from imagegen.plan.open_folders import find_open_folders
from imagegen.rules.judge import broken_rules
from imagegen.rules.rule import RuleInput
from imagegen.rules.unimplemented import find_unimplemented
from imagegen.settle.spec import Spec, settle_targets
from imagegen.steps.model import Step, check_folders, with_own_steps
from imagegen.steps.model import load_steps as load_steps_of
from imagegen.trust.policy import signature_requests, unsigned_downloads

if TYPE_CHECKING:
    from imagegen.config.own_files import GivenCertificate, OwnFile
    from imagegen.config.yaml import Document
    from imagegen.steps.evaluate import EvaluatedStep

# Lists of revoked certificates are the largest files that a config names.
_LIMIT_TRUST_BYTES: Final = 64 * 2**20


@dataclasses.dataclass(frozen=True)
class ConfigRequest:
    """What a command requests: a config, the values of --set, and the date for which its rules are checked."""

    file: Path
    today: datetime.date
    sets: tuple[str, ...] = ()
    contents: Contents = SHIPPED


@dataclasses.dataclass(frozen=True)
class Loaded:
    """A valid config, with everything that later stages need."""

    file: Path
    contents: Contents
    config: ImageConfig
    specs: Mapping[str, Spec]  # by target
    document: Document
    warnings: tuple[Problem, ...]
    """The warnings of its rules."""
    unimplemented: tuple[Problem, ...]
    """Its settings that are not implemented yet. A plan with one of them is refused."""
    evaluated: Mapping[str, tuple[EvaluatedStep, ...]]
    """The evaluated steps by target."""

    @functools.cached_property
    def steps(self) -> Mapping[str, Step]:
        """The steps that it may use, by name."""
        return load_steps(self.contents)


def load_steps(contents: Contents = SHIPPED) -> dict[str, Step]:
    """The steps by name. They are read only when they are needed."""
    return load_steps_of(contents.step_roots)


def load(request: ConfigRequest) -> Loaded:
    """Load a config. One error holds all its problems, those of its form and those of its rules."""
    check_folders(request.contents.step_roots)
    own = functools.partial(with_own_steps, request.contents)
    read = read_config(
        request.file,
        request.sets,
        overrides=lambda document: override_names(own(document)),
        steps=lambda document: load_steps(own(document)),
    )
    config, problems, contents = read.config, list(read.problems), own(read.document)
    evaluated: dict[str, tuple[EvaluatedStep, ...]] = {}
    given = _read_given(read.document, config) if config else _GivenFiles()
    problems += given.problems
    specs = settle_targets(config, read.document, *given.settled) if config else {}
    if config is not None:
        steps = functools.cache(functools.partial(load_steps, contents))
        problems += broken_rules(RuleInput(config, read.document, request.today, steps, specs), unread=read.unread)
        if not any(problem.severity == ERROR for problem in problems):
            evaluated = {name: evaluate_steps(spec, steps()) for name, spec in specs.items()}
            problems += _find_refused_downloads(config, specs, evaluated, read.document)
            # Most targets have the same.
            problems += dict.fromkeys(
                problem
                for name, one in evaluated.items()
                for problem in (*find_open_folders(one), *find_mistakes(one, specs[name].provider))
            )
    errors = sum(problem.severity == ERROR for problem in problems)
    if errors or config is None:
        others = len(problems) - errors
        also = f" and {counted(others, 'warning')}" if others else ""
        raise ConfigError(f"{request.file}: {counted(errors, 'problem')}{also}", problems=problems)
    return Loaded(
        request.file,
        contents,
        config,
        specs,
        read.document,
        warnings=tuple(sorted(problems)),
        unimplemented=tuple(sorted(find_unimplemented(config, specs, read.document))),
        evaluated=evaluated,
    )


@dataclasses.dataclass(frozen=True)
class _GivenFiles:
    """The files that a config names: their contents, and the certificates in them."""

    files: Mapping[str, OwnFile] = dataclasses.field(default_factory=dict)
    roots: tuple[GivenCertificate, ...] = ()
    authorities: tuple[GivenCertificate, ...] = ()
    problems: tuple[Problem, ...] = ()

    @property
    def settled(self) -> tuple[Mapping[str, OwnFile], tuple[GivenCertificate, ...], tuple[GivenCertificate, ...]]:
        """What the specs have of them."""
        return self.files, self.roots, self.authorities


def _read_given(document: Document, config: ImageConfig) -> _GivenFiles:
    files, unreadable = read_own_files(document, config.own_files())
    trusted, also_unreadable = read_own_files(
        document, {**config.trust_files(), **config.ca_files()}, limit=_LIMIT_TRUST_BYTES
    )
    files = {**files, **trusted}
    roots, unusable = _read_roots(document, files, "windows", "trusted_roots")
    authorities, also_unusable = _read_roots(document, files, "artifacts", "ca")
    return _GivenFiles(files, roots, authorities, (*unreadable, *also_unreadable, *unusable, *also_unusable))


def _read_roots(
    document: Document, files: Mapping[str, OwnFile], *key: str
) -> tuple[tuple[GivenCertificate, ...], list[Problem]]:
    if not any(path.startswith(f"{dotted(key)}[") for path in files):
        return (), []
    # Few configs have roots, and the library that reads certificates is slow to import.
    from imagegen.trust.sources import read_roots

    return read_roots(document, files, key)


def _find_refused_downloads(
    config: ImageConfig,
    specs: Mapping[str, Spec],
    evaluated: Mapping[str, tuple[EvaluatedStep, ...]],
    document: Document,
) -> Iterator[Problem]:
    """What the policy for downloads refuses of all that the steps download."""
    requests = (request for one in evaluated.values() for request in artifact_requests(one).values())
    yield from refused_hosts(config, requests, document)
    # Every target has the same images.
    first = next(iter(specs))
    yield from refused_registries(config, image_requests(evaluated[first], specs[first]), document)
    signed = (request for one in evaluated.values() for request in signature_requests(config, one).values())
    yield from unsigned_downloads(signed, document)


def override_names(contents: Contents = SHIPPED) -> list[str]:
    """The names of all overrides of the steps."""
    artifacts = (meta for step in load_steps(contents).values() for meta in step.meta.artifacts.values())
    return sorted({name for meta in artifacts for name in meta.overrides})


def find_targets(loaded: Loaded, name: str | None) -> list[str]:
    """The target with this name, or else all targets of the provider with this name. Without a name all targets."""
    if name is None or name in loaded.specs:
        return [name] if name else list(loaded.specs)
    found = [target for target, spec in loaded.specs.items() if spec.provider == name]
    if not found:
        problem = loaded.document.problem(
            ("targets",), f"the config has no target {name!r}", f"it has {', '.join(loaded.specs)}"
        )
        raise ConfigError(f"{loaded.file}: no such target", problems=[problem])
    return found


def unimplemented_for(loaded: Loaded, targets: Collection[str]) -> list[Problem]:
    """The settings that are not implemented yet and that these targets need."""
    others = tuple(f"targets.{name}." for name in loaded.specs if name not in targets)
    return [problem for problem in loaded.unimplemented if not problem.path.startswith(others)]


def reject_unimplemented(loaded: Loaded, targets: Collection[str]) -> None:
    """Settings that are not implemented yet are an error."""
    if missing := unimplemented_for(loaded, targets):
        raise RefusedError(
            f"{loaded.file} uses settings that are not implemented yet",
            problems=[dataclasses.replace(problem, severity=ERROR) for problem in missing],
        )
