"""What cmd and PowerShell do on the model machine with the lines that user data and scripts of a boot have."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from imagegen.rehearsal.boot.model import OwnScripts, Process, UnknownCommandError
from imagegen.rehearsal.boot.shell import Shell
from imagegen.rehearsal.machine.refusal import NoSuchFile
from imagegen.rehearsal.machine.registry import Value
from imagegen.rehearsal.machine.services import AUTOMATIC, MANUAL
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


def run_powershell(shell: Shell, machine: Machine, text: str) -> Ended:
    put_file(machine, r"C:\k\script.ps1", text.encode())
    return shell.run(Process(machine, ("powershell.exe", "-NoProfile", "-File", "C:/k/script.ps1")))


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
    "exist": ("if exist C:\\Windows echo a\nif not exist C:\\Windows echo b", "a\r\n", 0),
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
    "nssm without nssm": (
        "nssm start kubelet",
        "'nssm' is not recognized as an internal or external command,\r\noperable program or batch file.\r\n",
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
    "a variable that powershell inherits": ("set NAME=a\npowershell Write-Output $env:name", "a\r\n", 0),
    "powershell's code": ('powershell -Command "exit 4"', "", 4),
    "powershell's last command": ('powershell -Command "Start-Service none -ErrorAction SilentlyContinue"', "", 1),
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
    "if": ('if "%1"=="a" echo a', "this form of if"),
    "if with a pattern": ("if exist C:\\a* echo a", "this form of if"),
    "set": ("set /a X=1", "this form of set"),
    "exit": ("exit now", "this form of exit"),
    "sc": ("sc.exe failure kubelet", "'sc.exe failure kubelet'"),
    "nssm": ("C:\\k\\nssm.exe status kubelet", "'nssm.exe status kubelet'"),
    "net": ("net share a=b", "'net.exe share a=b'"),
    "a user's option": ("net user Administrator /delete", "/delete"),
    "cmd": ("cmd /k echo", "'cmd.exe /k echo'"),
    "powershell's option": ("powershell -EncodedCommand AA==", "the option -EncodedCommand of powershell"),
    "powershell's cmdlet": ('powershell -Command "Get-Service kubelet"', "line 1: Get-Service"),
}


@pytest.mark.parametrize(("text", "message"), REFUSALS.values(), ids=REFUSALS)
def test_an_unknown_command_is_refused_by_name(aws: Machine, shell: Shell, text: str, message: str) -> None:
    put_file(aws, r"C:\k\nssm.exe", b"MZ")
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


# What Cluster API's user data runs, as its provider for kubeadm writes it.
RUNCMD = r"""rem cmd
hostname
powershell C:/k/before-join.ps1
powershell -Command "New-Item -ItemType Directory -Force C:/k/state | Out-Null"
kubeadm join --config /run/kubeadm/kubeadm-join-config.yaml --v 5 && echo success > /run/cluster-api/success.complete
powershell -Command "Set-Service kubelet -StartupType Automatic"
echo joined
"""


def test_the_commands_of_cluster_apis_user_data_have_their_effect(aws: Machine, shell: Shell, started: Started) -> None:
    aws.services.create("kubelet", r"C:\Windows\System32\tar.exe", "kubelet", MANUAL)
    aws.files.make_folder(r"C:\run\cluster-api")
    put_file(aws, r"C:\k\before-join.ps1", b"$ErrorActionPreference = 'Stop'\nWrite-Output \"on $env:COMPUTERNAME\"\n")
    aws.files.write(SCRIPT, RUNCMD.encode())
    ended = shell.run(Process(aws, ("cmd.exe", "/c", SCRIPT)))
    assert ended.exit_code == 0
    answers = [line for line in ended.output.splitlines() if line and not line.startswith("C:\\")]
    assert answers == ["WIN-0A1B2C3D4E5", "on WIN-0A1B2C3D4E5", "done", "joined"]
    assert aws.files.is_folder(r"C:\k\state")
    assert aws.files.is_file(r"C:\run\cluster-api\success.complete")
    assert aws.services.start_type("kubelet") == AUTOMATIC
    assert len(started.lines) == 1


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
        ('powershell -Command "Set-Service kubelet -StartupType Automatic"', AUTOMATIC, 0),
        ("powershell Set-Service -Name kubelet -StartupType Manual", MANUAL, 0),
        (r"C:\k\nssm.exe set kubelet Start SERVICE_DELAYED_AUTO_START", AUTOMATIC, 1),
    ],
)
def test_a_services_start_type_is_changed(aws: Machine, shell: Shell, line: str, start: int, delayed: int) -> None:
    aws.services.create("kubelet", r"C:\Windows\System32\tar.exe", "kubelet", 4)
    put_file(aws, r"C:\k\nssm.exe", b"MZ")
    assert run_batch(shell, aws, line).exit_code == 0
    key = aws.services.key("kubelet")
    assert (aws.services.start_type("kubelet"), aws.registry.number(key, "DelayedAutostart")) == (start, delayed)


STARTS = (
    *("sc.exe start W32Time", "net start w32time", r"C:\k\nssm start W32Time"),
    *("powershell Start-Service W32Time", "powershell Restart-Service -Force W32Time"),
)


@pytest.mark.parametrize("line", STARTS)
def test_a_service_is_started(aws: Machine, shell: Shell, line: str) -> None:
    put_file(aws, r"C:\k\nssm.exe", b"MZ")
    aws.restart()
    assert not aws.services.is_running("W32Time")
    assert run_batch(shell, aws, line).exit_code == 0
    assert aws.services.is_running("W32Time")


# A script, its output, its exit code.
SCRIPTS: dict[str, tuple[str, str, int]] = {
    "output": (
        "$ErrorActionPreference = 'Stop'\nWrite-Output \"first: $env:COMPUTERNAME\" # why\nWrite-Host 'it''s'",
        "first: WIN-0A1B2C3D4E5\r\nit's\r\n",
        0,
    ),
    "values": ("$a = 'x'\n$env:B = \"<$a>\"\n\"$($env:B) ${a} `$a\"; $a", "<x> x $a\r\nx\r\n", 0),
    "exit": ("Write-Output a\nexit 3\nWrite-Output b", "a\r\n", 3),
    "throw": ("throw 'no network'\nWrite-Output b", "no network\r\n", 1),
    "an error stops": (
        "$ErrorActionPreference = 'Stop'\nStart-Service none\nWrite-Output b",
        "Start-Service : there is no service none (error 1060)\r\n",
        1,
    ),
    "an error does not stop": (
        "Start-Service none\nWrite-Output b",
        "Start-Service : there is no service none (error 1060)\r\nb\r\n",
        0,
    ),
    "an error stops one command": (
        "Start-Service none -ErrorAction Stop; Write-Output b",
        "Start-Service : there is no service none (error 1060)\r\n",
        1,
    ),
    "if": (
        "if (Test-Path C:/Windows -PathType Container) { Write-Output a } else { Write-Output b }\n"
        "if (-not (Test-Path -LiteralPath 'C:\\none')) {\n  Write-Output c\n}\n"
        "if (!(Test-Path C:\\Windows)) { exit 9 }",
        "a\r\nc\r\n",
        0,
    ),
    "a program's code": ("kubeadm reset -f\nif ($LASTEXITCODE -ne 0) { exit $LASTEXITCODE }", "done\r\n", 7),
    "quotes in quotes": ("\"a \"\"b\"\" `\"c`\"\"", 'a "b" "c"\r\n', 0),
    "a program's success": ('kubeadm reset\n"$?"\nkubeadm version\n"$?"', "done\r\nFalse\r\ndone\r\nTrue\r\n", 0),
    "an item that is there": (
        "New-Item C:\\k\\script.ps1\nNew-Item C:\\k -ItemType Directory",
        "New-Item : The file 'C:\\k\\script.ps1' already exists.\r\n"
        "New-Item : An item with the specified name C:\\k already exists.\r\n",
        0,
    ),
    "an item in a folder that is not there": (
        "New-Item -Force C:\\k\\deep\\a.txt -Value one | Out-Null\n"
        "if (Test-Path C:\\k\\deep\\a.txt -PathType Leaf) { 'a' }",
        "a\r\n",
        0,
    ),
    "a program by its path": ("& 'C:\\Program Files\\kubernetes\\kubeadm.exe' version | Out-Null\nexit 0", "", 0),
    "a program that is not there": (
        "kubectl get nodes\nWrite-Output b",
        "The term 'kubectl' is not recognized as the name of a cmdlet, function, script file, or operable program.\r\n"
        "b\r\n",
        0,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "output", "code"), SCRIPTS.values(), ids=SCRIPTS)
def test_a_script_ends_as_on_windows(
    aws: Machine, shell: Shell, started: Started, text: str, output: str, code: int
) -> None:
    started.codes = [7]
    ended = run_powershell(shell, aws, text)
    assert (ended.output, ended.exit_code) == (output, code)


UNKNOWN_POWERSHELL = (
    *("Get-ChildItem C:\\", "$a = Get-Date", "$a.Length", '"$(Get-Date)"', "[System.IO.File]::Delete('x')"),
    *("foreach ($x in 1) { }", "try { } catch { }", "function f { }", "& { exit 1 }", "if (Test-Path C:\\) { exit 1"),
    *("if (1 -gt 0) { exit 1 }", "exit now", "Write-Output a > C:\\x", "Write-Output a, b", "Write-Output a b"),
    *(
        "New-Item C:\\k\\a -ItemType SymbolicLink",
        "Set-Content a b -Encoding Byte",
        "Set-Service W32Time -Status Paused",
    ),
    *("Set-Service W32Time -StartupType Boot", "New-NetFirewallRule -DisplayName a -Enabled Perhaps"),
    *('Write-Output a"b"', "Write-Output =", "exit =", "$ErrorActionPreference = 'Inquire'"),
    *("Set-Service kubelet -Credential x", "Set-Service kubelet -StartupType Automatic -PassThru"),
    "New-NetFirewallRule -DisplayName a -Direction up",
)


@pytest.mark.parametrize("text", UNKNOWN_POWERSHELL)
def test_unknown_powershell_is_refused_with_its_place(aws: Machine, shell: Shell, text: str) -> None:
    with pytest.raises(UnknownCommandError, match=r"C:\\k\\script.ps1.*: "):
        run_powershell(shell, aws, f"Write-Output a\n{text}")


def test_files_and_rules_that_powershell_makes(aws: Machine, shell: Shell) -> None:
    text = r"""
