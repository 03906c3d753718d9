"""What a node loses without each resource of the step ssh."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from imagegen.rehearsal.releases import find_published
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
        published = find_published(step.step, request)
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


@pytest.mark.parametrize("asked", [CAPABILITY, ZIP])
def test_sshd_is_not_started_in_the_build(asked: dict[str, Any]) -> None:
    """It would make the keys of the host, and every node would have them if sealing failed to delete them."""
    ((_, service),) = [item for item in found(asked) if item[0] == "service"]
    assert (service["name"], service["start"], service.get("state")) == ("sshd", "automatic", None)


@pytest.mark.parametrize(("asked", "port"), [(CAPABILITY, 22), ({"port": 2222}, 2222), (ZIP, 22)])
def test_sshd_reads_the_keys_that_cloudbase_init_writes(asked: dict[str, Any], port: int) -> None:
    """Also those of administrators, whose keys Windows' own configuration takes from another file (B11)."""
    text = ssh_step(asked).texts["files/ssh/sshd_config"].decode()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert lines == [
        f"Port {port}",
        "PubkeyAuthentication yes",
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        # CVE-2023-48795.
        "Ciphers -chacha20-poly1305@openssh.com",
        "MACs -*-etm@openssh.com",
        "AuthorizedKeysFile .ssh/authorized_keys",
        "Subsystem sftp sftp-server.exe",
    ]
