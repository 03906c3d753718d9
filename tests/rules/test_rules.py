"""Each rule with configs that break it, and the nearest ones that do not. To update what is expected: make golden.

A file is named after its rule. `broken` and `fine` are configs, each of which extends base.yaml unless it extends
another case. `today` is the day where that matters, `catalogue` has facts that no row has today, `files` are the files
that the configs name, and `also` the other rules that its cases cannot help breaking. `make golden` writes `expected`.
A file that no rule is named after has values that the model of a section refuses.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import json
import os
import re
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from imagegen.base.contents import PACKER, ROLES, SHIPPED
from imagegen.base.errors import ERROR, WARNING
from imagegen.catalog.facts import table
from imagegen.config import checks, first_boot
from imagegen.config.load import read_config
from imagegen.config.own_files import read_own_files
from imagegen.config.yaml import read_yaml
from imagegen.providers.registry import PROVIDERS, part
from imagegen.providers.tags import COMPONENT_TAGS, EXPIRES_AT, OPTION_TAGS, REPORT, RUN_ID
from imagegen.rules import examples
from imagegen.rules.examples import Example, ExampleProblem
from imagegen.rules.judge import all_rules, broken_rules
from imagegen.rules.rule import RuleInput
from imagegen.settle.spec import settle_targets
from imagegen.steps.model import load_steps, with_own_steps
from tests.golden_files import compare_golden

if TYPE_CHECKING:
    from collections.abc import Callable

    from imagegen.base.errors import Problem
    from tests.conftest import Decided

HERE = Path(__file__).parent
TODAY = datetime.date(2026, 11, 18)
RULES = {rule.id: rule for rule in all_rules()}
FILES = sorted(file.stem for file in HERE.glob("*.yml"))


@functools.cache
def _steps() -> dict[str, Any]:
    return load_steps(SHIPPED.step_roots)


def _problems(file: Path, today: datetime.date, *sets: str) -> list[Problem]:
    read = read_config(file, sets, overrides=lambda _: [], steps=lambda _: [])
    # That the names of overrides are known is not for the rules to say.
    found = [problem for problem in read.problems if "unknown override" not in problem.message]
    if read.config is None or found:
        return found
    own = with_own_steps(SHIPPED, read.document)
    steps = _steps if own is SHIPPED else functools.partial(load_steps, own.step_roots)
    # That they exist is not for the rules to say.
    config = read.config
    files, _ = read_own_files(read.document, {**config.own_files(), **config.trust_files(), **config.ca_files()})
    specs = settle_targets(read.config, read.document, files)
    return broken_rules(RuleInput(read.config, read.document, today, steps, specs))


def _lay_over(facts: dict[str, Any], others: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in others.items():
        if isinstance(value, dict) and isinstance(facts.get(key), dict):
            _lay_over(facts[key], value, monkeypatch)
        else:
            monkeypatch.setitem(facts, key, value)


@dataclasses.dataclass(frozen=True)
class Case:
    """A config of a rule's file, and every problem of it."""

    file: str
    text: str
    problems: list[Problem]

    def problems_of(self, rule: str) -> list[Problem]:
        return [problem for problem in self.problems if problem.rule == rule]


@dataclasses.dataclass(frozen=True)
class Cases:
    """The cases of a file."""

    broken: list[Case]
    fine: list[Case]
    also: set[str]
    shown: list[Case]
    """The broken cases of which the example can be one."""
    supposes: str
    """The assumption of the example, where it would not break the rule today."""


@pytest.fixture(scope="session")
def read_cases(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Cases]:
    """Returns the judged cases of a file. Each is judged once."""

    @functools.cache
    def read(name: str) -> Cases:
        data = read_yaml(HERE / f"{name}.yml").data
        folder = tmp_path_factory.mktemp("rule")
        for file, text in {"base.yaml": (HERE / "base.yaml").read_text(), **data.get("files", {})}.items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_text(text)
        texts = {
            kind: {f"{case}.{kind}.yaml": text for case, text in data[kind].items()} for kind in ("broken", "fine")
        }
        for case, text in [*texts["broken"].items(), *texts["fine"].items()]:
            extends = "" if text.startswith("extends:") else "extends: base.yaml\n"
            (folder / case).write_text(text + extends)
        return _judge(name, data, texts, folder)

    return read


