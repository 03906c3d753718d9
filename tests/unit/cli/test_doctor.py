"""The words of `imagegen doctor`: aligned text, JSON, and an exit code."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest

from imagegen.base.errors import ToolError
from imagegen.build.tools import Plugin, Toolchain
from imagegen.cli.main import main
from imagegen.providers.aws import provider as aws
from imagegen.providers.azure import provider as azure
from imagegen.providers.checks import OK, UNKNOWN, WRONG, Check
from tests.provider_answers import answer

if TYPE_CHECKING:
    from collections.abc import Callable

    Doctor = Callable[..., tuple[object, str]]

SHIPPED = Path(__file__).parents[3] / "configs" / "windows-2022-containerd.yaml"
SIGNED_IN = Check("sign-in", OK, "somebody", stops=True)
OFFERED = Check("sizes", OK, "offered")


@pytest.fixture
def doctor(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Doctor:
    """Exit code and standard output, with the tools there and both clouds in order."""
    plugins = {name: Plugin("1.8.2", Path(name)) for name in ("amazon", "azure")}
    found = Toolchain(Path("packer"), "1.16.0", plugins, {})
    monkeypatch.setattr("imagegen.build.doctor.find_tools", lambda **_: found)
    for cloud in (aws, azure):
        answer(monkeypatch, cloud, quick_checks=lambda *_: [SIGNED_IN], thorough_checks=lambda *_: [OFFERED])

    def ran(*words: str) -> tuple[object, str]:
        monkeypatch.setattr(sys, "argv", ["imagegen", "doctor", str(SHIPPED), "--quiet", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code, capsys.readouterr().out

    return ran


def test_all_targets_are_looked_at(doctor: Doctor) -> None:
    code, out = doctor()
    assert code == 0
    assert out == (
        "windows-2022-containerd for aws\n"
        "  ok       tools    packer 1.16.0, plugin amazon 1.8.2\n"
        "  ok       sign-in  somebody\n"
        "  ok       sizes    offered\n"
        "windows-2022-containerd for azure\n"
        "  ok       tools    packer 1.16.0, plugin azure 1.8.2\n"
        "  ok       sign-in  somebody\n"
        "  ok       sizes    offered\n"
    )


def test_what_is_wrong_ends_with_five_and_unknown_does_not(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = Check("vCPU quota", UNKNOWN, "not allowed", "allow servicequotas:GetServiceQuota")
    answer(monkeypatch, aws, thorough_checks=lambda *_: [unknown])
    assert doctor("--target", "aws")[0] == 0
    answer(monkeypatch, aws, thorough_checks=lambda *_: [unknown, Check("sizes", WRONG, "none", "name another")])
    code, out = doctor("--target", "aws")
    assert code == 5
    assert "  unknown  vCPU quota  not allowed\n           hint: allow servicequotas:GetServiceQuota\n" in out
    assert "  wrong    sizes       none\n           hint: name another\n" in out
    code, out = doctor("--target", "aws", "--format", "json")
    told = json.loads(out)
    assert (code, told["ok"]) == (5, False)
    assert told["targets"]["aws"][-1] == {
        "subject": "sizes",
        "verdict": "wrong",
        "message": "none",
        "hint": "name another",
    }


def test_nothing_else_is_asked_before_the_sign_in_is_right(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> NoReturn:
        pytest.fail("asked without a sign-in")

    nobody = dataclasses.replace(SIGNED_IN, verdict=WRONG, message="nobody")
    answer(monkeypatch, aws, quick_checks=lambda *_: [nobody])
    answer(monkeypatch, aws, thorough_checks=never)
    code, out = doctor("--target", "aws")
    assert code == 5
    assert "  unknown  everything else  not checked: correct the above first" in out


def test_tools_that_are_missing_hide_no_other_check(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(**asked: object) -> NoReturn:
        assert asked["build"] is False
        raise ToolError(
            "Packer is missing or too old", hint="run\n  brew install packer", details=["packer is not on PATH"]
        )

    monkeypatch.setattr("imagegen.build.doctor.find_tools", missing)
    # A build provides the pinned versions itself: whether they can be had is seen when they are fetched.
    code, out = doctor("--target", "azure")
    assert code == 0
    assert (
        "  unknown  tools    not installed yet: `imagegen build` first downloads them, or builds them with Go\n" in out
    )
    assert "           hint: run `imagegen tools` to install them now\n" in out
    code, out = doctor("--target", "azure", "--set", "targets.azure.security_type=TrustedLaunch")
    assert code == 5
    assert "  wrong    tools    Packer is missing or too old; packer is not on PATH\n" in out
    assert "           hint: run\n             brew install packer\n" in out
    assert "  ok       sizes    offered\n" in out
