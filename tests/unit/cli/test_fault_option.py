"""`--fault`: which names it takes, where they are listed, and what the guide says of each."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from imagegen.base.errors import BuildError, ConfigError, ExitCode, ImagegenError
from imagegen.build import process
from imagegen.cli.main import cli
from imagegen.rehearsal import rehearse
from imagegen.rehearsal.faults.fault import FaultSettings
from imagegen.rehearsal.faults.table import FAULTS, check_publish_region, find_faults, settings_of
from tests.conftest import REPOSITORY

SHIPPED = Path("configs/windows-2022-containerd.yaml")


def refusal(*words: str) -> ImagegenError:
    result = CliRunner().invoke(cli, ["build", str(REPOSITORY / SHIPPED), *words])
    assert isinstance(result.exception, ImagegenError)
    return result.exception


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (
            ["--target", "aws", "--fault", "throttle"],
            "--fault can only be used together with --rehearse",
            "add --rehearse: imagegen causes no faults in a real aws account",
        ),
        (
            ["--target", "aws", "--rehearse", "--fault", "throtle"],
            '--fault: unknown fault "throtle"',
            f'did you mean "throttle"? known: {", ".join(sorted(FAULTS))}',
        ),
        (
            ["--target", "azure", "--rehearse", "--fault", "quota", "--fault", "same-client-token"],
            '--fault: the fault "same-client-token" is not supported on azure',
            f"supported: {', '.join(sorted({name for name, fault in FAULTS.items() if 'azure' in fault.clouds}))}",
        ),
    ],
    ids=["without --rehearse", "unknown", "of another cloud"],
)
def test_a_fault_that_cannot_happen_is_refused_first(words: list[str], message: str, hint: str) -> None:
    error = refusal(*words)
    assert (error.exit_code, error.message, error.hint) == (ExitCode.USAGE, message, hint)


def test_faults_of_publishing_need_somewhere_to_publish_to() -> None:
    faults = find_faults(["copy-fails", "copy-fails"], "aws")
    assert [fault.name for fault in faults] == ["copy-fails"]
    settings = FaultSettings("us-east-1", "", ("m6i.large",))
    message = "--fault copy-fails needs a second region, and the config publishes only to us-east-1"
    with pytest.raises(ConfigError, match=message) as raised:
        check_publish_region(faults, settings, "aws")
    assert raised.value.hint == "add a region: --set targets.aws.publish.regions=[…]"
    check_publish_region(find_faults(["quota"], "aws"), settings, "aws")


def test_a_fault_brings_the_settings_with_which_the_build_ends_soon() -> None:
    assert settings_of(["quota", "silent-guest", "silent-guest", "nothing"]) == ("timeouts.restart=1",)


def test_a_rehearsal_that_takes_too_long_is_a_failed_build(monkeypatch: pytest.MonkeyPatch) -> None:
    def stream(*_: object, **__: object) -> int:
        raise TimeoutError("imagegen build did not end within 900 s")

    monkeypatch.setattr(process, "stream", stream)
    sandbox: Any = SimpleNamespace(child_environ=dict)
    with pytest.raises(BuildError, match="imagegen build did not end within 900 s") as raised:
        rehearse._run_child([], sandbox, {}, print)
    assert "--set timeouts.restart=1" in raised.value.hint


def test_the_catalogue_lists_them() -> None:
    result = CliRunner().invoke(cli, ["catalog", "faults", "--format", "json"])
    read = json.loads(result.stdout)
    assert set(read) == set(FAULTS)
    text = CliRunner().invoke(cli, ["catalog", "faults"]).stdout
    assert [line.split(" ")[0] for line in text.splitlines() if not line.startswith(" ")] == list(FAULTS)
    assert read["copy-fails"] == {"clouds": "aws, azure", "exit code": "7", "what": FAULTS["copy-fails"].description}


def test_the_guide_tells_of_each_with_its_exit_code() -> None:
    text = (REPOSITORY / "docs" / "rehearsal.md").read_text()
    rows = re.findall(r"^\| `([a-z-]+)`(?: \((AWS|Azure)\))? \| .* \| ([0-9]+) \| .* \|$", text, re.MULTILINE)
    told = {name: (int(code), (cloud.lower(),) if cloud else ("aws", "azure")) for name, cloud, code in rows}
    assert told == {name: (int(fault.exit_code), fault.clouds) for name, fault in FAULTS.items()}
