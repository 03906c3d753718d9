"""Verbs that need no cloud: what they print, where, and with which exit code. Errors are cases of tests/errors."""

from __future__ import annotations

import json
import os
import pkgutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pytest

from imagegen import pipeline
from imagegen.authenticode.certificates import read_pem
from imagegen.authenticode.trust import read_preset_roots
from imagegen.base import contents, errors
from imagegen.base.errors import ConfigError, ExitCode, ImagegenError, Problem
from imagegen.cli import verbs
from imagegen.cli.main import VERBS, Verb, cli, main
from imagegen.cli.messages import coloured
from imagegen.cli.options import parse_labels
from imagegen.cli.output import error_text
from imagegen.fetch.lock import lock_bytes
from imagegen.pipeline import BuildOptions
from imagegen.plan import loading
from imagegen.record.store import LocalStore
from imagegen.rehearsal import rehearse
from tests.unit.record.test_manifest_store import manifest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SHIPPED = Path(__file__).parents[3] / "configs" / "windows-2022-containerd.yaml"


@pytest.fixture
def locked(tmp_path: Path, decide: Callable[..., Any]) -> tuple[Any, Path]:
    """The shipped config's decision for AWS, and a lock file to make it from."""
    decided = decide(SHIPPED, "aws")
    file = tmp_path / "shipped.lock.json"
    file.write_bytes(lock_bytes(decided.lock))
    return decided.decision, file


def test_the_roots_of_presets_are_a_file_of_roots(run: Callable[..., tuple[object, str, str]]) -> None:
    code, out, _ = run("catalog", "preset-roots")
    assert (code, len(read_pem(out.encode()))) == (0, len(read_preset_roots()))


def test_validate_says_what_it_read(run: Callable[..., tuple[object, str, str]]) -> None:
    code, out, err = run("validate", SHIPPED)
    assert (code, out) == (0, f"{SHIPPED}: ok (windows-2022-containerd for aws, azure)\n")
    # On each cloud the one thing of the shipped config that whoever copies it should narrow.
    assert err.startswith(f"{SHIPPED}:37: targets.aws.network.allowed_cidrs[0]: warning: ")
    assert f"{SHIPPED}:41: targets.azure.network: warning: " in err
    assert err.count("\n") == 4


def test_validate_for_machines(run: Callable[..., tuple[object, str, str]]) -> None:
    code, out, _ = run("validate", SHIPPED, "--format", "json")
    assert code == 0
    whole = json.loads(out)
    (told,) = whole["configs"]
    assert [(warning["severity"], warning["rule"], warning["line"]) for warning in told.pop("problems")] == [
        ("warning", "winrm-open-to-everybody", 37),
        ("warning", "winrm-open-to-everybody", 41),
    ]
    assert whole["ok"]
    assert told == {
        "message": "",
        "hint": "",
        "file": str(SHIPPED),
        "ok": True,
        "buildable": True,
        "name": "windows-2022-containerd",
        "targets": ["aws", "azure"],
    }


def test_plan_names_every_resource_and_download(
    run: Callable[..., tuple[object, str, str]], locked: tuple[Any, Path]
) -> None:
    decision, lock = locked
    code, out, _ = run("plan", SHIPPED, "--target", "aws", "--lock", lock)
    assert code == 0
    assert decision.plan.image_id in out
    assert "phase-1, then a restart\n" in out
    for phase in decision.plan.image.phases:
        for resource in phase.resources():
            assert resource.id.partition(":")[2] in out
    for name, artifact in decision.plan.image.artifacts.items():
        assert f"  {name}  {decision.plan.build.downloads[name]}\n    sha256 {artifact.sha256}\n" in f"{out}\n"


def test_plan_for_machines_is_the_plan(run: Callable[..., tuple[object, str, str]], locked: tuple[Any, Path]) -> None:
    decision, lock = locked
    _, out, _ = run("plan", SHIPPED, "--target", "aws", "--lock", lock, "--format", "json")
    assert json.loads(out) == json.loads(json.dumps(decision.plan.as_json()))


