"""What a run of Packer comes to, with the lines of real runs in place of Packer."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from imagegen.base.errors import BuildError, RefusedError, ToolError
from imagegen.build.events import BrokenEvent, GuestEvent
from imagegen.build.packer import CloudSide, PackerBuild, PackerError, VerdictPipe, build_tree, validate_tree
from imagegen.build.process import Completed, Supervision
from imagegen.build.tools import Toolchain
from imagegen.providers.provider import provider

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from imagegen.build.output import OutputLine

_TOOLS = Toolchain(Path("/t/packer"), "1.16.0", {}, {"CHECKPOINT_DISABLE": "1"})
_TARGET = "amazon-ebs.image"
_UNWATCHED = Supervision()


class Deaf:
    """A display that keeps warnings and broken events."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def show_event(self, event: GuestEvent) -> None:
        if isinstance(event, BrokenEvent):
            self.told.append(event.why)

    def show_output(self, output: OutputLine) -> None:
        """Not looked at here."""

    def warn(self, text: str) -> None:
        self.told.append(text)


def said(text: str, kind: str = "say") -> str:
    return f"1,,ui,{kind},==> {_TARGET}: {text.replace(',', '%!(PACKER_COMMA)')}"


def resource(status: str, reason: str = "", name: str = "containerd/service:containerd") -> str:
    data = {"event": "resource", "phase": "phase-2", "id": name, "status": status, "ms": 5, "reason": reason}
    return said("imagegen: " + json.dumps(data))


def phase(status: str, reason: str = "") -> str:
    data = {"event": "phase", "phase": "phase-2", "status": status, "reason": reason}
    return said("imagegen: " + json.dumps({**data, "resources": 2, "changed": 1, "restart": False, "ms": 9}))


_ERROR = f"1,{_TARGET},error,Script exited with non-zero exit status: 6. Allowed exit codes are: [0 3010]"
_ARTIFACT = (
    f"1,{_TARGET},artifact-count,1",
    f"1,{_TARGET},artifact,0,builder-id,mitchellh.amazonebs",
    f"1,{_TARGET},artifact,0,id,us-east-1:ami-1%!(PACKER_COMMA)us-west-2:ami-2",
    f"1,{_TARGET},artifact,0,string,AMIs were created:\\nus-east-1: ami-1",
    f"1,{_TARGET},artifact,0,end",
)
_TOLD = [f"--> {_TARGET}: AMIs were created:", "us-east-1: ami-1", ""]
_EPILOGUE = (
    "1,,ui,say,\\n==> Builds finished. The artifacts of successful builds are:",
    "1,,ui,say," + "\\n".join(_TOLD),
)


def build(
    tmp_path: Path,
    lines: Sequence[str],
    code: int = 0,
    *,
    ends: BaseException | None = None,
    environ: Mapping[str, str] | None = None,
    display: Deaf | None = None,
    on_error: str = "cleanup",
    errors: Sequence[str] = (),
    sees: Sequence[str] = (),
    verdict: VerdictPipe | None = None,
) -> str:
    def stream(
        argv: Sequence[str | Path],
        *,
        environ: Mapping[str, str],
        cwd: Path | None,
        timeout: float,
        on_line: Callable[[str], None],
        supervision: Supervision = _UNWATCHED,
    ) -> int:
        assert supervision.watch == (verdict.answer if verdict else None)
        grace, orphan = supervision.grace, supervision.orphan
        flags = ["-machine-readable", f"-on-error={on_error}", "-color=false"]
        assert list(map(str, argv)) == ["/t/packer", "build", *flags, "."]
        assert (cwd, timeout, environ["PKR_VAR_a"]) == (tmp_path, 9, "1")
        assert sorted(environ) == sorted({"CHECKPOINT_DISABLE", "PKR_VAR_a", *sees})
        # A cloud takes minutes to delete a machine, whether or not anybody is there to hear of it.
        assert [grace.deadline(0, heard) for heard in (0, 3600)] == [1200, 3900]
        assert (orphan.grace, orphan.log) == (grace, str(tmp_path / "logs" / "packer.log"))
        for line in errors:
            assert supervision.on_error_line is not None
            supervision.on_error_line(line)
        for line in lines:
            on_line(line)
        if ends is not None:
            raise ends
        return code

    return build_tree(
        _TOOLS,
        PackerBuild(
            tmp_path,
            tmp_path / "logs" / "packer.log",
            timeout_s=9,
            variables={"a": "1"},
            cloud=CloudSide(frozenset({"ARM_*"}), frozenset(), r"\bi-[0-9a-f]+|\bpacker_\w+", "delete it by hand"),
            on_error=on_error,
            verdict=verdict,
        ),
        environ=environ or {},
        display=display or Deaf(),
        stream=stream,
    )


