"""The order and the bytes that a tree's guest insists on, each deviation by name."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import io
import json
import threading
import uuid
import zipfile
from typing import TYPE_CHECKING

import pytest

from imagegen.base.errors import VerificationError
from imagegen.rehearsal import expected as tree_of
from imagegen.rehearsal import guest as rehearsed
from imagegen.rehearsal.network.private_files import Demand
from imagegen.rehearsal.winrm import packer
from imagegen.rehearsal.winrm.command import Result
from tests.deadlines import HANG_S

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from imagegen.rehearsal.winrm.command import Write

_RESTORE, _DISCARD, _READ, _PROBE, _CHECK = 'decode "{}" to "{}"', 'drop "{}"', 'give "{}"', "say hello", "say back"
_SCRIPTS = packer.Scripts(
    restore=packer.digest(_RESTORE, 2),
    discard=packer.digest(_DISCARD, 1),
    read=packer.digest(_READ, 1),
    probe=packer.digest(_PROBE, 0),
    restart_check=packer.digest(_CHECK, 0),
)
_BUNDLE, _ENTRY, _GENERALISE = b"the bundle" * 2_000, b"the entry", b"the generalise script"
_LOGS = b"the script for logs"
_RESTART = 'shutdown /r /f /t 0 /c "packer restart"'
_TRIAL = 'shutdown /r /f /t 60 /c "packer restart test"'
_ABORT = "shutdown /a"


def _phase(name: str, *, restart: bool) -> tree_of.ExpectedPhase:
    return tree_of.ExpectedPhase(name, ("-Phase", name), restart)


_PHASE_1, _PHASE_2 = _phase("phase-1", restart=True), _phase("phase-2", restart=False)
_EXPECTED = tree_of.Expected(_BUNDLE, _ENTRY, _GENERALISE, (_PHASE_1, _PHASE_2), _LOGS)


class _Machine:
    def __init__(self, exits: dict[str, int]) -> None:
        self.files: dict[str, bytes] = {}
        self.done: list[str] = []
        self._exits = exits

    def _read_file(self, path: str) -> bytes:
        try:
            return self.files[path]
        except KeyError as error:
            raise FileNotFoundError(path) from error

    def _restart(self) -> None:
        self.done.append("restart")

    def _run_phase(self, arguments: Sequence[str], write: Write) -> int:
        self.done.append(arguments[1])
        write(f"line of {arguments[1]}\r\n".encode())
        self.files[tree_of.REPORT_PATH] = b"the report"
        return self._exits.get(arguments[1], 0)

    def _generalise(self, write: Write) -> int:
        self.done.append("generalise")
        write(b"sealed\r\n")
        return self._exits.get("generalise", 0)

    def _print_logs(self, write: Write) -> int:
        self.done.append("logs")
        write(b"imagegen-logs: end\r\n")
        return 0

    def effects(self) -> rehearsed.Effects:
        return rehearsed.Effects(
            *(self.files.__setitem__, self._read_file, self._restart, self._run_phase, self._generalise),
            self._print_logs,
        )


class _Packer:
    """Says what Packer says; stops at nothing."""

    def __init__(self, exits: dict[str, int] | None = None, expected: tree_of.Expected = _EXPECTED) -> None:
        self.machine = _Machine(exits or {})
        self.guest = rehearsed.RehearsedGuest(expected, self.machine.effects(), scripts=_SCRIPTS)
        self.output = b""

    def say(self, command: str) -> Result:
        said: list[bytes] = []
        result = self.guest.run(command, said.append)
        self.output = b"".join(said)
        return result

    def script(self, text: str) -> Result:
        return self.say(f"powershell.exe -EncodedCommand {base64.b64encode(text.encode('utf-16-le')).decode()}")

    def upload(self, data: bytes, path: str) -> None:
        file = f"winrmcp-{uuid.uuid4()}.tmp"
        for start in range(0, len(data), 5_900):
            text = base64.b64encode(data[start : start + 5_900]).decode()
            self.say(f'echo {text} >> "%TEMP%\\{file}"')
        path = path.replace("/", "\\")
        if self.script(_RESTORE.format(f"$env:TEMP\\{file}", path)).exit_code == 0:
            self.script(_DISCARD.format(f"$env:TEMP\\{file}"))

    def bundle(self) -> None:
        self.upload(_BUNDLE, tree_of.BUNDLE_PATH)

    def powershell(self, script: bytes, path: str, command: str) -> Result:
        self.upload(script, path)
        return self.say(command)

    def phase(self, phase: tree_of.ExpectedPhase) -> Result:
        return self.powershell(_ENTRY, tree_of.ENTRY_PATH, phase.command)

    def go_down(self) -> None:
        self.say(_RESTART)
        self.guest.restarted()

    def restart(self) -> None:
        self.go_down()
        self.script(_CHECK)

    def report(self) -> None:
        self.script(_READ.format(tree_of.REPORT_PATH))

    def generalise(self) -> None:
        self.powershell(_GENERALISE, tree_of.GENERALISE_PATH, _EXPECTED.generalise_command)

    def until_report(self) -> None:
        self.script(_PROBE)
        self.bundle()
        self.phase(_PHASE_1)
        self.restart()
        self.phase(_PHASE_2)
        self.report()


def test_the_trees_own_order_is_carried_out() -> None:
    said = _Packer({"phase-1": 3010})
    said.until_report()
    assert base64.b64decode(said.output) == b"the report"
    said.generalise()
    assert said.guest.faults == ()
    assert said.guest.missing() == ()
    assert said.guest.is_finished
    assert said.machine.done == ["phase-1", "restart", "phase-2", "generalise"]
    assert said.machine.files[tree_of.BUNDLE_PATH] == _BUNDLE
    assert said.output == b"sealed\r\n"


def _fail_in_phase(said: _Packer) -> None:
    said.bundle()
    assert said.phase(_PHASE_1).exit_code == 6


def _fail_by_a_deviation(said: _Packer) -> None:
    said.say("whoami")


def _end(said: _Packer) -> None:
    said.until_report()
    said.generalise()


@pytest.mark.parametrize("begin", [_fail_in_phase, _fail_by_a_deviation, _end])
def test_packer_asks_for_the_logs_after_an_error(begin: Callable[[_Packer], None]) -> None:
    said = _Packer({"phase-1": 6} if begin is _fail_in_phase else {})
    begin(said)
    before = said.guest.faults, said.guest.missing()
    result = said.powershell(_LOGS, tree_of.LOGS_PATH, _EXPECTED.logs_command)
    assert (result, said.output) == (Result(), b"imagegen-logs: end\r\n")
    assert (said.guest.faults, said.guest.missing()) == before
    assert said.machine.done[-1] == "logs"


def _other_script_for_logs(said: _Packer) -> None:
    _fail_in_phase(said)
    said.powershell(_LOGS + b" ", tree_of.LOGS_PATH, _EXPECTED.logs_command)


def _other_command_for_logs(said: _Packer) -> None:
    _fail_in_phase(said)
    said.powershell(_LOGS, tree_of.LOGS_PATH, f"{_EXPECTED.logs_command} -All")


def _logs_without_an_error(said: _Packer) -> None:
    said.bundle()
    said.powershell(_LOGS, tree_of.LOGS_PATH, _EXPECTED.logs_command)


@pytest.mark.parametrize(
    ("tell", "fault"),
    [
        (_other_script_for_logs, "imagegen-logs.ps1 has other bytes than the tree"),
        (_other_command_for_logs, "imagegen-logs.ps1 -All; expected nothing more, because phase-1 ended"),
        (_logs_without_an_error, "imagegen-logs.ps1; expected the upload of start.ps1"),
    ],
)
def test_the_logs_are_asked_for_as_the_tree_says(tell: Callable[[_Packer], None], fault: str) -> None:
    said = _Packer({} if tell is _logs_without_an_error else {"phase-1": 6})
    tell(said)
    assert fault in said.guest.faults[0]
    assert "logs" not in said.machine.done


def test_a_restart_takes_the_machine_down_and_is_answered_after_it() -> None:
    said = _Packer()
    said.bundle()
    assert said.phase(_PHASE_1) == Result()
    assert said.say(_RESTART).restarts
    said.guest.restarted()
    said.say(_TRIAL)
    said.say(_ABORT)
    said.script(_CHECK)
    assert said.output.endswith(b" restarted.\r\n")
    assert said.guest.faults == ()


def test_a_trial_before_the_machine_went_down_schedules_nothing() -> None:
    said = _Packer()
    said.bundle()
    said.phase(_PHASE_1)
    said.say(_RESTART)
    assert said.say(_TRIAL) == Result(exit_code=1115, stderr=b"A system shutdown is in progress.(1115)\r\n")
    # The restart cut that answer off; Packer goes on to its check.
    said.guest.restarted()
    said.script(_CHECK)
    assert said.output.endswith(b" restarted.\r\n")
    assert said.guest.faults == ()


def _wrong_byte(said: _Packer) -> None:
    said.bundle()
    said.upload(_ENTRY + b" ", tree_of.ENTRY_PATH)


def _changed_on_the_machine(said: _Packer) -> None:
    said.bundle()
    said.upload(_ENTRY, tree_of.ENTRY_PATH)
    del said.machine.files[tree_of.ENTRY_PATH.replace("/", "\\")]
    said.say(_PHASE_1.command)


def _extra_argument(said: _Packer) -> None:
    said.bundle()
    said.powershell(_ENTRY, tree_of.ENTRY_PATH, f"{_PHASE_1.command} -Check")


def _own_variable(said: _Packer) -> None:
    said.bundle()
    said.powershell(_ENTRY, tree_of.ENTRY_PATH, f'set "TOKEN=x" && {_PHASE_1.command}')


def _swapped(said: _Packer) -> None:
    said.bundle()
    said.phase(_PHASE_2)


def _without_restart(said: _Packer) -> None:
    said.bundle()
    said.phase(_PHASE_1)
    said.phase(_PHASE_2)


def _unanswered_restart(said: _Packer) -> None:
    said.bundle()
    said.phase(_PHASE_1)
    said.say(_RESTART)
    said.phase(_PHASE_2)


def _early_check(said: _Packer) -> None:
    said.bundle()
    said.phase(_PHASE_1)
    said.say(_RESTART)
    said.script(_CHECK)


def _scheduled_restart(said: _Packer) -> None:
    said.bundle()
    said.phase(_PHASE_1)
    said.go_down()
    said.say(_TRIAL)
    said.script(_CHECK)


def _unplanned_restart(said: _Packer) -> None:
    said.bundle()
    said.say(_RESTART)


def _without_report(said: _Packer) -> None:
    said.bundle()
    said.phase(_PHASE_1)
    said.restart()
    said.phase(_PHASE_2)
    said.generalise()


def _report_gone(said: _Packer) -> None:
    said.bundle()
    said.phase(_PHASE_1)
    said.restart()
    said.phase(_PHASE_2)
    said.machine.files.pop(tree_of.REPORT_PATH)
    said.report()


def _extra_command(said: _Packer) -> None:
    said.until_report()
    said.say("whoami")


def _extra_script(said: _Packer) -> None:
    said.until_report()
    said.script("whoami")


def _extra_upload(said: _Packer) -> None:
    said.until_report()
    said.upload(b"x", r"C:\Windows\Temp\extra.ps1")


def _extra_download(said: _Packer) -> None:
    said.until_report()
    said.script(_READ.format(r"C:\Windows\System32\config\SAM"))


def _after_the_end(said: _Packer) -> None:
    said.until_report()
    said.generalise()
    said.report()


def _second_probe(said: _Packer) -> None:
    said.bundle()
    said.script(_PROBE)


def _empty_upload(said: _Packer) -> None:
    said.upload(b"", tree_of.BUNDLE_PATH)


def _reopened_upload(said: _Packer) -> None:
    said.bundle()
    file = f"winrmcp-{uuid.uuid4()}.tmp"
    chunk = f'echo {base64.b64encode(_ENTRY).decode()} >> "%TEMP%\\{file}"'
    said.say(chunk)
    destination = tree_of.ENTRY_PATH.replace("/", "\\")
    said.script(_RESTORE.format(f"$env:TEMP\\{file}", destination))
    said.say(chunk)


def _discarded_unfinished(said: _Packer) -> None:
    file = f"winrmcp-{uuid.uuid4()}.tmp"
    said.say(f'echo {base64.b64encode(_BUNDLE[:3]).decode()} >> "%TEMP%\\{file}"')
    said.script(_DISCARD.format(f"$env:TEMP\\{file}"))


def _too_long(said: _Packer) -> None:
    said.say("x" * 8_192)


@pytest.mark.parametrize(
    ("tell", "fault"),
    [
        (
            lambda said: said.phase(_PHASE_1),
            "received an upload to C:\\Windows\\Temp\\imagegen-start.ps1; expected the upload of the",
        ),
        (_wrong_byte, "imagegen-start.ps1 has other bytes than the tree"),
        (_changed_on_the_machine, "is not the tree's start.ps1"),
        (_extra_argument, "-Phase phase-1 -Check; expected the run of phase-1"),
        (_own_variable, 'received the command set "TOKEN=x" && powershell.exe'),
        (_swapped, "-Phase phase-2; expected the run of phase-1"),
        (_without_restart, "imagegen-start.ps1; expected the restart after phase-1"),
        (_unanswered_restart, "expected the check that the machine is up again after phase-1"),
        (_early_check, "received windows-restart's RestartCheck before the machine went down"),
        (_scheduled_restart, "a trial restart was scheduled twice, not aborted"),
        (_unplanned_restart, "received a restart; expected the upload of start.ps1"),
        (_without_report, "expected the download of C:\\ProgramData\\imagegen\\report.json"),
        (_report_gone, "received a download of C:\\ProgramData\\imagegen\\report.json, but the file does not exist"),
        (_extra_command, "received the command whoami; expected the upload of generalise.ps1"),
        (_extra_script, "received the command the script whoami"),
        (_extra_upload, "received an upload to C:\\Windows\\Temp\\extra.ps1; expected"),
        (_extra_download, "received a download of C:\\Windows\\System32\\config\\SAM; expected"),
        (_after_the_end, "expected nothing more: the image is finished"),
        (_second_probe, "Packer connected again; expected the upload of start.ps1"),
        (_empty_upload, "imagegen-bundle.zip without any bytes"),
        (_reopened_upload, "after it was complete"),
        (_discarded_unfinished, "whose upload is not complete"),
        (_too_long, "a command line has 8192 characters"),
    ],
)
def test_a_deviation_is_a_fault_that_names_it(tell: Callable[[_Packer], object], fault: str) -> None:
    said = _Packer()
    tell(said)
    assert fault in said.guest.faults[0]


def test_a_deviation_is_answered_with_its_message_and_not_done() -> None:
    said = _Packer()
    result = said.say("whoami")
    assert result.exit_code == 1
    assert result.stderr.decode() == f"{said.guest.faults[0]}\r\n"
    assert said.machine.files == {}
    assert said.guest.missing()[0] == r"the upload of the bundle to C:\Windows\Temp\imagegen-bundle.zip"


def test_the_same_deviation_again_is_one_fault() -> None:
    said = _Packer()
    said.upload(b"x", r"C:\extra")
    said.upload(b"x", r"C:\extra")
    assert len(said.guest.faults) == 1


def test_a_failed_phase_is_the_last_thing_that_happens() -> None:
    said = _Packer({"phase-1": 6})
    said.bundle()
    assert said.phase(_PHASE_1) == Result(exit_code=6)
    said.say(_RESTART)
    (fault,) = said.guest.faults
    assert fault == "received a restart; expected nothing more, because phase-1 ended with exit code 6"
    assert said.machine.done == ["phase-1"]


def test_a_restart_that_is_due_where_none_follows_is_a_fault() -> None:
    said = _Packer({"phase-2": 3010})
    said.until_report()
    assert said.guest.faults[0] == "phase-2 ended with exit code 3010, but the plan has no restart after it"


@pytest.mark.parametrize(
    ("tell", "last"),
    [
        (lambda said: said.until_report(), "the run of generalise: powershell.exe"),
        (_report_gone, "the run of generalise: powershell.exe"),
    ],
)
def test_what_did_not_happen_is_named(tell: Callable[[_Packer], object], last: str) -> None:
    said = _Packer()
    tell(said)
    assert not said.guest.is_finished
    assert said.guest.missing()[-1].startswith(last)


def test_a_report_that_was_not_fetched_is_missing() -> None:
    said = _Packer()
    said.bundle()
    said.phase(_PHASE_1)
    said.restart()
    said.phase(_PHASE_2)
    assert said.guest.missing()[0] == r"the download of C:\ProgramData\imagegen\report.json"


def test_an_upload_that_was_begun_is_missing_its_end() -> None:
    said = _Packer()
    said.until_report()
    said.generalise()
    file = f"winrmcp-{uuid.uuid4()}.tmp"
    said.say(f'echo aGVsbG8= >> "%TEMP%\\{file}"')
    assert said.guest.missing() == (f"the end of the upload to {file}",)
    assert not said.guest.is_finished


def test_a_command_beside_a_running_one_is_a_fault() -> None:
    entered, leave = threading.Event(), threading.Event()

    def run_phase(_arguments: Sequence[str], _write: Write) -> int:
        entered.set()
        return 0 if leave.wait(HANG_S) else 1

    said = _Packer()
    effects = dataclasses.replace(said.machine.effects(), run_phase=run_phase)
    said.guest = rehearsed.RehearsedGuest(_EXPECTED, effects, scripts=_SCRIPTS)
    said.bundle()
    running = threading.Thread(target=said.phase, args=(_PHASE_1,))
    running.start()
    assert entered.wait(HANG_S)
    beside = said.guest.run("whoami", lambda _data: None)
    leave.set()
    running.join(HANG_S)
    assert beside.exit_code == 1
    assert said.guest.faults == ("received whoami while another command was running",)


def _write_tree(folder: Path, plan: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as bundle:
        bundle.writestr("plan.json", plan)
    (folder / "guest").mkdir()
    (folder / "guest" / "bundle.zip").write_bytes(buffer.getvalue())
    (folder / "guest" / "start.ps1").write_bytes(_ENTRY)
    (folder / "guest" / "generalise.ps1").write_bytes(_GENERALISE)
    (folder / "guest" / "logs.ps1").write_bytes(_LOGS)
    return buffer.getvalue()


def test_expected_comes_from_the_bundles_own_bytes(tmp_path: Path) -> None:
    plan = json.dumps({"name": "x", "phases": [{"name": "phase-1", "restart": True, "steps": []}]}).encode()
    bundle = _write_tree(tmp_path, plan)
    (tmp_path / "image.auto.pkrvars.json").write_text('{"guest": {"bundle_sha256": "0", "phases": []}}')
    expected = tree_of.expected_from_tree(tmp_path)
    assert (expected.bundle, expected.entry, expected.generalise) == (bundle, _ENTRY, _GENERALISE)
    assert expected.logs == _LOGS
    (phase,) = expected.phases
    assert phase.restart
    assert phase.command == (
        "powershell.exe -NoProfile -NonInteractive -ExecutionPolicy Bypass -File C:/Windows/Temp/imagegen-start.ps1"
        r" -Phase phase-1 -Bundle C:\Windows\Temp\imagegen-bundle.zip"
        f" -BundleSha256 {hashlib.sha256(bundle).hexdigest()} -PlanSha256 {hashlib.sha256(plan).hexdigest()}"
    )


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda guest: (guest / "start.ps1").unlink(), "guest/start.ps1 of the tree cannot be read"),
        (
            lambda guest: (guest / "bundle.zip").write_bytes(b"PK"),
            "guest/bundle.zip is not a zip file with a plan.json",
        ),
        (lambda guest: _rezip(guest, "other.json", b"{}"), "guest/bundle.zip is not a zip file with a plan.json"),
        (lambda guest: _rezip(guest, "plan.json", b"{}"), "plan.json in guest/bundle.zip has no valid phases"),
    ],
)
def test_a_tree_that_cannot_be_read_is_refused(tmp_path: Path, spoil: Callable[[Path], object], message: str) -> None:
    _write_tree(tmp_path, b'{"phases": []}')
    spoil(tmp_path / "guest")
    with pytest.raises(VerificationError) as caught:
        tree_of.expected_from_tree(tmp_path)
    assert caught.value.message == message


def _rezip(guest: Path, name: str, data: bytes) -> None:
    with zipfile.ZipFile(guest / "bundle.zip", "w") as bundle:
        bundle.writestr(name, data)


def test_updates_begin_with_a_restart() -> None:
    """Packer must take it before the first phase, and only then."""
    said = _Packer(expected=dataclasses.replace(_EXPECTED, begins_with_restart=True))
    said.bundle()
    assert said.guest.missing()[:2] == (
        "the restart after the upload of the bundle",
        "the check that the machine is up again after the upload of the bundle",
    )
    assert said.say(_RESTART).restarts
    said.guest.restarted()
    assert said.guest.faults == ()
    plain = _Packer()
    plain.bundle()
    assert plain.say(_RESTART).exit_code == 1


@pytest.mark.parametrize(("kind", "begins"), [("update", True), ("feature", False)])
def test_a_tree_with_updates_begins_with_a_restart(tmp_path: Path, kind: str, *, begins: bool) -> None:
    phase = {"name": "phase-1", "restart": True, "steps": [{"resources": [{"kind": kind}]}]}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("plan.json", json.dumps({"phases": [phase]}))
    (tmp_path / "guest").mkdir()
    (tmp_path / "guest" / "bundle.zip").write_bytes(buffer.getvalue())
    for name in ("start.ps1", "generalise.ps1", "logs.ps1"):
        (tmp_path / "guest" / name).write_bytes(b"s")
    assert tree_of.expected_from_tree(tmp_path).begins_with_restart is begins


_SIGNED_IN = dataclasses.replace(_PHASE_2, credentials={"registry.example.com": "YTpi"})


def _variables(key: str = "registry.example.com", auth: str = "YTpi") -> bytes:
    value = base64.b64encode(json.dumps({"auths": {key: {"auth": auth}}}).encode()).decode()
    return f'$env:IMAGEGEN_REGISTRIES="{value}"; $env:PACKER_BUILD_NAME="image"; '.encode()


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (_variables(), ""),
        (_variables(auth="YTpj"), "has not the credentials of registry.example.com"),
        (_variables("docker.io"), "has not the credentials of registry.example.com"),
        (b'$env:IMAGEGEN_REGISTRIES=""; ', "has not the credentials of registry.example.com"),
        (b"IMAGEGEN_REGISTRIES=1", "has not the form in which Packer's powershell provisioner writes variables"),
        (None, "expected the upload of the variables to C:/Windows/Temp/imagegen-credentials.ps1"),
    ],
)
def test_credentials_come_in_front_of_the_phase_that_needs_them(data: bytes | None, fault: str) -> None:
    said = _Packer({"phase-1": 3010}, dataclasses.replace(_EXPECTED, phases=(_PHASE_1, _SIGNED_IN)))
    said.bundle()
    said.phase(_PHASE_1)
    said.restart()
    if data is not None:
        said.upload(data, tree_of.CREDENTIALS_PATH)
    said.phase(_SIGNED_IN)
    assert fault in "".join(said.guest.faults)
    assert ("phase-2" in said.machine.done) is (not fault) is (said.guest.faults == ())
    assert not any("YTpj" in text for text in said.guest.faults)


_URL = "https://files.example.com/a%2Bb.zip"
_PRIVATE = {
    "signed": dataclasses.replace(
        _PHASE_2, downloads={"tool": tree_of.ExpectedDownload(_URL, Demand(cloud="storage"))}
    ),
    "query": dataclasses.replace(_PHASE_2, downloads={"tool": tree_of.ExpectedDownload(_URL, Demand(query="q=1"))}),
    "token": dataclasses.replace(
        _PHASE_2, downloads={"tool": tree_of.ExpectedDownload(_URL, Demand(authorization="Bearer YTpi"))}
    ),
}


def _addresses(url: str, authorization: str = "", name: str = "tool") -> bytes:
    rows = {name: {"url": url, "authorization": authorization}}
    value = base64.b64encode(json.dumps(rows).encode()).decode()
    return f'$env:IMAGEGEN_DOWNLOADS="{value}"; $env:PACKER_BUILD_NAME="image"; '.encode()


@pytest.mark.parametrize(
    ("way", "data", "fault"),
    [
        ("signed", _addresses(f"{_URL}?sig=YTpj"), ""),
        ("signed", _addresses("https://files.example.com/a+b.zip?sig=YTpj"), ""),
        ("query", _addresses(f"{_URL}?q=1"), ""),
        ("token", _addresses(_URL, "Bearer YTpi"), ""),
        ("signed", _addresses(_URL), "the address of tool has not the query that it needs"),
        ("signed", _addresses(f"{_URL}?sig=YTpj", "Bearer YTpj"), "tool has not the header that its host demands"),
        ("query", _addresses(f"{_URL}?q=YTpj"), "the address of tool has not the query that it needs"),
        ("token", _addresses(_URL, "Bearer YTpj"), "the address of tool has not the header that its host demands"),
        ("token", _addresses("https://other.example.com/YTpj", "Bearer YTpi"), "address of tool leads to another file"),
        ("token", _addresses(_URL, "Bearer YTpi", name="other"), "has not the addresses of tool"),
        ("token", b'$env:IMAGEGEN_DOWNLOADS=""; ', "has not the addresses of tool"),
        ("token", _variables(), "has not the credentials of no registry"),
        ("token", None, "expected the upload of the variables to C:/Windows/Temp/imagegen-credentials.ps1"),
    ],
)
def test_addresses_come_in_front_of_the_phase_that_downloads(way: str, data: bytes | None, fault: str) -> None:
    said = _Packer({"phase-1": 3010}, dataclasses.replace(_EXPECTED, phases=(_PHASE_1, _PRIVATE[way])))
    said.bundle()
    said.phase(_PHASE_1)
    said.restart()
    if data is not None:
        said.upload(data, tree_of.CREDENTIALS_PATH)
    said.phase(_PRIVATE[way])
    assert fault in "".join(said.guest.faults)
    assert ("phase-2" in said.machine.done) is (not fault) is (said.guest.faults == ())
    assert not any("YTpj" in text for text in said.guest.faults)