def _judge(rule: str, data: dict[str, Any], texts: dict[str, dict[str, str]], folder: Path) -> Cases:
    today = datetime.date.fromisoformat(data.get("today", str(TODAY)))

    def judge(kind: str) -> list[Case]:
        return [Case(file, text, _judged(folder / file, today)) for file, text in texts[kind].items()]

    with pytest.MonkeyPatch.context() as monkeypatch:
        for name, rows in data.get("catalogue", {}).items():
            _lay_over(table(name), rows, monkeypatch)
        broken, fine = judge("broken"), judge("fine")
    shown, supposes = broken, f"today is {today}" if "today" in data else ""
    if "catalogue" in data and not supposes:
        now = {case.file for case in judge("broken") if case.problems_of(rule)}
        shown = [case for case in broken if case.file in now] or broken
        supposes = "" if now else "the catalogue says so"
    return Cases(broken, fine, set(data.get("also", [])), shown, supposes)


def _judged(file: Path, today: datetime.date) -> list[Problem]:
    """The problems of a case, without the folder in which it is judged."""
    folder = f"{file.parent}{os.sep}"
    return [
        dataclasses.replace(problem, file=problem.file.replace(folder, ""), message=problem.message.replace(folder, ""))
        for problem in _problems(file, today)
    ]


@pytest.mark.parametrize("name", FILES)
def test_rule_breaks_where_it_should_and_nowhere_else(name: str, read_cases: Callable[[str], Cases]) -> None:
    cases = read_cases(name)
    assert cases.broken
    assert cases.fine
    rule = name if name in RULES else ""
    for case in [*cases.broken, *cases.fine]:
        ids = {problem.rule for problem in case.problems}
        assert (rule in ids) == (case in cases.broken), f"{case.file}: {ids}"
        assert ids - {rule} <= cases.also, case.file
        for problem in case.problems:
            assert problem.message
            assert problem.hint
            assert problem.hint not in problem.message
            assert problem.severity in (ERROR, WARNING)
    file = HERE / f"{name}.yml"
    written = file.read_text().partition("\nexpected:\n")[0].rstrip("\n")
    expected = "".join(map(_expected, [*cases.broken, *cases.fine]))
    compare_golden({file: f"{written}\nexpected:\n{expected}"})


def _expected(case: Case) -> str:
    problems = "".join(f"{problem}\n" for problem in case.problems)
    return f"  {case.file}: |\n{textwrap.indent(problems, '    ')}" if problems else ""


def test_examples_are_the_most_similar_cases(read_cases: Callable[[str], Cases]) -> None:
    """What `imagegen rules ID` shows."""
    made = {rule: _example(rule, read_cases(rule)) for rule in RULES}
    text = json.dumps({rule: example.as_json() for rule, example in made.items()}, indent=1, ensure_ascii=False)
    compare_golden({examples.FILE: f"{text}\n"})
    assert {rule: examples.example_of(rule) for rule in RULES} == made


def _example(rule: str, cases: Cases) -> Example:
    """The pair of cases with the fewest different lines. A broken case that breaks no other rule is preferred."""

    def distance(pair: tuple[Case, Case]) -> tuple[int, int, int, str]:
        one, other = (_whole_text(case, cases) for case in pair)
        others = {problem.rule for problem in pair[0].problems} - {rule}
        return len(others), len(set(one.splitlines()) ^ set(other.splitlines())), len(one + other), one

    bad, good = min(((one, other) for one in cases.shown for other in cases.fine), key=distance)
    says = [ExampleProblem(item.path, item.message, item.hint) for item in bad.problems_of(rule)]
    return Example(_whole_text(bad, cases), tuple(says), _whole_text(good, cases), cases.supposes)


