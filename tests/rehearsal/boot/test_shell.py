"""What cmd and PowerShell do on the model machine with the lines that user data and scripts of a boot have."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from imagegen.rehearsal.boot.model import Process, UnknownCommandError
from imagegen.rehearsal.boot.shell import Shell
from imagegen.rehearsal.machine.refusal import NoSuchFile
from imagegen.rehearsal.machine.registry import Value
from imagegen.rehearsal.machine.services import AUTOMATIC
from imagegen.rehearsal.machine.windows import ENVIRONMENT
from tests.rehearsal.boot.conftest import KUBERNETES, put_file

if TYPE_CHECKING:
    from imagegen.rehearsal.boot.model import Ended
    from imagegen.rehearsal.machine import Machine
    from tests.rehearsal.boot.conftest import Started

SCRIPT = r"C:\Windows\Temp\script.cmd"
NOTE = r"C:\Windows\Temp\note.txt"
KUBEADM = rf"{KUBERNETES}\kubeadm.exe"


def run_batch(shell: Shell, machine: Machine, text: str, *words: str) -> Ended:
    """Run a batch file without its echo, as user data's commands are run."""
    machine.files.write(SCRIPT, f"@echo off\n{text}\n".encode())
    return shell.run(Process(machine, ("cmd.exe", "/c", " ".join((SCRIPT, *words)))))


# A batch file, its output and its exit code.
BATCHES: dict[str, tuple[str, str, int]] = {
    "echo": ("echo joined & echo  two", "joined \r\n two\r\n", 0),
    "an empty line": ("echo.", "\r\n", 0),
    "and": ("echo a&& echo b", "a\r\nb\r\n", 0),
    "and after a failure": ("cd \\none && echo b", "The system cannot find the path specified.\r\n", 1),
    "or": ("echo a|| echo b", "a\r\n", 0),
    "or after a failure": ("cd \\none 2> nul || echo b", "b\r\n", 1),
    "then exit": ("echo a&& exit 1 || exit 2", "a\r\n", 1),
    "else exit": ("cd \\none >nul 2>&1 && exit 1 || exit 2", "", 2),
    "a remark": ("rem cmd && echo a > x", "", 0),
    "quotes hide operators": ('echo "a && b > c"', '"a && b > c"\r\n', 0),
    "an escaped operator": ("echo a ^& b", "a & b\r\n", 0),
    "the machine's variable": ("echo %ComSpec% %SystemDrive%", "C:\\Windows\\system32\\cmd.exe C:\r\n", 0),
    "an unknown variable": ("echo [%NONE%]", "[]\r\n", 0),
    "set": ('set NAME=a b\nset "OTHER=c"\necho %name%-%OTHER%', "a b-c\r\n", 0),
    "set to nothing": ("set NAME=a\nset NAME=\necho [%NAME%]", "[]\r\n", 0),
    "a line of several commands": ("cd \\none 2> nul & echo b", "b\r\n", 1),
    "where it is": ("cd", "C:\\Windows\\System32\r\n", 0),
    "no folder to make": ("mkdir", "The syntax of the command is incorrect.\r\n", 1),
    "the current folder": ("cd /d C:\\Windows\\Temp\necho %CD%", "C:\\Windows\\Temp\r\n", 0),
    "the end of a batch file": ("echo a\nexit /b 3\necho b", "a\r\n", 3),
    "a failure before the end stays": (
        "cd \\none\necho b",
        "The system cannot find the path specified.\r\nb\r\n",
        1,
    ),
    "its code": ("cd \\none 2> nul\necho %ERRORLEVEL%", "1\r\n", 1),
    "arguments": ("echo %1 %2 %* %%x %~dp0", "one  one %x C:\\Windows\\Temp\\\r\n", 0),
    "a folder that is there": ("md Temp", "A subdirectory or file Temp already exists.\r\n", 1),
    "a folder with slashes": ("mkdir C:/k", "The syntax of the command is incorrect.\r\n", 1),
    "a folder that Windows does not accept": (
        "md C:\\nul",
        "not a path that Windows accepts: C:\\nul\r\n",
        1,
    ),
    "output to no folder": ("echo a > C:\\none\\a", "The system cannot find the path specified.\r\n", 1),
    "a program": ("kubeadm join", "done\r\n", 0),
    "a program that is not there": (
        "kubectl get nodes || echo b",
        "'kubectl' is not recognized as an internal or external command,\r\noperable program or batch file.\r\nb\r\n",
        9009,
    ),
    "a path that is not there": (
        '"C:\\k\\nssm.exe" start kubelet > nul 2>&1',
        "",
        9009,
    ),
    "the name": ("hostname", "WIN-0A1B2C3D4E5\r\n", 0),
    "a service that is not there": (
        "sc.exe config kubelet start= auto",
        "[SC] config FAILED 1060: there is no service kubelet (error 1060)\r\n",
        1060,
    ),
    "net": ("net start none", "there is no service none (error 1060)\r\n", 2),
}


