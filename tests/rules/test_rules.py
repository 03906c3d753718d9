"""Each rule with configs that break it, and the nearest ones that do not. To update what is said: make golden.

A folder is a rule's id. It holds `*.broken.yaml`, `*.fine.yaml` and `expected.txt`; `today.txt` where the day matters,
and `catalogue.yaml` with facts that no row has today.
"""

from __future__ import annotations

import datetime
import functools
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from imagegen.base.contents import PACKER, ROLES, SHIPPED
from imagegen.base.errors import ERROR, WARNING
from imagegen.catalog.facts import table
from imagegen.config.load import read_config
from imagegen.config.own_files import read_own_files
from imagegen.config.yaml import read_yaml
from imagegen.providers.registry import PROVIDERS, part
from imagegen.providers.tags import COMPONENT_TAGS, EXPIRES_AT, OPTION_TAGS, REPORT, RUN_ID
from imagegen.rules import examples, first_boot, nodes
from imagegen.rules.judge import all_rules, broken_rules
from imagegen.rules.rule import RuleInput
from imagegen.settle.spec import settle_targets
from imagegen.steps.model import load_steps, with_own_steps
from tests.golden_files import compare_golden
from tests.rules.making_examples import Case, example_text, make_example

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from imagegen.base.errors import Problem
    from imagegen.rules.rule import Rule
    from tests.conftest import Decided

HERE = Path(__file__).parent
TODAY = datetime.date(2026, 11, 18)

# Rules that no case of a rule can spare: what is old enough for the one is too old for the other.
ALSO: dict[str, set[str]] = {
    "allow-eol-idle": {"support-ended-allowed"},
    "aws-imds-tokens": {"metadata-service-of-cloud"},
    "bootstrap-token-in-log": {"user-data-plugin"},
    "cni-windows-untested": {"windows-kubernetes-untested"},
    "containerd-knows-setting": {"support-ended-allowed", "containerd-kubernetes-untested"},
    "containerd-kubernetes": {"support-ended", "kubernetes-newer-than-catalogue"},
    "containerd-kubernetes-untested": {"support-ended-allowed"},
    "containerd-settings-of-imagegen": {"support-ended"},
    "containerd-settings-schema": {"support-ended"},
    "credential-providers-enabled": {"support-ended-allowed"},
    "credential-providers-kubernetes": {"support-ended-allowed"},
    "csi-proxy-beside-host-process": {"support-ended-allowed"},
    "csi-proxy-known": {"csi-proxy-beside-host-process"},
    "csi-proxy-kubernetes": {"support-ended-allowed"},
    "cni-dockershim": {
        *("support-ended-allowed", "docker-sandbox-image", "cni-windows-untested", "kube-proxy-by-host-process"),
    },
    "cni-api-version": {"support-ended-allowed", "docker-sandbox-image"},
    "docker-api": {"support-ended-allowed", "docker-sandbox-image"},
    "docker-api-lowered": {"support-ended-allowed", "docker-sandbox-image"},
    "docker-needs-cri-dockerd": {"support-ended", "docker-sandbox-image"},
    "docker-sandbox-image": {"support-ended-allowed"},
    "feature-gate-known": {"support-ended-allowed"},
    "feature-gate-needs": {"support-ended-allowed"},
    "file-override-idle": {"support-ended-allowed"},
    "first-boot-user": {"first-boot-user-of-cloud"},
    "host-network-is-dockers": {"support-ended", "docker-sandbox-image"},
    "hyper-v-size": {"azure-size-premium"},
    "hyper-v-isolation-runtime": {"support-ended-allowed", "docker-sandbox-image"},
    "registry-credentials-kubernetes": {"support-ended-allowed", "docker-sandbox-image"},
    "no-device-name": {"first-boot-user-of-cloud"},
    "host-process-kubernetes": {"support-ended", "kube-proxy-by-host-process"},
    "host-process-runtime": {"support-ended", "kube-proxy-by-host-process"},
    "kube-proxy-by-host-process": {"support-ended-allowed"},
    "kubelet-flag-known": {"support-ended-allowed"},
    "mirror-idle": {"csi-proxy-beside-host-process"},
    "overlay-on-release": {"windows-release-refused"},
    "pool-name-scale-set": {"pool-name-aks"},
    "support-ended": {"support-ended-allowed", "support-ends-soon", "windows-kubernetes-untested"},
    "windows-edition": {"support-ended", "windows-kubernetes-untested"},
    "windows-kubernetes-refused": {"support-ended"},
    "windows-kubernetes-untested": {"kubernetes-newer-than-catalogue"},
    "windows-offered": {"support-ended", "windows-kubernetes-untested"},
    "wins-where-host-process-is-missing": {"support-ended", "kubernetes-known"},
}