def test_render_prints_where_the_tree_is(
    run: Callable[..., tuple[object, str, str]], locked: tuple[Any, Path], tmp_path: Path
) -> None:
    decision, lock = locked
    words = ("render", SHIPPED, "--target", "aws", "--lock", lock, "--out", tmp_path / "out")
    code, out, err = run(*words)
    tree = tmp_path / "out" / "windows-2022-containerd" / decision.plan.short_id / "tree"
    assert (code, out) == (0, f"{tree}\n")
    assert err == f"{SHIPPED}: 2 warnings: run `imagegen validate` to see them\n"
    assert contents.read_folder(tree) == pipeline.render_tree(decision)
    before = {path: path.stat().st_mtime_ns for path in tree.rglob("*")}
    assert run(*words)[0] == 0
    assert {path: path.stat().st_mtime_ns for path in tree.rglob("*")} == before


def test_a_tree_that_packer_may_be_reading_is_not_rendered_over(
    run: Callable[..., tuple[object, str, str]], locked: tuple[Any, Path], tmp_path: Path
) -> None:
    decision, lock = locked
    with pipeline.build_folder(decision.plan, tmp_path).claimed():
        code, out, err = run("render", SHIPPED, "--target", "aws", "--lock", lock, "--out", tmp_path)
    assert (code, out) == (ExitCode.REFUSED, "")
    assert "another run is using" in err


def test_lock_beside_the_config_is_found(
    run: Callable[..., tuple[object, str, str]], locked: tuple[Any, Path], tmp_path: Path
) -> None:
    decision, _ = locked
    (tmp_path / "shipped.yaml").write_bytes(SHIPPED.read_bytes())
    code, out, _ = run("plan", tmp_path / "shipped.yaml", "--target", "aws")
    assert code == 0
    assert decision.plan.image_id in out


def test_lists_of_manifests_are_empty_where_there_are_none(
    run: Callable[..., tuple[object, str, str]], tmp_path: Path
) -> None:
    empty = f"there are no manifests in {tmp_path / 'manifests'}\n"
    assert run("manifest", "list", "--out", tmp_path) == (0, "", empty)
    assert run("manifest", "list", tmp_path, "--format", "json") == (0, "[]\n", empty)


def test_an_empty_list_names_the_newest_rehearsal(run: Callable[..., tuple[object, str, str]], tmp_path: Path) -> None:
    for number, name in enumerate(("newest-aws-x1", "older-aws-x2")):
        folder = tmp_path / "rehearsal" / name / "manifests"
        folder.mkdir(parents=True)
        os.utime(folder, (1000 - number, 1000 - number))
    _, _, err = run("manifest", "list", "--out", tmp_path)
    assert err.endswith(f"hint: the newest rehearsal's: imagegen manifest list {tmp_path}/rehearsal/newest-aws-x1\n")


@pytest.fixture
def mixed_store(tmp_path: Path) -> Path:
    """A folder whose store holds a manifest and a file that is none."""
    LocalStore(tmp_path / "of mine" / "manifests").put(manifest())
    bad = tmp_path / "of mine" / "manifests" / "other" / "aws" / "bad.json"
    bad.parent.mkdir(parents=True)
    bad.write_text("{")
    return tmp_path / "of mine"


def test_a_list_says_whose_rehearsal_failed(run: Callable[..., tuple[object, str, str]], tmp_path: Path) -> None:
    notes: dict[str, Any] = {"rehearsal": {"failed": {"node": ["the cluster has no node"]}}, "other": {"failed": {}}}
    LocalStore(tmp_path / "manifests").put(manifest(notes=notes))
    assert run("manifest", "list", tmp_path)[1].endswith("  failed: rehearsal\n")


@pytest.mark.parametrize("words", [("list",), ("show", "a1a1")], ids=" ".join)
def test_a_bad_file_is_named_after_what_can_be_read(
    words: tuple[str, ...], run: Callable[..., tuple[object, str, str]], mixed_store: Path
) -> None:
    code, out, err = run("manifest", *words, mixed_store)
    assert code == ExitCode.CONFLICT
    assert "a1" * 8 in out
    assert "bad.json" in err


def test_a_manifest_that_is_not_there_may_be_the_bad_one(
    run: Callable[..., tuple[object, str, str]], mixed_store: Path
) -> None:
    assert run("manifest", "show", "b2", mixed_store)[0] == ExitCode.CONFLICT
    (mixed_store / "manifests" / "other" / "aws" / "bad.json").unlink()
    code, out, err = run("manifest", "show", "b2", mixed_store)
    assert (code, out) == (ExitCode.USAGE, "")
    assert f"hint: run `imagegen manifest list '{mixed_store}'` to see them\n" in err