@pytest.mark.parametrize(("text", "output", "code"), BATCHES.values(), ids=BATCHES)
def test_a_batch_file_ends_as_on_windows(aws: Machine, shell: Shell, text: str, output: str, code: int) -> None:
    aws.files.make_folder(r"C:\Windows\System32\Temp")
    ended = run_batch(shell, aws, text, "one")
    assert (ended.output, ended.exit_code) == (output, code)


# What nobody has made known is refused, and the message says what and where.
REFUSALS: dict[str, tuple[str, str]] = {
    "a program": ("wmic os get name", "does not know the command 'wmic'"),
    "a program of Windows": (
        r"C:\Windows\System32\wusa.exe /x",
        r"does not know the command 'C:\Windows\System32\wusa.exe'",
    ),
    "a program on the disk": ("tar -xf a", r"does not know what C:\Windows\System32\tar.exe does"),
    "a pipe": ("echo a | more", "does not know '|' of cmd: C:\\Windows\\Temp\\script.cmd, line 2: echo a | more"),
    "input": ("hostname < a", "'<'"),
    "a group": ("(echo a)", "'('"),
    "a label": ("goto :end", "the command 'goto'"),
    "a label that is called": ("call :end", "labels"),
    "delete": ("del /q C:\\x", "the command 'del'"),
    "a loop": ("for %%i in (1) do echo a", "the command 'for'"),
    "if": ('if "%1"=="a" echo a', "the command 'if'"),
    "set": ("set /a X=1", "this form of set"),
    "exit": ("exit now", "this form of exit"),
    "sc": ("sc.exe failure kubelet", "'sc.exe failure kubelet'"),
    "net": ("net share a=b", "'net.exe share a=b'"),
    "a user's option": ("net user Administrator /delete", "/delete"),
    "cmd": ("cmd /k echo", "'cmd.exe /k echo'"),
}


@pytest.mark.parametrize(("text", "message"), REFUSALS.values(), ids=REFUSALS)
def test_an_unknown_command_is_refused_by_name(aws: Machine, shell: Shell, text: str, message: str) -> None:
    with pytest.raises(UnknownCommandError, match=re.escape(message)):
        run_batch(shell, aws, text)


def test_a_join_is_run_from_drive_c_and_marks_its_success(aws: Machine, shell: Shell, started: Started) -> None:
    aws.files.make_folder(r"C:\run\cluster-api")
    line = "kubeadm join --config /run/kubeadm/join.yaml  && echo success > /run/cluster-api/done.complete"
    assert run_batch(shell, aws, line).exit_code == 0
    assert started.lines == [(KUBEADM, "join", "--config", "/run/kubeadm/join.yaml")]
    assert started.folders == [r"C:\Windows\System32"]
    assert aws.files.read(r"C:\run\cluster-api\done.complete") == b"success \r\n"
    aws.files.remove(r"C:\run\cluster-api\done.complete")
    started.codes = [1]
    assert run_batch(shell, aws, f"{line}\necho joined").exit_code == 1, "echo does not change the exit code"
    assert not aws.files.exists(r"C:\run\cluster-api\done.complete")


def test_the_echo_of_a_batch_file_shows_its_commands(aws: Machine, shell: Shell) -> None:
    """They reach the log of whoever runs it, with what user data put into them."""
    aws.files.write(SCRIPT, b"rem cmd\nset TOKEN=abc\necho %TOKEN%\n@hostname\n")
    prompt = "\r\nC:\\Windows\\System32>"
    ended = shell.run(Process(aws, (SCRIPT,)))
    lines = [f"{prompt}rem cmd\r\n", f"{prompt}set TOKEN=abc\r\n", f"{prompt}echo abc\r\n", "abc\r\n"]
    assert ended.output == "".join([*lines, "WIN-0A1B2C3D4E5\r\n"])


