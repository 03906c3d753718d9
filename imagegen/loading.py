"""A config in; everything that later stages need of it, or every problem at once, out: form, rules, specs, steps.

The first stage of the pipeline, and all that `imagegen validate` needs.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING

from imagegen.config.load import read_config
from imagegen.contents import SHIPPED, Contents
from imagegen.errors import ERROR, ConfigError
from imagegen.judging import RuleInput
from imagegen.lines import counted
from imagegen.rules.awaited import awaited
from imagegen.rules.awaited import override_names as awaited_names
from imagegen.rules.judge import broken_rules
from imagegen.settle.settle import settle_targets
from imagegen.steps import discover
from imagegen.steps.own import with_own_steps
from imagegen.steps.parts import check_parts

if TYPE_CHECKING:
    import datetime
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from imagegen.config.model import ImageConfig
    from imagegen.documents.yaml import Document
    from imagegen.errors import Problem
    from imagegen.settle.spec import Spec
    from imagegen.steps.model import Step


@dataclasses.dataclass(frozen=True)
class Asked:
    """The words of a command: a config, what --set says instead of it, and the day on which it is judged."""

    file: Path
    today: datetime.date
    sets: tuple[str, ...] = ()
    contents: Contents = SHIPPED


@dataclasses.dataclass(frozen=True)
class Loaded:
    """A config that holds together."""

    file: Path
    contents: Contents
    config: ImageConfig
    specs: Mapping[str, Spec]  # by target
    document: Document
    warnings: tuple[Problem, ...]
    """What works and should be known."""
    awaited: tuple[Problem, ...]
    """What it asks for that is not built yet; a plan of it is refused."""

    @functools.cached_property
    def steps(self) -> Mapping[str, Step]:
        """The steps it may use."""
        return load_steps(self.contents)


def load_steps(contents: Contents = SHIPPED) -> dict[str, Step]:
    """The steps, read only where something asks for them."""
    return discover.load_steps(contents.step_roots)


def load(asked: Asked) -> Loaded:
    """What was asked, or every problem of it: of its form and of its meaning at once."""
    check_parts(asked.contents.step_roots)
    own = functools.partial(with_own_steps, asked.contents)
    read = read_config(
        asked.file, asked.sets, overrides=lambda it: override_names(own(it)), steps=lambda it: load_steps(own(it))
    )
    config, problems, contents = read.config, list(read.problems), own(read.document)
    specs = settle_targets(config, read.document) if config else {}
    if config is not None:
        steps = functools.partial(load_steps, contents)
        subject = RuleInput(config, read.document, asked.today, steps, specs)
        problems += broken_rules(subject, unread=read.unread)
        if config.artifacts.allowed_hosts and not any(problem.severity == ERROR for problem in problems):
            # The one rule for which steps are evaluated: Jinja and the kinds would be a tenth of `validate`'s time.
            from imagegen.plan.context import refused_hosts

            problems += refused_hosts(specs.values(), read.document, steps())
    wrong = sum(problem.severity == ERROR for problem in problems)
    if wrong or config is None:
        warned = len(problems) - wrong
        also = f" and {counted(warned, 'warning')}" if warned else ""
        raise ConfigError(f"{asked.file}: {counted(wrong, 'problem')}{also}", problems=problems)
    missing = awaited(config, specs, read.document)
    return Loaded(asked.file, contents, config, specs, read.document, tuple(sorted(problems)), tuple(sorted(missing)))


def override_names(contents: Contents = SHIPPED) -> list[str]:
    """The names by which a config moves artifacts: those of the steps, and of the steps that are not built yet."""
    return sorted({*discover.override_names(load_steps(contents)), *awaited_names()})


def find_targets(loaded: Loaded, name: str | None) -> list[str]:
    """The target of that name or, where none has it, every target on the cloud of that name; without a name all."""
    if name is None or name in loaded.specs:
        return [name] if name else list(loaded.specs)
    found = [target for target, spec in loaded.specs.items() if spec.provider == name]
    if not found:
        message, hint = f"the config has no target {name!r}", f"it has {', '.join(loaded.specs)}"
        problem = loaded.document.problem(("targets",), message, hint)
        raise ConfigError(f"{loaded.file}: no such target", problems=[problem])
    return found


def awaited_for(loaded: Loaded, targets: Collection[str]) -> list[Problem]:
    """What is not built yet and stands in the way of these targets."""
    others = tuple(f"targets.{name}." for name in loaded.specs if name not in targets)
    return [problem for problem in loaded.awaited if not problem.path.startswith(others)]
