"""How a command says what is wrong: in colour on a terminal, with the time of day in a log."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

import pytest

from imagegen import pipeline
from imagegen.base.console import Console
from imagegen.base.errors import BuildError, ExitCode
from imagegen.cli import arguments
from imagegen.fetch import locking
from tests.conftest import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Run = Callable[..., tuple[object, str, str]]

SHIPPED = REPOSITORY / "configs" / "windows-2022-containerd.yaml"
ERROR = "\x1b[31m\x1b[1merror:\x1b[0m "
WARNING = "\x1b[33m\x1b[1mwarning:\x1b[0m "
HINT = "\x1b[36m\x1b[1mhint:\x1b[0m "
STAMPED = re.compile(r"\d\d:\d\d:\d\dZ ")
# What the starter and the shipped configs are warned of.
INIT = ("init", "--target", "aws", "--region", "us-east-1", "--allow-cidr", "0.0.0.0/0")


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """click asks what lies below pytest's standard error whether it is one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr("click.utils.should_strip_ansi", lambda *_: False)


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (("plan", SHIPPED, "--target", "nowhere"), [ERROR]),
        (("plan", SHIPPED, "--target", "aws"), [ERROR, HINT]),
        (("plan", SHIPPED, "--taget", "aws"), [f"\n{ERROR}No such option"]),
        (("pln",), [f"\n{ERROR}No such command"]),
        (("validate", "nothing.yaml"), [ERROR]),
        (("validate", SHIPPED), [f"allowed_cidrs[0]: {WARNING}", f"  {HINT}"]),
        (INIT, [f"allowed_cidrs[0]: {WARNING}", f"  {HINT}"]),
    ],
    ids=lambda words: " ".join(map(str, words[:3])) if isinstance(words, tuple) else None,
)
def test_what_is_wrong_stands_out_on_a_terminal(
    words: tuple[object, ...], shown: list[str], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    _, _, err = run(*words)
    assert [text for text in shown if text not in err] == [], err
    assert not STAMPED.search(err)


def _fails(*_: object, **__: object) -> None:
    raise BuildError("the builder is gone", details=["i-1"], hint="look\n  again")


@pytest.mark.parametrize("verb", ["build", "lock", "publish"])
@pytest.mark.parametrize("flags", [(), ("--plain",), ("--plain", "--quiet")], ids=" ".join)
def test_every_line_of_a_log_says_when_it_was(
    verb: str, flags: tuple[str, ...], run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for module, name in ((pipeline, "build"), (pipeline, "publish_built"), (locking, "look_up")):
        monkeypatch.setattr(module, name, _fails)
    if flags:
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    code, _, err = run(verb, SHIPPED, "--target", "aws", "--lock", tmp_path / "lock.json", *flags)
    lines = err.splitlines()
    assert code == 6
    assert [line for line in lines if not STAMPED.match(line)] == []
    assert [STAMPED.sub("", line) for line in lines] == [
        f"{SHIPPED}: 2 warnings: run `imagegen validate` to see them",
        "error: the builder is gone",
        "  i-1",
        "hint: look",
        "  again",
    ]


def test_an_interrupt_says_when_it_was(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def stops(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(locking, "look_up", stops)
    code, _, err = run("lock", SHIPPED, "--lock", tmp_path / "lock.json")
    assert (code, STAMPED.sub("", err.splitlines()[-1])) == (130, "interrupted")
    assert STAMPED.match(err.splitlines()[-1])


def test_quiet_and_plain_reach_a_rehearsal(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[Any] = []

    def rehearses(*given: Any, **_: object) -> None:  # noqa: ANN401 - as the verb gives it
        heard.append((given[3], given[2].console))
        raise BuildError("enough")

    monkeypatch.setattr(arguments, "rehearse_build", rehearses)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    for words in ((), ("--quiet",), ("--plain",), ("--quiet", "--plain", "--no-publish", "--rebuild")):
        assert run("build", SHIPPED, "--target", "aws", "--rehearse", *words)[0] == 6
        flags, console = heard.pop()
        assert isinstance(console, Console)
        assert (console.plain, console.quiet) == ("--plain" in words, "--quiet" in words)
        assert [flag for flag in flags if flag not in ("--on-error", "cleanup")] == [
            flag for flag in ("--no-publish", "--rebuild", "--quiet") if flag in words
        ]


@pytest.mark.parametrize("words", [[], ["artifacts"], ["manifest"]])
def test_without_a_command_the_help_is_printed(run: Run, words: list[str]) -> None:
    code, _, err = run(*words)
    assert code == ExitCode.USAGE
    assert err.startswith(f"Usage: {' '.join(['imagegen', *words])} [OPTIONS] COMMAND")
    assert "\\n" not in err
    assert err.count("Usage:") == 1
