"""The verbs that teach: what they print, what they write and what they refuse."""

from __future__ import annotations

import json
import types
from pathlib import Path
from typing import Any

import click
import click.testing
import pytest

from imagegen.base.errors import ConfigError
from imagegen.catalog import listing
from imagegen.catalog.facts import table
from imagegen.cli.options import today
from imagegen.cli.verbs import facts, init, plans
from imagegen.config.schema import FILE_NAME, MODELINE
from imagegen.plan import loading
from imagegen.rules import unimplemented
from imagegen.rules.judge import all_rules
from imagegen.rules.unimplemented import features

CONFIGS = Path(__file__).parents[3] / "configs"
AWS = ("--target", "aws", "--region", "us-east-1", "--allow-cidr", "198.51.100.7/32")
AZURE = (
    *("--target", "azure", "--location", "eastus2", "--allow-cidr", "198.51.100.7/32"),
    *("--gallery-resource-group", "images", "--gallery", "images"),
)


def run(command: click.Command, *words: object, answers: str = "") -> click.testing.Result:
    return click.testing.CliRunner().invoke(
        command, [str(word) for word in words], input=answers, catch_exceptions=False, standalone_mode=False
    )


@pytest.fixture(autouse=True)
def _fixed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A folder of its own, and the day on which this was written: support ends as time goes by."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1795000000")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("words", "clouds", "file"),
    [
        (AWS, ["aws"], "windows-2022-containerd.yaml"),
        ((*AZURE, "--release", "2025", "--name", "my-image"), ["azure"], "my-image.yaml"),
        (("new/first.yaml", *AWS, *AZURE[:4], *AZURE[6:]), ["aws", "azure"], "new/first.yaml"),
    ],
)
def test_init_writes_what_validates(words: tuple[str, ...], clouds: list[str], file: str) -> None:
    Path("new").mkdir()
    result = run(init.init, *words, "--no-schema")
    assert result.stdout == f"wrote {file}, which validates\nnext: imagegen lock {file}\n"
    loaded = loading.load(loading.ConfigRequest(Path(file), today()))
    assert (list(loaded.config.targets.named()), loaded.unimplemented) == (clouds, ())
    assert loaded.config.name == Path(file).stem
    assert MODELINE not in Path(file).read_text()


def test_init_writes_the_schema_beside() -> None:
    Path("new").mkdir()
    result = run(init.init, "new/first.yaml", *AWS)
    assert result.stdout.splitlines() == [
        "wrote new/first.yaml, which validates",
        f"wrote new/{FILE_NAME}, which editors use to complete and check it",
        "next: imagegen lock new/first.yaml",
    ]
    assert Path("new/first.yaml").read_text().startswith(f"{MODELINE}\n")
    assert Path("new", FILE_NAME).read_bytes() == (CONFIGS / FILE_NAME).read_bytes()