@pytest.mark.parametrize(
    ("status", "verdict"),
    [
        ("changed", "1 changed by the build, all as planned"),
        ("failed", "0 changed by the build, not as planned: a/b:c"),
    ],
)
def test_whether_all_is_as_planned_is_what_the_report_says(
    status: str, verdict: str, run: Callable[..., tuple[object, str, str]], tmp_path: Path
) -> None:
    report = {"resources": [{"id": "a/b:c", "status": status}, {"id": "a/b:d", "status": "ok"}]}
    LocalStore(tmp_path / "manifests").put(manifest(report=report, report_missing=None))
    code, out, _ = run("manifest", "show", "a1", tmp_path)
    assert code == 0
    assert f"  guest      2 resources, {verdict}\n" in out


def test_a_manifest_shows_the_open_folders(run: Callable[..., tuple[object, str, str]], tmp_path: Path) -> None:
    folders = {"C:\\drop": {"exists": True, "open": "all leave files here"}, "C:\\k": {"exists": True, "open": None}}
    resources = [
        {"id": f"a/directory:{path}", "kind": "directory", "status": "ok", "facts": facts}
        for path, facts in folders.items()
    ]
    LocalStore(tmp_path / "manifests").put(manifest(report={"resources": resources}, report_missing=None))
    _, out, _ = run("manifest", "show", "a1", tmp_path)
    assert [line for line in out.splitlines() if line.startswith("  open")] == [
        "  open       C:\\drop: all leave files here"
    ]


def test_version(run: Callable[..., tuple[object, str, str]]) -> None:
    assert run("--version") == (0, "imagegen, version 0.1.0\n", "")