def _whole_text(case: Case, cases: Cases) -> str:
    """The text of a case, after that of the case that it extends."""
    first, _, rest = case.text.partition("\n")
    if not first.startswith("extends:"):
        return case.text or "# nothing more is said\n"
    file = first.removeprefix("extends: ")
    extended = next(other for other in (*cases.broken, *cases.fine) if other.file == file)
    return f"# {file}\n{extended.text}\n# a config that extends it\n{first}\n{rest}"


def test_every_rule_has_cases() -> None:
    assert [name for name in RULES if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", name)] == []
    assert len(RULES) == len(all_rules())
    assert set(RULES) <= set(FILES)


def test_sentences_say_what_must_be_so() -> None:
    """And not what the messages warn of."""
    words = {ERROR: r"\b(must|requires?|is required)\b", WARNING: r"\bshould\b"}
    for rule in all_rules():
        assert re.search(words[rule.severity], rule.summary), f"{rule.id}: {rule.summary}"
        assert not rule.summary.endswith("."), rule.id
        assert not rule.why.endswith("."), rule.id


def test_what_every_case_extends_breaks_nothing() -> None:
    assert _problems(HERE / "base.yaml", TODAY) == []


@pytest.mark.parametrize("version", ["0.0.0", "3.0.0", "1.99.0-rc.1", "major.1.0", "1.minor.0"])
def test_what_nobody_knows_is_told_and_never_a_fault(version: str) -> None:
    version = version.replace("major", "9" * 36).replace("minor", "9" * 36)
    sets = ["windows.release=xp", f"kubernetes.version={version}", f"runtime.containerd.version={version}"]
    wanted = ["kube_proxy=hostprocess", "cni.plugin=calico", "wins.version=0.4.11"]
    gallery = "targets.azure.gallery.version=kubernetes"
    ids = {problem.rule for problem in _problems(HERE / "base.yaml", TODAY, *sets, *wanted, gallery)}
    assert {"windows-release-known", "version-known"} <= ids


def test_kubelets_own_flags_are_those_of_its_start_script() -> None:
    script = (ROLES / "kubernetes" / "files" / "start-kubelet.ps1").read_text()
    assert set(re.findall(r"['\"]--([a-z-]+)[='\"]", script)) == checks.OWN_FLAGS


def test_the_builds_account_and_log_are_those_of_the_templates() -> None:
    for provider, access in table("machines")["access"].items():
        source = (PACKER / provider / "source.pkr.hcl.j2").read_text()
        assert re.findall(r'winrm_username += "(.+)"', source) == [access["build_account"]]
    unattended = (ROLES / "cloudbase-init" / "templates" / "cloudbase-init-unattend.conf.j2").read_text()
    assert re.findall(r"^logfile=(.+)$", unattended, re.MULTILINE) == [first_boot.UNATTENDED_LOG]


@pytest.mark.parametrize("cloud", list(PROVIDERS))
def test_own_tags_are_those_of_the_templates(cloud: str, decide: Callable[..., Decided]) -> None:
    """The names written out there, one for each version that a rendered image has, and those of a run."""
    variables = (PACKER / "variables.pkr.hcl.j2").read_text()
    common = variables.partition("tags = merge(")[2].partition("\n  )")[0]
    of_run = set(re.findall(r"(\w+) = local", variables.partition("builder_tags = ")[2]))
    assert of_run == {RUN_ID, EXPIRES_AT}
    of_cloud = (PACKER / cloud / "source.pkr.hcl.j2").read_text().partition("cloud_tags = ")[2].partition("}")[0]
    written = set(re.findall(r"^ +(\w+) += ", f"{common}\n{of_cloud}", re.MULTILINE))
    optional = set(re.findall(r'\["(imagegen_\w+)"\]', common))
    assert 'in var.image.versions : "${name}_version"' in common
    configs = [HERE.parent / "golden" / f"{name}.yaml" for name in ("maximal", "older-node")]
    plans = [decide(config, one).decision.plan for config in configs for one in PROVIDERS]
    versions = {name for plan in plans for name in plan.image.versions}
    assert written | optional | of_run | {REPORT} == part(cloud, "rules").OWN_TAGS
    assert {f"{name}_version" for name in versions} == COMPONENT_TAGS | OPTION_TAGS
