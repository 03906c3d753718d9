"""What a node loses without each resource of the step ssh."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from imagegen.rehearsal.releases import catalogued_releases
from tests.unit.steps.test_node_demands import evaluated

if TYPE_CHECKING:
    from imagegen.steps.evaluate import EvaluatedStep

DATA, FOLDER, PROGRAMS = r"C:\ProgramData\ssh", r"C:\k\ssh", r"C:\Program Files\OpenSSH"
POWERSHELL = r"C:\Windows\System32\WindowsPowerShell\v1.0\powershell.exe"
SCRIPT = rf"-NoProfile -NonInteractive -ExecutionPolicy Bypass -File {FOLDER}\add-ssh-server.ps1"
CAPABILITY: dict[str, Any] = {}
ZIP: dict[str, Any] = {"source": "zip"}


def ssh_step(asked: dict[str, Any], **others: Any) -> EvaluatedStep:  # noqa: ANN401 - any section
    (step,) = [step for step in evaluated("1.36.4", "2.3.4", ssh=asked, **others) if step.step.name == "ssh"]
    return step


def found(asked: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [(draft.kind, draft.fields) for draft in ssh_step(asked).drafts]


TAGS = {
    "9.4.0.0": "v9.4.0.0p1-Beta",
    "9.5.0.0p1": "v9.5.0.0p1-Beta",
    "9.8.1.0": "v9.8.1.0p1-Preview",
    "9.8.3.0p2": "v9.8.3.0p2-Preview",
    "10.0.0.0": "10.0.0.0p2-Preview",
}


@pytest.mark.parametrize(("version", "tag"), [(None, "10.0.0.0p2-Preview"), *TAGS.items()])
def test_the_zip_comes_from_the_tag_of_its_version(version: str | None, tag: str) -> None:
    own = "https://artifacts.example.com/openssh.zip"
    public = f"https://github.com/PowerShell/Win32-OpenSSH/releases/download/{tag}/OpenSSH-Win64.zip"
    for overrides, url in (({}, public), ({"ssh_source_url": own}, own)):
        step = ssh_step({"source": "zip", "version": version}, overrides=overrides)
        request = step.requests["openssh"]
        assert (request.url, request.form) == (url, "archive")
        assert step.components == (("openssh", version or "10.0.0.0p2"),)
        published = catalogued_releases().find(request.published)
        assert published is not None
        (archive,) = [draft.fields for draft in step.drafts if draft.kind == "archive"]
        assert (archive["into"], archive["strip"]) == (PROGRAMS, 1)
        assert {f"OpenSSH-Win64/{name}" for name in archive["expect"]} <= set(published.release.members)
        assert "sshd.exe" in archive["expect"]


def test_the_zip_gets_its_source_of_events() -> None:
    """Without it Windows keeps no event of sshd: nobody could see who logged on."""
    ((_, command),) = [item for item in found(ZIP) if item[0] == "command"]
    program = rf"{PROGRAMS}\ssh-agent.exe"
    assert command["program"] == r"C:\Windows\System32\wevtutil.exe"
    assert command["arguments"] == rf'im "{PROGRAMS}\openssh-events.man" /rf:"{program}" /mf:"{program}"'
    (expression,) = command["unless"]["matches"]
    listed = [bool(re.search(expression, said)) for said in ("A\r\nOpenSSH\r\nB\r\n", "OpenSSH-Other\r\n", "")]
    assert (command["unless"]["arguments"], listed) == ("ep", [True, False, False])