New-Item -ItemType Directory -Force C:/k/state/deep | Out-Null
Set-Content -Path C:/k/a.txt -Value 'one' -Encoding ascii
Add-Content C:\k\a.txt two
'three' | Out-File -FilePath C:\k\b.txt -Encoding utf8
Write-Output four | Out-File C:\k\c.txt
New-NetFirewallRule -DisplayName 'kubelet' -Name kubelet -Direction Inbound -Action Allow -Protocol TCP -LocalPort 10250
Start-Sleep -Seconds 30
"""
    before = aws.up_s
    assert run_powershell(shell, aws, text).output == ""
    assert aws.files.is_folder(r"C:\k\state\deep")
    found = {name: aws.files.read(rf"C:\k\{name}.txt") for name in "abc"}
    assert found == {"a": b"one\r\ntwo\r\n", "b": b"\xef\xbb\xbfthree\r\n", "c": "four\r\n".encode("utf-16")}
    rule = aws.firewall.rule("kubelet")
    assert rule is not None
    assert (rule.direction, rule.action, rule.protocol, rule.port) == ("in", "allow", "TCP", "10250")
    assert aws.up_s - before == 30


def test_a_sleep_of_many_days_is_refused(aws: Machine, shell: Shell) -> None:
    with pytest.raises(UnknownCommandError, match="two days"):
        run_powershell(shell, aws, "Start-Sleep -Seconds 300000000")


def test_a_line_may_be_the_quoted_name_of_one_program(aws: Machine, shell: Shell, started: Started) -> None:
    shell.run_line(aws, f'cmd.exe /c "{KUBEADM}"')
    shell.run_line(aws, f'"{KUBEADM}" version')
    shell.run_line(aws, f'cmd.exe /c ""{KUBEADM}" join"')
    assert started.lines == [(KUBEADM,), (KUBEADM, "version"), (KUBEADM, "join")]


def test_a_failed_program_fails_the_powershell_that_ran_it(aws: Machine, shell: Shell, started: Started) -> None:
    started.codes = [7]
    assert run_batch(shell, aws, "powershell kubeadm join").exit_code == 1
    assert run_batch(shell, aws, "powershell kubeadm join").exit_code == 0


def test_powershell_runs_a_script_by_its_path_and_keeps_its_code_to_itself(aws: Machine, shell: Shell) -> None:
    put_file(aws, r"C:\k\before-join.ps1", b"Write-Output here\nexit 3\n")
    ended = run_batch(shell, aws, "powershell C:/k/before-join.ps1")
    assert (ended.output, ended.exit_code) == ("here\r\n", 1)
    ended = run_batch(shell, aws, "powershell C:/k/none.ps1")
    assert ended.exit_code == 1
    assert "'C:/k/none.ps1' is not recognized" in ended.output


OWN = b"Write-Output one\nGet-NetAdapter\n"


@pytest.mark.parametrize("words", [(), ("-Name", "a")])
def test_a_script_of_the_operator_is_a_limit_from_where_it_is_unknown(aws: Machine, words: tuple[str, ...]) -> None:
    own = OwnScripts(frozenset({OWN}))
    path = r"C:\k\pre-kubeadm\01-own.ps1"
    put_file(aws, path, OWN)
    arguments = ("powershell.exe", "-File", path, *words)
    assert Shell({}, own_scripts=own).run(Process(aws, arguments)).exit_code == 0
    (limit,) = own.limits
    assert limit.startswith(f"{path} to its end: the rehearsal does not know ")
    put_file(aws, path, OWN + b"#")
    with pytest.raises(UnknownCommandError):
        Shell({}, own_scripts=own).run(Process(aws, arguments))