def test_the_artifact_is_what_packer_says(tmp_path: Path) -> None:
    built = build(tmp_path, [phase("started"), resource("changed"), phase("finished"), *_ARTIFACT, *_EPILOGUE])
    assert built == "us-east-1:ami-1,us-west-2:ami-2"


@pytest.mark.parametrize(
    ("lines", "code", "message"),
    [
        ([resource("failed", "no such file"), phase("failed", "the same again"), _ERROR], 1,
         "containerd/service:containerd failed in phase-2: no such file"),
        ([phase("failed", "the restart was not taken"), _ERROR], 1, "phase-2 failed: the restart was not taken"),
        ([_ERROR], 1, "Packer failed: Script exited with non-zero exit status: 6. Allowed exit codes are: [0 3010]"),
        (["1,,ui,error,Error: Unsupported argument\\n\\n  on x line 1:"], 1, "Packer failed: Unsupported argument"),
        ([f"1,{_TARGET},error,unexpected EOF"], 1, "Packer failed: its plugin crashed"),
        ([_ERROR.replace(" 6.", " 16001.")], 1,
         "Packer failed: its plugin lost the WinRM connection to the machine; a newer version of the plugin connects "
         "again"),
        (["panic: oh no"], 2, "Packer failed without an error message"),
        ([said("all is well")], 0, "Packer failed: it ended with code 0 but made no artifact"),
        ([resource("failed", "ignored by the tree"), *_ARTIFACT], 0,
         "containerd/service:containerd failed in phase-2: ignored by the tree"),
    ],
)  # fmt: skip
def test_a_failure_says_what_failed(tmp_path: Path, lines: list[str], code: int, message: str) -> None:
    with pytest.raises(BuildError) as caught:
        build(tmp_path, lines, code)
    assert caught.value.message == message


@pytest.mark.parametrize("on_error", ["cleanup", "abort"])
def test_a_rejected_report_is_the_error_and_not_what_packer_was_told(tmp_path: Path, on_error: str) -> None:
    refused = f"1,{_TARGET},error,Script exited with non-zero exit status: 1. Allowed exit codes are: [0]"
    kept = said('Step "StepProvision" failed, aborting...')
    with VerdictPipe(tmp_path / "verdict.pipe", lambda: None) as verdict:
        verdict.rejection = "the report is of another build"
        with pytest.raises(BuildError) as caught:
            build(tmp_path, [refused, *([kept] if on_error == "abort" else [])], 1, on_error=on_error, verdict=verdict)
        # What Packer did after all counts.
        assert build(tmp_path, _ARTIFACT, verdict=verdict).startswith("us-east-1:ami-1")
    error = caught.value
    assert error.message == "no image was made: the report is of another build"
    assert error.details == (f"the full log: {tmp_path / 'logs' / 'packer.log'}",)
    assert ("delete it by hand" if on_error == "abort" else "`reports`") in error.hint


def test_the_reasons_of_a_rejected_template_are_among_the_causes(tmp_path: Path) -> None:
    """As version 2.6.3 of Azure's plugin says it: Packer's own error has only the outer code."""
    template = (
        "ERROR: -> InvalidTemplateDeployment : See inner errors.\\n==> %s: ERROR:   -> SkuNotAvailable : try another"
    )
    outer = "unexpected status 400 (400 Bad Request) with error: InvalidTemplateDeployment"
    with pytest.raises(PackerError) as caught:
        build(tmp_path, [said(template % _TARGET), f"1,{_TARGET},error,{outer}"], 1)
    assert caught.value.message == f"Packer failed: {outer}"
    assert caught.value.causes == (
        outer,
        "InvalidTemplateDeployment : See inner errors.",
        "SkuNotAvailable : try another",
    )
    assert "Packer: SkuNotAvailable : try another" in caught.value.details


def test_a_resource_that_failed_is_no_lack_of_capacity(tmp_path: Path) -> None:
    with pytest.raises(PackerError) as caught:
        build(tmp_path, [resource("failed", "QuotaExceeded"), f"1,{_TARGET},error,QuotaExceeded"], 1)
    assert caught.value.causes == ()


@pytest.mark.parametrize("error", ["unexpected EOF", "connection is shut down"])
def test_what_a_plugin_that_crashed_had_made_is_named(tmp_path: Path, error: str) -> None:
    with pytest.raises(PackerError) as caught:
        build(tmp_path, [*_MADE, f"1,{_TARGET},error,{error}"], 1)
    assert (caught.value.crashed, caught.value.hint) == (True, _LEFT.format(tree=tmp_path))
    assert caught.value.details[0] == f"Packer: {error}"