def _verbs(group: click.Group, under: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name, listed in group.commands.items():
        command = listed.load() if isinstance(listed, Verb) else listed
        yield (*under, name), command
        if isinstance(command, click.Group):
            yield from _verbs(command, (*under, name))


ALL_VERBS: dict[tuple[str, ...], click.Command] = {(): cli, **dict(_verbs(cli))}


@pytest.mark.parametrize("verb", ALL_VERBS, ids=" ".join)
def test_every_verb_and_option_explains_itself(
    verb: tuple[str, ...], run: Callable[..., tuple[object, str, str]]
) -> None:
    command = ALL_VERBS[verb]
    code, out, err = run(*verb, "--help")
    assert (code, err) == (0, "")
    assert out.startswith("Usage: imagegen ")
    assert max(len(line) for line in out.splitlines()) <= 100
    assert (command.help or "").strip()
    silent = [item.name for item in command.params if isinstance(item, click.Option) and not (item.help or "").strip()]
    assert silent == []


def test_every_module_of_a_verb_is_a_verb() -> None:
    modules = {module.name for module in pkgutil.iter_modules(verbs.__path__)}
    assert modules == set(VERBS)
    lines = {name: line for group in VERBS.values() for name, line in group.items()}
    assert {(name,) for name in lines} < set(ALL_VERBS)
    assert all(sentence.endswith(".") for sentence in lines.values())


ERRORS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, ImagegenError)]


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_every_error_ends_with_its_code(
    kind: type[ImagegenError], run: Callable[..., tuple[object, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: Path) -> None:
        raise kind("it went wrong", hint="do better", details=["first", "second"])

    monkeypatch.setattr(loading, "load", fails)
    code, out, err = run("validate", SHIPPED)
    assert (code, out) == (int(kind.exit_code), "")
    assert err == "error: it went wrong\n  first\n  second\nhint: do better\n"


def test_exit_codes_tell_errors_apart_and_help_names_them() -> None:
    # Like a failed build, what is unavailable may be tried again.
    codes = [kind.exit_code for kind in ERRORS if kind not in (ImagegenError, errors.UnavailableError)]
    assert len(codes) == len(set(codes)) == 7
    said = " ".join((cli.help or "").split())
    assert [code for code in (*codes, ExitCode.INTERRUPTED) if f"{int(code)} " not in said] == []


@pytest.mark.parametrize("kind", [KeyboardInterrupt, click.exceptions.Abort])
def test_interrupt_is_told_and_ends_with_130(
    kind: type[BaseException], run: Callable[..., tuple[object, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stops(_: Path) -> None:
        raise kind

    monkeypatch.setattr(loading, "load", stops)
    code, out, err = run("validate", SHIPPED)
    assert (code, out, err.strip()) == (130, "", "interrupted")


def test_a_bug_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(_: Path) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(loading, "load", breaks)
    monkeypatch.setattr(sys, "argv", ["imagegen", "validate", str(SHIPPED)])
    with pytest.raises(ZeroDivisionError):
        main()


def test_a_rehearsal_without_its_extra_names_it(
    run: Callable[..., tuple[object, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "imagegen.rehearsal.rehearse", None)
    code, out, err = run("build", SHIPPED, "--target", "aws", "--rehearse")
    assert (code, out) == (3, "")
    assert "which is not installed" in err
    assert "pip install 'imagegen[rehearsal]'" in err


def test_an_unknown_choice_for_a_failed_build_is_told_before_it(run: Callable[..., tuple[object, str, str]]) -> None:
    code, out, err = run("build", SHIPPED, "--target", "aws", "--on-error", "ask")
    assert (code, out) == (2, "")
    assert "'ask' is not one of 'cleanup', 'abort'" in err


@pytest.mark.parametrize("choice", ["cleanup", "abort"])
def test_what_becomes_of_a_failed_build_is_handed_on(
    run: Callable[..., tuple[object, str, str]], monkeypatch: pytest.MonkeyPatch, choice: str
) -> None:
    heard: list[Any] = []

    def builds(_target: object, options: BuildOptions, *_: object) -> None:
        heard.append(options.on_error)
        raise ConfigError("enough")

    def rehearses(*given: Any, **_: object) -> None:  # noqa: ANN401 - as the verb gives it
        heard.append(given[3])
        raise ConfigError("enough")

    monkeypatch.setattr(pipeline, "build", builds)
    monkeypatch.setattr(rehearse, "rehearse_build", rehearses)
    words = ("build", SHIPPED, "--target", "aws", "--on-error", choice)
    assert [run(*words)[0], run(*words, "--rehearse")[0]] == [2, 2]
    assert heard == [choice, ["--on-error", choice]]


def test_validate_tells_machines_what_is_wrong(run: Callable[..., tuple[object, str, str]], tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(SHIPPED.read_text().replace("windows:", "windos:", 1))
    code, out, err = run("validate", file, "--format", "json")
    (told,) = json.loads(out)["configs"]
    assert (code, err, told["ok"]) == (2, "", False)
    assert [(item["path"], item["hint"]) for item in told["problems"]] == [("windos", 'did you mean "windows"?')]


@pytest.mark.parametrize(("target", "code"), [("aws", 0), ("azure", 0), ("gcp", 2)])
def test_validate_takes_a_target(run: Callable[..., tuple[object, str, str]], target: str, code: int) -> None:
    ended, _, err = run("validate", SHIPPED, "--target", target)
    assert (ended, f"no target '{target}'" in err) == (code, code != 0)


def test_problems_are_shown_in_the_order_of_the_file() -> None:
    problems = [Problem("f", 12, "b", "late"), Problem("f", 2, "a", "early", "look"), Problem("a", 0, "", "no line")]
    error = ConfigError("several", problems=problems)
    assert error_text(error) == "error: several\na: no line\nf:2: a: early\n  hint: look\nf:12: b: late"
    assert [problem.line for problem in error.problems] == [0, 2, 12]


UNIMPLEMENTED = """\
extends: base.yaml
provisioner: ansible
allow_eol: true
"""


@pytest.fixture
def awaiting(tmp_path: Path) -> Path:
    """A config with a setting that is not implemented yet, and with a warning."""
    (tmp_path / "base.yaml").write_text(SHIPPED.read_text())
    file = tmp_path / "awaiting.yaml"
    file.write_text(UNIMPLEMENTED)
    return file


def test_validate_says_what_is_not_built_yet(run: Callable[..., tuple[object, str, str]], awaiting: Path) -> None:
    code, out, err = run("validate", awaiting)
    assert code == 0
    assert out == f"{awaiting}: ok, and cannot be built yet (windows-2022-containerd for aws, azure)\n"
    assert f"{awaiting}:2: provisioner: warning: delivery through Ansible is not implemented" in err
    assert f"{awaiting}:3: allow_eol: warning: " in err


def test_plan_refuses_what_is_not_built_yet(run: Callable[..., tuple[object, str, str]], awaiting: Path) -> None:
    for verb in ("plan", "lock", "render", "build", "publish"):
        code, out, err = run(verb, awaiting, "--target", "aws")
        assert (verb, code, out) == (verb, int(ExitCode.REFUSED), "")
        assert "error: " in err
        assert ":2: provisioner: " in err


def test_validate_annotates_a_pull_request(run: Callable[..., tuple[object, str, str]], tmp_path: Path) -> None:
    file = tmp_path / "wrong, %.yaml"
    file.write_text(SHIPPED.read_text().replace("region: us-east-1", "region: us-west-2", 1))
    code, out, _ = run("validate", file, "--format", "github")
    assert code == 2
    place = str(file).replace("%", "%25").replace(",", "%2C")
    warning, line, _ = out.splitlines()
    assert warning.startswith(f"::warning file={place},line=37,title=winrm-open-to-everybody::")
    assert line.startswith(
        f"::error file={place},line=39,title=build-region-published::targets.aws.publish.regions[0]: "
    )
    assert line.endswith("%0Ahint: leave it out")


def test_validate_judges_many(run: Callable[..., tuple[object, str, str]], tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("name: x\n")
    code, out, err = run("validate", wrong, SHIPPED)
    summary = "2 configs: 1 ok, 0 cannot be built yet, 1 wrong; 2 warnings"
    assert (code, out) == (2, f"{SHIPPED}: ok (windows-2022-containerd for aws, azure)\n{summary}\n")
    assert f"error: {wrong}: " in err
    code, out, _ = run("validate", wrong, SHIPPED, "--format", "json")
    told = json.loads(out)
    assert (code, told["ok"], [item["ok"] for item in told["configs"]]) == (2, False, [False, True])


def test_set_wins_and_is_recorded(run: Callable[..., tuple[object, str, str]], locked: tuple[Any, Path]) -> None:
    decision, lock = locked
    words = ("plan", SHIPPED, "--target", "aws", "--lock", lock, "--format", "json", "--set", "timeouts.winrm=90")
    code, out, _ = run(*words)
    plan = json.loads(out)
    assert (code, plan["image_id"], plan["build"]["timeouts_min"]["winrm"]) == (0, decision.plan.image_id, 90)
    assert plan["build"]["stated"]["set"] == {"timeouts.winrm": 90}
    code, _, err = run(*words[:-1], "timeouts.winrn=90")
    assert code == 2
    assert 'did you mean "winrm"?' in err


@pytest.mark.parametrize("place", [".", "x" * 300, "shipped.yaml/below"])
def test_a_place_that_cannot_be_is_told(
    place: str, run: Callable[..., tuple[object, str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shipped.yaml").write_bytes(SHIPPED.read_bytes())
    for words in (("plan", "shipped.yaml", "--target", "aws", "--lock", place), ("validate", place)):
        code, out, err = run(*words)
        assert (words, code, out) == (words, 2, "")
        assert "error: " in err.lower()


def test_the_day_is_said_by_the_environment(
    run: Callable[..., tuple[object, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "4102444800")
    code, _, err = run("validate", SHIPPED)
    assert code == 2
    assert "[support-ended]" in err
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "tomorrow")
    assert run("validate", SHIPPED)[0] == 2


@pytest.mark.parametrize(
    ("words", "labels"),
    [
        ([], {}),
        (["a=1"], {"a": "1"}),
        (["rehearsal=true", "build_no=12.3-x"], {"rehearsal": "true", "build_no": "12.3-x"}),
        (["a=1", "a=2"], {"a": "2"}),
        (["a" * 40 + "=" + "b" * 200], {"a" * 40: "b" * 200}),
    ],
)
def test_labels(words: list[str], labels: dict[str, str]) -> None:
    assert parse_labels(words) == labels


@pytest.mark.parametrize(
    "word",
    [
        "",
        "a",
        "=",
        "=1",
        "a=",
        "A=1",
        "1=1",
        "a=b c",
        "a=b=c",
        "a=\n",
        "a-b=1",
        "a" * 41 + "=1",
        "a=" + "b" * 201,
        "ä=1",
    ],
)
def test_what_no_cloud_takes_as_a_tag_is_no_label(word: str) -> None:
    with pytest.raises(ConfigError, match="is not a label"):
        parse_labels([word])


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("error: x", "\x1b[31m\x1b[1merror:\x1b[0m x"),
        ("  hint: y", "  \x1b[36m\x1b[1mhint:\x1b[0m y"),
        ("a.yaml:3: k: warning: z", "a.yaml:3: k: \x1b[33m\x1b[1mwarning:\x1b[0m z"),
        ("a.yaml:3: k: no error:here", "a.yaml:3: k: no error:here"),
    ],
)
def test_a_terminal_shows_errors_in_colour(text: str, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert coloured(text) == shown
    monkeypatch.setenv("NO_COLOR", "1")
    assert coloured(text) == text