def test_output_goes_to_files(aws: Machine, shell: Shell) -> None:
    assert run_batch(shell, aws, f"kubeadm version > {NOTE} 2>&1\nhostname >> {NOTE} 2> nul").output == ""
    assert aws.files.read(NOTE) == b"done\r\nWIN-0A1B2C3D4E5\r\n"


def test_a_program_is_found_as_windows_finds_it(aws: Machine, shell: Shell, started: Started) -> None:
    """The current folder comes before PATH, and PATH is that of the registry."""
    here = r"C:\Windows\Temp\kubeadm.exe"
    aws.files.write(here, b"MZ")
    run_batch(shell, aws, "kubeadm a\ncd /d C:\\Windows\\Temp\nkubeadm b\n..\\Temp\\KUBEADM.EXE c")
    assert [line[0] for line in started.lines] == [KUBEADM, here, r"C:\Windows\Temp\KUBEADM.EXE"]
    aws.registry.write(ENVIRONMENT, "Path", Value("ExpandString", r"%SystemRoot%\system32"))
    assert run_batch(shell, aws, "kubeadm d").exit_code == 9009
    with pytest.raises(NoSuchFile, match="kubeadm"):
        shell.run(Process(aws, ("kubeadm", "d")))


def test_a_batch_file_that_is_not_called_does_not_come_back(aws: Machine, shell: Shell) -> None:
    aws.files.write(r"C:\Windows\Temp\inner.cmd", b"@exit /b 5\r\n")
    assert run_batch(shell, aws, "call C:\\Windows\\Temp\\inner.cmd\necho %errorlevel%").output == "5\r\n"
    ended = run_batch(shell, aws, "C:\\Windows\\Temp\\inner.cmd\necho a")
    assert (ended.output, ended.exit_code) == ("", 5)


@pytest.mark.parametrize(
    ("line", "start", "delayed"),
    [
        ("sc.exe config kubelet start= auto", AUTOMATIC, 0),
        ("sc config kubelet start= delayed-auto", AUTOMATIC, 1),
    ],
)
def test_a_services_start_type_is_changed(aws: Machine, shell: Shell, line: str, start: int, delayed: int) -> None:
    aws.services.create("kubelet", r"C:\Windows\System32\tar.exe", "kubelet", 4)
    assert run_batch(shell, aws, line).exit_code == 0
    key = aws.services.key("kubelet")
    assert (aws.services.start_type("kubelet"), aws.registry.number(key, "DelayedAutostart")) == (start, delayed)


STARTS = ("sc.exe start W32Time", "net start w32time")


@pytest.mark.parametrize("line", STARTS)
def test_a_service_is_started(aws: Machine, shell: Shell, line: str) -> None:
    aws.restart()
    assert not aws.services.is_running("W32Time")
    assert run_batch(shell, aws, line).exit_code == 0
    assert aws.services.is_running("W32Time")


def test_a_line_may_be_the_quoted_name_of_one_program(aws: Machine, shell: Shell, started: Started) -> None:
    shell.run_line(aws, f'cmd.exe /c "{KUBEADM}"')
    shell.run_line(aws, f'"{KUBEADM}" version')
    shell.run_line(aws, f'cmd.exe /c ""{KUBEADM}" join"')
    assert started.lines == [(KUBEADM,), (KUBEADM, "version"), (KUBEADM, "join")]


def test_powershell_is_taken_as_run_and_listed(aws: Machine) -> None:
    unchecked: list[str] = []
    shell = Shell({}, unchecked)
    put_file(aws, r"C:\k\before.ps1", b"exit 3")
    assert run_batch(shell, aws, "powershell C:/k/before.ps1").exit_code == 0
    assert run_batch(shell, aws, r"powershell -NoProfile -File C:\k\before.ps1 -Name a").exit_code == 0
    assert run_batch(shell, aws, 'powershell -Command "Set-Service kubelet; secret"').exit_code == 0
    commands = "the PowerShell commands on command lines of the user data"
    assert unchecked == [*[r"what the script C:\k\before.ps1 does"] * 2, commands]
    ended = run_batch(shell, aws, "powershell -File C:/k/none.ps1")
    assert ended.exit_code == -196608
    assert r"The argument 'C:\k\none.ps1' to the -File parameter does not exist." in ended.output