def test_init_keeps_the_schema_that_lies_beside() -> None:
    Path(FILE_NAME).write_text("{}")
    assert FILE_NAME not in run(init.init, "first.yaml", *AWS).stdout
    assert Path("first.yaml").read_text().startswith(MODELINE)
    assert Path(FILE_NAME).read_text() == "{}"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "missing: --target, --allow-cidr"),
        (("--target", "azure"), "missing: --allow-cidr, --location, --gallery-resource-group, --gallery"),
        ((*AWS, "--release", "2012"), '--release: unknown value "2012"'),
        ((*AWS, "--release", "1803"), "--release: 1803 cannot be built: Windows Server 1803 went out of support"),
        ((*AWS, "--kubernetes", "1.36"), '--kubernetes: "1.36" is not a valid version'),
        ((*AWS, "--allow-cidr", "everybody"), '--allow-cidr: "everybody" is not a valid network'),
        (("missing/first.yaml", *AWS), "the folder missing does not exist"),
        (("first.txt", *AWS), "first.txt does not end with .yaml"),
        (
            (*AWS, "--allow-cidr", "10.0.0.1/8"),
            "--allow-cidr: 10.0.0.1/8 is not a network: it is an address within",
        ),
        ((*AWS, "--location", "eastus2"), "--location is for azure, which is no target"),
        ((*AWS, "--release", "2025", "--kubernetes", "1.20.1"), "windows-2025-containerd.yaml is not written"),
    ],
)
def test_init_refuses_and_writes_nothing(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        run(init.init, *words)
    assert caught.value.message.startswith(message)
    assert all(problem.file == "windows-2025-containerd.yaml" for problem in caught.value.problems)
    assert not list(Path().iterdir())


def test_init_replaces_only_by_force() -> None:
    Path("mine.yaml").write_text("mine")
    with pytest.raises(ConfigError, match="exists already"):
        run(init.init, "mine.yaml", *AWS)
    assert Path("mine.yaml").read_text() == "mine"
    run(init.init, "mine.yaml", *AWS, "--force", "--no-schema")
    assert "name: mine\n" in Path("mine.yaml").read_text()


@pytest.fixture
def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = types.SimpleNamespace(isatty=lambda: True)
    monkeypatch.setattr(init, "sys", types.SimpleNamespace(stdin=terminal))


@pytest.mark.usefixtures("_terminal")
@pytest.mark.parametrize("words", [("mine.yaml",), ("--name", "mine")])
def test_init_asks_nothing_where_the_file_exists(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.yaml").write_text("mine")
    with pytest.raises(ConfigError, match="exists already"):
        run(init.init, *words)
    assert capsys.readouterr().err == ""


def test_init_says_at_once_that_its_own_name_is_taken() -> None:
    Path("windows-2022-containerd.yaml").write_text("mine")
    with pytest.raises(ConfigError, match="exists already") as caught:
        run(init.init, *AWS)
    assert caught.value.hint == "choose another name, or give --force to replace it"


ENDED = (*AWS, "--kubernetes", "1.34.9", "--name", "ended", "--no-schema")


def test_init_says_how_to_build_what_is_no_longer_supported() -> None:
    with pytest.raises(ConfigError, match="not written") as caught:
        run(init.init, *ENDED)
    assert [problem.rule for problem in caught.value.problems] == ["support-ended"]
    assert caught.value.hint == "give --allow-eol to build what is no longer supported; the manifest records it"
    result = run(init.init, *ENDED, "--allow-eol")
    assert "[support-ended-allowed]" in result.stderr
    assert loading.load(loading.ConfigRequest(Path("ended.yaml"), today())).config.allow_eol


def test_init_proposes_what_was_tested_on_an_ended_release() -> None:
    run(init.init, *AZURE, "--release", "annual", "--name", "ended", "--allow-eol", "--no-schema")
    loaded = loading.load(loading.ConfigRequest(Path("ended.yaml"), today()))
    assert {problem.rule for problem in loaded.warnings} == {"support-ended-allowed"}


@pytest.mark.usefixtures("_terminal")
@pytest.mark.parametrize("wanted", [True, False])
def test_init_asks_whether_to_build_what_is_no_longer_supported(wanted: bool) -> None:
    answers = ["", "", "", "y" if wanted else "n", ""]
    if wanted:
        result = run(init.init, *ENDED, answers="\n".join(answers))
        assert "kubernetes.version: support of Kubernetes 1.34 ended on" in result.stderr
        assert "\nallow_eol: true\n" in Path("ended.yaml").read_text()
    else:
        with pytest.raises(ConfigError, match="not written"):
            run(init.init, *ENDED, answers="\n".join(answers))
        assert not list(Path().iterdir())


@pytest.mark.usefixtures("_terminal")
def test_init_asks_on_a_terminal_until_the_answer_is_right() -> None:
    Path("taken.yaml").write_text("mine")
    answers = [
        "1803",
        "2022",
        "No Name",
        "taken",
        "asked",
        "1.36",
        "1.36.4",
        "",
        "gcp",
        "aws",
        "all",
        "198.51.100.7/32",
        "us-east-1",
        "acr",
        "ssh ecr",
    ]
    result = run(init.init, "--no-schema", answers="\n".join([*answers, ""]))
    assert result.stdout.endswith("next: imagegen lock asked.yaml\n")
    assert result.stderr.count("Error: ") == 7
    text = Path("asked.yaml").read_text()
    assert "region: us-east-1\n" in text
    assert "\nssh: {}\n\ncredential_providers:\n" in text


def test_init_adds_what_is_named() -> None:
    """What is of two clouds is in one list."""
    named = ("ssh", "ecr", "acr", "gmsa")
    run(
        init.init,
        "all.yaml",
        *AWS,
        *AZURE[:4],
        *AZURE[6:],
        *(word for name in named for word in ("--with", name)),
        "--no-schema",
    )
    config = loading.load(loading.ConfigRequest(Path("all.yaml"), today())).config
    assert (config.ssh is None, config.gmsa is None) == (False, False)
    names = [provider.name for provider in config.credential_providers]
    assert names == ["ecr-credential-provider", "acr-credential-provider"]
    minor = config.kubernetes.version.rpartition(".")[0]
    assert all(f"/v{minor}.0/" in provider.url for provider in config.credential_providers)


def test_explain_prints_and_narrows() -> None:
    config = CONFIGS / "reference.yaml"
    result = run(plans.explain, config, "kubernetes", "--set", "kubernetes.version=1.35.1", "--target", "aws")
    assert "windows-2022-containerd for aws\n" in result.stdout
    assert "--set kubernetes.version" in result.stdout
    assert "targets." not in result.stdout
    read = json.loads(run(plans.explain, config, "--format", "json").stdout)
    always = {name for name, step in loading.load_steps().items() if step.meta.when is None}
    assert {step["name"] for step in read["steps"]} == always | {"containerd"}
    with pytest.raises(ConfigError, match="no such target"):
        run(plans.explain, config, "--target", "gcp")


def test_explain_says_what_is_not_built_yet() -> None:
    result = run(plans.explain, CONFIGS / "reference.yaml", "windows", "--set", "provisioner=ansible")
    assert result.stderr == f"{CONFIGS / 'reference.yaml'}: 1 warning: run `imagegen validate` to see them\n"


def test_schema_and_reference_are_the_shipped_ones() -> None:
    assert run(facts.schema).stdout == (CONFIGS / FILE_NAME).read_text(encoding="utf-8")
    assert run(facts.schema, "--format", "yaml").stdout == (CONFIGS / "reference.yaml").read_text(encoding="utf-8")


def test_catalog_lists_its_tables() -> None:
    read = json.loads(run(facts.catalog, "--format", "json").stdout)
    assert set(read) == {*listing.tables(), "overrides", "preset-roots", "faults"}
    text = run(facts.catalog).stdout
    assert all(f"\n{name} " in f"\n{text}" for name in read)


def test_catalog_shows_a_table() -> None:
    assert run(facts.catalog, "containerd").stdout.splitlines() == listing.describe("containerd")
    assert json.loads(run(facts.catalog, "containerd", "--format", "json").stdout) == table("containerd")


def test_overrides_are_all_that_a_config_takes() -> None:
    read = json.loads(run(facts.catalog, "overrides", "--format", "json").stdout)
    assert list(read) == loading.override_names()
    replaced = {name: [item["artifact"] for item in items] for name, items in read.items()}
    declared = [item for step in loading.load_steps().values() for item in step.meta.artifacts.items()]
    artifacts = [(name, artifact) for artifact, meta in declared for name in meta.overrides]
    assert {(name, artifact) for name, items in replaced.items() for artifact in items} == {*artifacts}
    assert sum(map(len, replaced.values())) == len(artifacts)
    text = run(facts.catalog, "overrides").stdout
    for name, items in read.items():
        assert f"{name}: " in text
        assert all(item["address"] in text for item in items)


def test_rules_lists_all_and_shows_one() -> None:
    read = json.loads(run(facts.rules, "--format", "json").stdout)
    assert [item["id"] for item in read] == [*(rule.id for rule in all_rules()), *features()]
    text = run(facts.rules).stdout
    assert all(item["id"] in text for item in read)
    assert max(map(len, text.splitlines())) <= 100


HEALTH = """\
kube-proxy-health-without-kube-proxy (error)
kube_proxy_health_checks requires kube-proxy.

Why: nothing would answer at the open ports: kube_proxy is none

This breaks it:

    kube_proxy: none
    kube_proxy_health_checks: true

  kube_proxy_health_checks
    hint: remove it, or write how kube-proxy runs

This does not:

    kube_proxy: hostprocess
    kube_proxy_health_checks: true
"""


def test_a_rule_is_explained_by_an_example() -> None:
    name = "kube-proxy-health-without-kube-proxy"
    assert run(facts.rules, name).stdout == HEALTH
    (read,) = json.loads(run(facts.rules, name, "--format", "json").stdout)
    assert (read["severity"], read["why"]) == ("error", None)
    assert [said["path"] for said in read["example"]["says"]] == ["kube_proxy_health_checks"]
    assert read["example"]["fine"] == "kube_proxy: hostprocess\nkube_proxy_health_checks: true\n"


def test_a_rule_says_its_reason_and_what_an_example_supposes() -> None:
    told = run(facts.rules, "support-ends-soon").stdout
    assert "\nWhy: nodes of this image may run longer than the support" in told
    assert "\nThis breaks it (if today is 2027-02-28):\n" in told
    assert "\n  kubernetes.version: support of Kubernetes 1.35 ends on 2027-02-28\n" in told


def test_what_is_not_built_yet_is_explained() -> None:
    told = run(facts.rules, "ansible").stdout
    assert told.startswith("ansible (not implemented yet)\n")
    assert "\n    provisioner\n    ansible\n" in told
    listed = run(facts.rules, unimplemented.RULE).stdout
    assert all(f"\n{name} " in listed for name in features())
    assert all_rules()[0].id not in listed


def test_every_rule_can_be_shown() -> None:
    for rule in all_rules():
        lines = list(facts.rule_lines(rule, 80))
        assert [line for line in lines if len(line) > 80 and not line.startswith("    ")] == [], rule.id
        told = " ".join(lines)
        assert told.startswith(f"{rule.id} ({rule.severity}) {rule.summary}.  Why: "), rule.id
        assert "  This breaks it" in told, rule.id
        assert "  This does not:" in told, rule.id


def test_narrow_terminals_get_narrow_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert max(map(len, run(facts.rules).stdout.splitlines())) <= 80
    assert max(map(len, run(facts.catalog).stdout.splitlines())) <= 80


@pytest.mark.parametrize(
    ("command", "name", "hint"),
    [
        (facts.catalog, "kubernets", 'did you mean "kubernetes"?'),
        (facts.catalog, "zzz", "`imagegen catalog` lists them"),
        (facts.rules, "windows-release-knwon", 'did you mean "windows-release-known"?'),
        (facts.rules, "zzz", "`imagegen rules` lists them"),
    ],
)
def test_unknown_names_have_a_hint(command: click.Command, name: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        run(command, name)
    assert caught.value.hint == hint


@pytest.mark.parametrize("command", [init.init, plans.explain, facts.schema, facts.catalog, facts.rules])
def test_help_has_an_example(command: Any) -> None:  # noqa: ANN401 - click's own type of a command
    assert f"  imagegen {command.name} " in run(command, "--help").stdout
