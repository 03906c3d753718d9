"""What whoever writes a config chooses (names of files, keys, values) never prints more than its own part of a line."""

from __future__ import annotations

import io
import json
import os
import re
import unicodedata
from typing import TYPE_CHECKING

import pytest

from imagegen.base.console import Console
from imagegen.base.errors import BuildError, Problem
from imagegen.base.lines import joined, one_line
from imagegen.cli.output import error_text

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Run = Callable[..., tuple[object, str, str]]

FORGED = "::error::FORGED"
# What runners look for anywhere in a line: GitHub's former form, Azure Pipelines', TeamCity's.
ANYWHERE = "##[error]FORGED ##vso[task.complete]FORGED ##VSO[task.complete]FORGED ##teamcity[buildStop]FORGED"
HOSTILE = f"a\n{FORGED}\r{FORGED}\u2028\x1b[31m\x9b1m\u202e{ANYWHERE}"
# In YAML, where what cannot be seen is refused unless it is a newline or a tab.
NAMED = f"a\n{FORGED}\n {ANYWHERE}"
WRITTEN = json.dumps(NAMED)
BASE = """\
name: hostile
windows: {release: "2022"}
kubernetes: {version: "1.36.4"}
runtime: {containerd: {version: "2.3.4"}}
targets: {aws: {region: us-east-1, network: {allowed_cidrs: [192.0.2.0/24]}}}
"""
CONFIGS = {
    "a key": f"{BASE}{WRITTEN}: 1\n",
    "a key within": f"{BASE}overrides: {{{WRITTEN}: https://a.example/}}\n",
    "a key twice": f"{BASE}{WRITTEN}: 1\n{WRITTEN}: 1\n",
    "a value": BASE.replace("name: hostile", f"name: {WRITTEN}"),
    "a value of a choice": f"{BASE}kube_proxy: {WRITTEN}\n",
    "a tag": BASE.replace("region:", f"tags: {{team: {WRITTEN}}}, region:"),
    "extends": f"extends: {WRITTEN}\n{BASE}",
    "extends an absolute path": f"extends: {json.dumps('/' + NAMED)}\n{BASE}",
    "extends another repository": f"extends: {json.dumps('../../../' + NAMED)}\n{BASE}",
    "a yaml tag": f"{BASE}a: !<{FORGED}> b\n",
}