def test_a_failure_tells_the_file_of_the_step_the_last_lines_and_the_log(tmp_path: Path) -> None:
    lines = [said(f"line {number}") for number in range(30)]
    epilogue = f"1,,ui,error,--> {_TARGET}: Script exited"
    with pytest.raises(BuildError) as caught:
        build(tmp_path, [*lines, resource("failed", "no"), said("stderr of it", "error"), _ERROR, epilogue], 1)
    details = caught.value.details
    assert details[0] == "step containerd: ansible-win/roles/containerd/resources.yml"
    assert details[1].startswith("Packer: Script exited")
    assert details[2:4] == ("the last lines:", "  line 16")
    assert details[-2:] == ("  stderr of it", f"the full log: {tmp_path / 'logs' / 'packer.log'}")


def test_what_failed_and_then_came_right_is_no_failure(tmp_path: Path) -> None:
    lines = [resource("failed", "once"), phase("failed", "once"), phase("started"), phase("finished"), *_ARTIFACT]
    assert build(tmp_path, lines) != ""


def test_a_broken_event_is_shown_and_kept_for_the_error(tmp_path: Path) -> None:
    display = Deaf()
    with pytest.raises(BuildError) as caught:
        build(tmp_path, [said("imagegen: {nonsense"), _ERROR], 1, display=display)
    assert display.told == ["invalid JSON: Expecting property name enclosed in double quotes"]
    assert any("{nonsense" in detail for detail in caught.value.details)


def test_no_secret_reaches_log_or_error(tmp_path: Path) -> None:
    secret = "s3cr3t,with,commas"  # noqa: S105 - a made-up one, to look for
    lines = [
        said(f"using {secret}"),
        said('winrm_password = "hunter2"'),
        resource("failed", f"get https://u:hunter2@h/?sig=hunter2 with {secret}"),
        f"1,{_TARGET},error,{secret.replace(',', '%!(PACKER_COMMA)')} was refused",
    ]
    with pytest.raises(BuildError) as caught:
        build(tmp_path, lines, 1, environ={"ARM_CLIENT_SECRET": secret}, sees=["ARM_CLIENT_SECRET"])
    everything = "\n".join([caught.value.message, *caught.value.details, (tmp_path / "logs/packer.log").read_text()])
    assert "hunter2" not in everything
    assert "s3cr3t" not in everything
    assert "was refused" in everything


