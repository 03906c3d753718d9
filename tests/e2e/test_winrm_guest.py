"""Real Packer, through its null builder, against the rehearsed guest."""

from __future__ import annotations

import hashlib
import io
import json
import os
import ssl
import sys
import threading
import zipfile
from typing import TYPE_CHECKING, Any

import pytest
import trustme

from imagegen.base.console import Console
from imagegen.build import process
from imagegen.build.tools import find_tools
from imagegen.rehearsal import expected as tree_of
from imagegen.rehearsal import guest as rehearsed
from imagegen.rehearsal.winrm.server import WinRMServer
from tests.deadlines import HANG_S

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from imagegen.rehearsal.winrm.command import Write

pytestmark = pytest.mark.e2e

_PASSWORD = "Pa55 word!"  # noqa: S105  # of an account that exists in this test only
_DEADLINE_S = HANG_S
_WAIT_S = 20


class _Machine:
    """Files, and a log of what was done; the first phase goes on only when its first line has reached Packer."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.done: list[str] = []
        self.heard = threading.Event()

    def restart(self) -> None:
        self.done.append("restart")

    def run_phase(self, arguments: Sequence[str], write: Write) -> int:
        phase = arguments[1]
        self.done.append(phase)
        write(b'imagegen: {"event":"phase","status":"started"}\r\n')
        assert self.heard.wait(_WAIT_S), "the first line did not reach Packer while the phase was running"
        write(b"prose \xc3\xa9\r\n" * 20_000)
        self.files[tree_of.REPORT_PATH] = b'{"report_version":1}' * 9_000
        return 3010 if phase == "phase-1" else 0

    def generalise(self, write: Write) -> int:
        self.done.append("generalise")
        write(b"sealed\r\n")
        return 0

    def effects(self) -> rehearsed.Effects:
        return rehearsed.Effects(
            write_file=self.files.__setitem__,
            read_file=self.files.__getitem__,
            restart=self.restart,
            run_phase=self.run_phase,
            generalise=self.generalise,
            print_logs=lambda _: pytest.fail("nothing failed"),
        )


@pytest.fixture
def packer() -> Path:
    return find_tools(environ=os.environ, console=Console(sys.stderr, plain=True), needed=[]).packer


@pytest.fixture
def certificate() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("guest.invalid").configure_cert(context)
    return context


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "tree" / "guest"
    folder.mkdir(parents=True)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as bundle:
        phases = [{"name": f"phase-{number}", "restart": number == 1, "steps": []} for number in (1, 2)]
        bundle.writestr("plan.json", json.dumps({"plan_version": 1, "phases": phases}))
        # More than one shell's worth of chunks, and none alike.
        bundle.writestr("files/blob", b"".join(hashlib.sha256(bytes([i % 256, i >> 8])).digest() for i in range(4_000)))
    (folder / "bundle.zip").write_bytes(buffer.getvalue())
    (folder / "start.ps1").write_bytes(b"exit 0\r\n" * 100)
    (folder / "generalise.ps1").write_bytes(b"exit 0\r\n")
    (folder / "logs.ps1").write_bytes(b"exit 0\r\n")
    return folder.parent


def _template(tree: Path, expected: tree_of.Expected, port: int, *, ntlm: bool) -> dict[str, Any]:
    def windows_shell(script: str, remote: str, command: str, codes: list[int]) -> dict[str, Any]:
        return {
            "windows-shell": {
                "script": str(tree / "guest" / script),
                "remote_path": remote,
                "execute_command": command,
                "valid_exit_codes": codes,
            }
        }

    provisioners: list[dict[str, Any]] = [
        {"file": {"source": str(tree / "guest" / "bundle.zip"), "destination": tree_of.BUNDLE_PATH}}
    ]
    for phase in expected.phases:
        provisioners.append(windows_shell("start.ps1", tree_of.ENTRY_PATH, phase.command, [0, 3010]))
        if phase.restart:
            provisioners.append({"windows-restart": {"restart_timeout": "1m"}})
    report = {"direction": "download", "source": tree_of.REPORT_PATH, "destination": str(tree / "report.json")}
    provisioners.append({"file": report})
    provisioners.append(windows_shell("generalise.ps1", tree_of.GENERALISE_PATH, expected.generalise_command, [0]))
    source = {
        "communicator": "winrm",
        "winrm_host": "127.0.0.1",
        "winrm_port": port,
        "winrm_username": "Administrator",
        "winrm_password": "${var.password}",
        "winrm_use_ssl": True,
        "winrm_insecure": True,
        "winrm_use_ntlm": ntlm,
        "winrm_timeout": "1m" if ntlm else "2s",
    }
    return {
        "variable": {"password": {"type": "string", "sensitive": True}},
        "source": {"null": {"guest": source}},
        "build": {"sources": ["source.null.guest"], "provisioner": provisioners},
    }


def _build(packer: Path, tree: Path, template: dict[str, Any], machine: _Machine) -> tuple[int, list[str]]:
    file = tree / "build.pkr.json"
    file.write_text(json.dumps(template), encoding="utf-8")
    own = tree.parent / "packer"
    own.mkdir()
    environ = {
        "PATH": os.defpath,
        "HOME": str(own),
        "TMPDIR": str(own),
        "PACKER_CONFIG_DIR": str(own),
        "CHECKPOINT_DISABLE": "1",
        "PKR_VAR_password": _PASSWORD,
    }
    lines: list[str] = []

    def listen(line: str) -> None:
        lines.append(line)
        if '"status":"started"' in line:
            machine.heard.set()

    code = process.stream(
        [packer, "build", "-color=false", file],
        environ=environ,
        cwd=tree,
        timeout=_DEADLINE_S,
        on_line=listen,
    )
    return code, lines


def test_a_tree_is_carried_out(packer: Path, tree: Path, certificate: ssl.SSLContext) -> None:
    machine = _Machine()
    expected = tree_of.expected_from_tree(tree)
    guest = rehearsed.RehearsedGuest(expected, machine.effects())
    with WinRMServer(guest, username="Administrator", password=_PASSWORD, certificate=certificate) as server:
        code, lines = _build(packer, tree, _template(tree, expected, server.port, ntlm=True), machine)
    said = "\n".join(lines)
    assert (guest.faults, server.faults, guest.missing()) == ((), (), ())
    assert code == 0, said
    assert guest.is_finished
    assert machine.done == ["phase-1", "restart", "phase-2", "generalise"]
    assert machine.files[tree_of.BUNDLE_PATH] == expected.bundle
    assert (tree / "report.json").read_bytes() == machine.files[tree_of.REPORT_PATH]
    assert sum(line.endswith("prose é") for line in lines) == 40_000
    assert _PASSWORD not in said
    cost = server.cost
    assert cost.handshakes > 0
    assert cost.messages > cost.commands > len(expected.bundle) // 6_000
    assert cost.bytes_in > len(expected.bundle)


def test_basic_authentication_is_refused_and_named(packer: Path, tree: Path, certificate: ssl.SSLContext) -> None:
    machine = _Machine()
    expected = tree_of.expected_from_tree(tree)
    guest = rehearsed.RehearsedGuest(expected, machine.effects())
    with WinRMServer(guest, username="Administrator", password=_PASSWORD, certificate=certificate) as server:
        code, lines = _build(packer, tree, _template(tree, expected, server.port, ntlm=False), machine)
    assert code == 1, "\n".join(lines)
    (fault,) = server.faults
    assert "Basic" in fault
    assert "NTLM" in fault
    assert not guest.is_finished
    assert machine.done == []
    assert server.cost.messages == 0