@pytest.fixture(autouse=True)
def _own_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def assert_harmless(text: str) -> None:
    for line in text.split("\n"):
        assert not line.lstrip().startswith("::error::"), line
        assert not re.search(r"##(vso|teamcity)?\[", line, re.IGNORECASE)
        assert not [char for char in line if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")], line


@pytest.mark.parametrize("form", ["text", "github", "json"])
def test_no_config_prints_a_line_of_its_own(form: str, run: Run, tmp_path: Path) -> None:
    for case, text in CONFIGS.items():
        (tmp_path / f"{case}.yaml").write_text(text)
    files = [f"{case}.yaml" for case in CONFIGS]
    code, out, err = run("validate", *files, "--format", form)
    assert code == 2
    assert (out + err).count("FORGED") >= len(CONFIGS)
    assert_harmless(out + err)


@pytest.mark.parametrize("form", ["text", "github", "json"])
def test_no_name_of_a_file_does(form: str, run: Run, tmp_path: Path) -> None:
    names = [HOSTILE, f"{FORGED}.yaml", f" {FORGED}.yaml"]
    for text, expected in ((BASE, 0), (f"{BASE}a: 1\n", 2)):
        for name in names:
            (tmp_path / name).write_text(text)
        code, out, err = run("validate", *names, "--format", form)
        # A config without a problem gets no annotation.
        assert (code, "FORGED" in out + err) == (expected, expected == 2 or form != "github")
        assert_harmless(out + err)


@pytest.mark.parametrize(
    "words",
    [
        ["validate", "config.yaml", "--set", f"{NAMED}=1"],
        ["validate", "config.yaml", "--set", f"name={NAMED}"],
        ["validate", "config.yaml", "--target", HOSTILE],
        ["validate", "config.yaml", "--format", HOSTILE],
        ["validate", "config.yaml", f"--{HOSTILE}"],
        [FORGED],
        ["explain", "config.yaml", HOSTILE],
        ["lock", "config.yaml", "--label", f"{HOSTILE}=1"],
        ["manifest", "show", HOSTILE],
        ["rules", HOSTILE],
    ],
    ids=" ".join,
)
def test_no_argument_does(words: list[str], run: Run, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(BASE)
    code, out, err = run(*words)
    assert code == 2
    assert "FORGED" in out + err
    assert_harmless(out + err)


def test_an_error_is_as_many_lines_as_it_has_parts() -> None:
    problem = Problem(HOSTILE, 1, HOSTILE, HOSTILE, HOSTILE, rule=HOSTILE)
    text = error_text(BuildError(HOSTILE, problems=[problem], details=[HOSTILE], hint="run\n  one\n  two"))
    assert len(text.split("\n")) == len(["message", "problem", "its hint", "detail", "run", "one", "two"])
    assert_harmless(text)


@pytest.mark.parametrize("plain", [True, False])
def test_a_console_prints_a_line_a_call(plain: bool) -> None:
    output = io.StringIO()
    console = Console(output, plain=plain, width=1000)
    console.say(HOSTILE)
    console.say(FORGED)
    console.warn(HOSTILE)
    assert output.getvalue().count("\n") == len(["say", "say", "warn"])
    assert_harmless(output.getvalue())


def test_what_can_be_seen_stays_as_it_is() -> None:
    for text in (
        "C:\\new\\x1b",
        "a:b::c",
        "[bold] # ## [x] #vso[x]",
        "Grüße\tan 漢字 ✓",
        "--- a",
        "section_start:1:a",
        "",
    ):
        assert one_line(text) == text
    assert joined(["a\nb", "c"]) == "a\\nb\nc"


def test_a_command_of_a_runner_is_shown_as_text() -> None:
    assert one_line("##vso[task.complete]") == r"##vso\x5btask.complete]"
    assert one_line("##[group]##teamcity[x]") == r"##\x5bgroup]##teamcity\x5bx]"
    # GitLab and Travis ask for a carriage return and an escape character behind theirs.
    assert one_line("section_start:1:a\r\x1b[0K") == r"section_start:1:a\x0d\x1b[0K".replace(r"\x0d", r"\r")


def test_the_environment_prints_no_line_of_its_own(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(BASE)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", f"1\nFORGED\n{FORGED}")
    code, out, err = run("validate", "config.yaml")
    assert (code, out) == (2, "")
    assert [line for line in err.splitlines() if line.startswith("FORGED")] == []
    shown = rf"SOURCE_DATE_EPOCH=1\nFORGED\n{FORGED}"
    assert err.splitlines()[-1] == f"error: {shown} is not a number of seconds since 1970"


@pytest.mark.parametrize("words", [["--a\nFORGED"], ["a\nFORGED"], ["--format", "a\nFORGED", "config.yaml"]], ids=str)
def test_what_click_repeats_has_no_line_of_its_own(words: list[str], run: Run) -> None:
    code, _, err = run(*(["validate"] if words[0] != "a\nFORGED" else []), *words)
    assert code == 2
    assert [line for line in err.splitlines() if line.startswith("FORGED")] == []
    assert err.splitlines()[-1].startswith("error: ")


def test_a_name_that_is_no_text_is_refused_before_anything_is_done(run: Run, tmp_path: Path) -> None:
    file = os.fsdecode(os.fsencode(tmp_path) + b"/config-\xff.yaml")
    with open(file, "w") as stream:  # noqa: PTH123 - as the shell gives it
        stream.write(BASE)
    for verb in ("validate", "lock", "plan", "build", "init"):
        code, out, err = run(verb, file)
        assert (code, out) == (2, "")
        hint = "rename the file"
        # Where work may take long, each line says when it was.
        said = re.sub(r"(?m)^\d\d:\d\d:\d\dZ ", "", err)
        assert (said == err) == (verb not in ("lock", "build"))
        assert said == f"error: the name {tmp_path}/config-\\xff.yaml is not UTF-8\nhint: {hint}\n"