def test_an_older_log_becomes_private(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "packer.log"
    log.parent.mkdir()
    log.write_text("older")
    log.chmod(0o644)
    build(tmp_path, _ARTIFACT)
    assert log.stat().st_mode & 0o777 == 0o600
    assert "older" not in log.read_text()


_MADE = (
    said("Creating temporary keypair: packer_5f"),
    said("Launching a source AWS instance..."),
    said("Instance ID: i-0a1"),
    said("Waiting for instance (i-0a1) to become ready..."),
)
_CANCELLED = "1,,ui,say,Cleanly cancelled builds after being interrupted."
_LEFT = "Packer did not delete packer_5f, i-0a1 (built from {tree})\ndelete it by hand"


@pytest.mark.parametrize(
    ("lines", "warning"),
    [
        ([*_MADE, _CANCELLED], ""),
        (_MADE, _LEFT),
        ([*_MADE, said("Interrupted, aborting...", "error"), _CANCELLED], _LEFT),
        (
            [said("Loading")],
            "Packer did not report whether it deleted everything (built from {tree})\ndelete it by hand",
        ),
    ],
)
def test_an_interrupt_is_passed_on_and_what_remains_is_named(tmp_path: Path, lines: list[str], warning: str) -> None:
    display = Deaf()
    with pytest.raises(KeyboardInterrupt):
        build(tmp_path, lines, ends=KeyboardInterrupt(), display=display)
    told = [*warning.format(tree=tmp_path).splitlines(), f"the full log: {tmp_path / 'logs' / 'packer.log'}"]
    assert display.told == (told if warning else [])


def test_a_machine_that_is_kept_is_named_with_what_to_do(tmp_path: Path) -> None:
    aborted = said('Step "StepProvision" failed, aborting...', "error")
    with pytest.raises(BuildError) as caught:
        build(tmp_path, [*_MADE, resource("failed", "no"), aborted, _ERROR], 1, on_error="abort")
    assert caught.value.hint == _LEFT.format(tree=tmp_path)


@pytest.mark.parametrize(
    ("cloud", "text", "found"),
    [
        ("aws", "Creating temporary keypair: packer_691cf5b4-0c9d-6d4b-1f26-3d2a1f6d7c11",
         ["temporary keypair: packer_691cf5b4-0c9d-6d4b-1f26-3d2a1f6d7c11"]),
        ("aws", "Creating temporary security group for this instance: packer_691cf5b8-af18",
         ["temporary security group for this instance: packer_691cf5b8-af18"]),
        ("aws", "Waiting for instance (i-0a1b2c3d4e5f60718) to become ready...", ["i-0a1b2c3d4e5f60718"]),
        ("aws", "Created Spot Fleet launch template: lt-0a1b2c3d4e5f60718", ["lt-0a1b2c3d4e5f60718"]),
        ("aws", "Found Image ID: ami-0a1b2c3d4e5f60718", []),
        ("azure", " -> ResourceGroupName : 'pkr-Resource-Group-x1y2z3'", ["pkr-Resource-Group-x1y2z3"]),
        ("azure", " -> ComputeName       : 'pkrvmx1y2z3'", ["pkrvmx1y2z3"]),
    ],
)  # fmt: skip
def test_a_clouds_traces_are_what_its_plugin_says_it_made(cloud: str, text: str, found: list[str]) -> None:
    assert re.findall(provider(cloud).traces, text) == found


def test_a_machine_that_was_removed_is_not_named(tmp_path: Path) -> None:
    with pytest.raises(BuildError) as caught:
        build(tmp_path, [*_MADE, said("Terminating the source AWS instance..."), _ERROR], 1)
    assert caught.value.hint == ""


def test_packers_own_log_reaches_the_log_and_nothing_else(tmp_path: Path) -> None:
    debug = "2026/11/18 22:44:19 [INFO] (telemetry) Starting builder with hunter2hunter2"
    environ = {"PACKER_LOG": "1", "PACKER_LOG_PATH": "/elsewhere", "ARM_CLIENT_SECRET": "hunter2hunter2"}
    display = Deaf()
    with pytest.raises(BuildError) as caught:
        build(
            tmp_path,
            [_ERROR],
            1,
            environ=environ,
            display=display,
            errors=[debug, "panic: oh no"],
            sees=["PACKER_LOG", "ARM_CLIENT_SECRET"],
        )
    log = (tmp_path / "logs" / "packer.log").read_text()
    assert debug.replace("hunter2hunter2", "***") in log
    assert "panic: oh no" in log
    assert [detail for detail in caught.value.details if "oh no" in detail] == ["  panic: oh no"]
    assert [detail for detail in caught.value.details if "telemetry" in detail] == []


@pytest.mark.parametrize(("lines", "named"), [(_MADE, True), ([*_MADE, _CANCELLED], False)])
def test_an_overdue_build_is_a_failed_build(tmp_path: Path, lines: list[str], named: bool) -> None:
    with pytest.raises(BuildError, match="Packer failed: packer build did not end within 9 s") as caught:
        build(tmp_path, lines, ends=TimeoutError("packer build did not end within 9 s"))
    assert caught.value.hint == (_LEFT.format(tree=tmp_path) if named else "")


@pytest.mark.parametrize(
    ("broken", "message"), [("fmt", "is not formatted"), ("validate", "is not valid"), ("none", "")]
)
def test_a_tree_is_refused_with_packers_words(tmp_path: Path, broken: str, message: str) -> None:
    asked = []

    def run(
        argv: Sequence[str | Path], *, environ: Mapping[str, str], cwd: Path | None = None, timeout: float
    ) -> Completed:
        assert (environ["CHECKPOINT_DISABLE"], cwd, timeout > 0) == ("1", tmp_path, True)
        asked.append([str(part) for part in argv[1:]])
        return Completed(int(argv[1] == broken), "out\n\n", "err?sig=abc\n")

    if broken == "none":
        validate_tree(_TOOLS, tmp_path, environ={}, run=run)
        assert asked == [["fmt", "-check", "-diff", "."], ["validate", "."]]
    else:
        with pytest.raises(RefusedError) as caught:
            validate_tree(_TOOLS, tmp_path, environ={}, run=run)
        assert caught.value.message.endswith(message)
        assert caught.value.details == ("out", "err?sig=***")


@pytest.mark.parametrize(
    ("folder", "printed", "error"),
    [
        ("/" + "a" * 80, "plugin exited before we could connect", ToolError),
        ("/" + "a" * 80, "Unrecognized remote plugin message: Error starting plugin server: listen unix", ToolError),
        ("/" + "a" * 79, "plugin exited before we could connect", RefusedError),
        ("/" + "a" * 80, "Error: Unsupported argument", RefusedError),
    ],
)
def test_a_folder_too_deep_for_the_socket_of_a_plugin_is_named(
    tmp_path: Path, folder: str, printed: str, error: type[ToolError | RefusedError]
) -> None:
    def run(
        argv: Sequence[str | Path], *, environ: Mapping[str, str], cwd: Path | None = None, timeout: float
    ) -> Completed:
        assert (environ["TMPDIR"], cwd, timeout > 0) == (folder, tmp_path, True)
        return Completed(int(argv[1] == "validate"), printed, "")

    with pytest.raises(error) as caught:
        validate_tree(_TOOLS, tmp_path, environ={"TMPDIR": folder}, run=run)
    assert ("TMPDIR" in caught.value.hint) is (error is ToolError)
    assert caught.value.details == (printed,)