@functools.cache
def _steps() -> dict[str, Any]:
    return load_steps(SHIPPED.step_roots)


def _problems(file: Path, today: datetime.date, *sets: str) -> list[Problem]:
    read = read_config(file, sets, overrides=lambda _: [], steps=lambda _: [])
    assert read.config is not None
    # That the names of overrides are known is not for the rules to say.
    assert not [problem for problem in read.problems if "unknown override" not in problem.message]
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


def _judged(rule: Rule, folder: Path, today: datetime.date) -> Iterator[Case]:
    """Each case, judged to break this rule or not, and no other."""
    for file in sorted(folder.glob("*.*.yaml")):
        problems = _problems(file, today)
        ids = {problem.rule for problem in problems}
        assert (rule.id in ids) == file.name.endswith(".broken.yaml"), f"{file.name}: {ids}"
        assert ids - {rule.id} <= ALSO.get(rule.id, set()), file.name
        for problem in problems:
            assert problem.message
            assert problem.hint
            assert problem.hint not in problem.message
            assert problem.severity in (ERROR, WARNING)
        yield Case(file, problems)


def _said(case: Case) -> str:
    said = "\n".join([f"# {case.file.name}", *map(str, case.problems)])
    return said.replace(f"{case.file.parent}{os.sep}", "").replace(f"{HERE}{os.sep}", "../")


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.id)
def test_rule_breaks_where_it_should_and_nowhere_else(rule: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = HERE / rule.id
    assert list(folder.glob("*.broken.yaml"))
    assert list(folder.glob("*.fine.yaml"))
    today, supposes, facts = TODAY, "", folder / "catalogue.yaml"
    if (folder / "today.txt").exists():
        today = datetime.date.fromisoformat((folder / "today.txt").read_text().strip())
        supposes = f"today is {today}"
    if facts.exists():
        for name, rows in read_yaml(facts).data.items():
            _lay_over(table(name), rows, monkeypatch)
    cases = list(_judged(rule, folder, today))
    said = "\n".join(map(_said, cases)) + "\n"
    monkeypatch.undo()
    if facts.exists() and not supposes:
        now = [case for case in cases if rule.id in _ids(case.file, today)]
        supposes = "" if now else "the catalogue says so"
        cases = [*now, *(case for case in cases if not case.is_broken)] if now else cases
    example = make_example(rule.id, cases, supposes)
    compare_golden({folder / "expected.txt": said, examples.example_file(rule): example_text(example)})
    assert examples.example_of(rule) == example


def _ids(file: Path, today: datetime.date) -> set[str]:
    return {problem.rule for problem in _problems(file, today)}


def test_rules_and_folders_are_the_same() -> None:
    ids = [rule.id for rule in all_rules()]
    assert len(ids) == len(set(ids))
    assert [name for name in ids if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", name)] == []
    assert sorted(path.name for path in HERE.iterdir() if path.is_dir() and path.name != "__pycache__") == sorted(ids)
    files = {examples.example_file(rule) for rule in all_rules()}
    assert {file for folder in {file.parent for file in files} for file in folder.iterdir()} == files


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
    assert {"windows-release-known", "containerd-known"} <= ids


def test_kubelets_own_flags_are_those_of_its_start_script() -> None:
    script = (ROLES / "kubernetes" / "files" / "start-kubelet.ps1").read_text()
    assert set(re.findall(r"['\"]--([a-z-]+)[='\"]", script)) == nodes.OWN_FLAGS


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
