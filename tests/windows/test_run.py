"""run.py on a machine that answers from a script."""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import re
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from tests.windows import run as program
from tests.windows.render import make_certificates, read_yaml

BUILD = "    CurrentBuildNumber    REG_SZ    20348\r\n"
Answer = tuple[int, str, str] | BaseException


class Scripted:
    """A machine: each line that begins with a key gets its answers, one after the other; the last is repeated."""

    def __init__(self, **answers: list[Answer]) -> None:
        self.answers = answers
        self.lines: list[str] = []
        self.files: dict[str, bytes] = {}
        self.limits: list[float] = []
        self.restarts = 0

    def run(self, line: str, timeout_s: float) -> tuple[int, str, str]:
        self.lines.append(line)
        self.limits.append(timeout_s)
        given = next((answers for key, answers in self.answers.items() if line.startswith(key)), [(0, "", "")])
        answer = given.pop(0) if len(given) > 1 else given[0]
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def put(self, data: bytes, path: str) -> None:
        self.files[path] = data

    def get(self, path: str) -> bytes:
        if path not in self.files:
            raise FileNotFoundError(path)
        return self.files[path]

    def restart(self) -> None:
        self.restarts += 1


class Deaf:
    """A server that opens no port."""

    requests: tuple[str, ...] = ()

    def __init__(self, folder: Path, ports: list[int]) -> None:
        """Keep nothing."""

    def show(self, routes: dict[str, Any]) -> None:
        """Serve nothing."""

    def close(self) -> None:
        """Close nothing."""


def case(*steps: dict[str, Any], **more: object) -> dict[str, Any]:
    return {
        "case_version": 1, "id": "a/case", "subject": "a.ps1", "restart": False, "timeout_s": 900, "builds": ["20348"],
        "serves": {}, "clean": ["clean up"], "steps": list(steps), **more,
    }  # fmt: skip


def attempt(machine: object, one: dict[str, Any], folder: Path = Path()) -> dict[str, Any]:
    return program.attempt(program.Run(machine, folder, None, "20348"), one, "")  # type: ignore[arg-type]  # scripted


def test_a_case_passes_when_everything_is_as_it_says(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "digest").write_bytes(b"bytes")
    machine = Scripted(engine=[(3010, "prose", "")], show=[(0, "a line\r\nanother\r\n", "")])
    steps: list[dict[str, Any]] = [
        {"put": "C:\\a.txt", "file": {"20348": "digest"}},
        {"run": {"20348": "engine line", "17763": "none"}, "codes": [3010], "events": [], "timeout_s": 420},
        {"run": "show it", "has": ["^a line$", r"another\n\Z"], "lacks": ["third"]},
        {"get": "C:\\a.txt", "has": [r"\Abytes\Z"]},
        {"restart": True},
    ]

    assert attempt(machine, case(*steps), tmp_path)["result"] == "passed"
    assert machine.lines == ["clean up", "engine line", "show it", "clean up"]
    assert machine.limits == [120, 420, 120, 120]
    assert machine.restarts == 1


@pytest.mark.parametrize("given", read_yaml(Path(__file__).parent / "judged.yml"))
def test_a_case_passes_or_says_why_not(given: dict[str, Any]) -> None:
    hangs = TimeoutError("it did not end within 9 s")
    machine = Scripted(x=[hangs if "hangs" in given else (given.get("code", 0), given.get("says", ""), "")])
    found = attempt(machine, case(given["step"]))
    assert found["result"] == ("failed" if "reason" in given else "passed")
    assert given.get("reason", "") in found["reason"]
    # The next case finds the machine clean.
    assert machine.lines[-1] == "clean up"


def test_what_is_cleaned_may_fail_and_hang() -> None:
    machine = Scripted(clean=[(1, "", "nothing there"), TimeoutError()])
    assert attempt(machine, case({"run": "x"}))["result"] == "passed"


def test_a_machine_that_breaks_ends_its_case_only() -> None:
    found = attempt(Scripted(x=[ConnectionError("the line is cut")]), case({"run": "x"}))
    assert (found["result"], found["reason"]) == ("error", "ConnectionError: the line is cut")


def test_a_case_has_no_more_time_than_it_says() -> None:
    machine = Scripted()
    assert attempt(machine, case({"run": "x", "timeout_s": 9000}, timeout_s=60))["result"] == "passed"
    assert machine.limits[1] <= 60
    assert "the case has no time left" in attempt(machine, case({"run": "x"}, timeout_s=0))["reason"]


def test_a_case_of_other_builds_is_left_out() -> None:
    assert attempt(Scripted(), case(builds=["17763"]))["result"] == "left out"


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"plain\r\n", "plain\r\n"),
        ("\ufeffa text\r\n".encode("utf-16-le"), "a text\r\n"),
        ("REG_SZ".encode("utf-16-le"), "REG_SZ"),
        (b"gr\x81n", "gr\xfcn"),
        (b"", ""),
    ],
)
def test_output_is_read_in_the_encodings_of_windows(data: bytes, text: str) -> None:
    assert program.decode(data) == text


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Rendered cases."""
    for name in ("cases", "files", "tls"):
        (tmp_path / name).mkdir()
    for name, data in make_certificates().items():
        (tmp_path / "tls" / name).write_bytes(data)
    (tmp_path / "files" / "digest").write_bytes(b"an artifact")
    setting = {"ports": [0, 0], "root": "C:\\root.cer", "lines": ["certutil", "echo ADDRESS name>>hosts"]}
    (tmp_path / "set-up.json").write_text(json.dumps(setting))
    for name, one in {"a": case({"run": "x"}), "b": case(restart=True, id="b/case"), "c": case(id="c/case")}.items():
        (tmp_path / "cases" / f"{name}.json").write_text(json.dumps(one))
    return tmp_path


def carry_out(monkeypatch: pytest.MonkeyPatch, machine: Scripted, *arguments: str) -> int:
    monkeypatch.setattr(program, "open_machine", lambda _: machine)
    monkeypatch.setattr(program, "Server", Deaf)
    return program.main(list(arguments))


def test_one_line_a_case_and_json(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = Scripted(reg=[(0, BUILD, "")], x=[(1, "two\r\nlines \x81", "")])
    results = folder / "results.json"

    code = carry_out(
        monkeypatch, machine, str(folder), "--no-restart", "--json", str(results), "--address", "192.0.2.1"
    )

    assert code == 1
    assert [re.sub(r"\d+\.\d", "N", line) for line in capsys.readouterr().out.splitlines()] == [
        "failed a/case (N s): step 1 (x): it ended with 1, not with 0",
        "left out b/case (N s): it needs a restart",
        "passed c/case (N s)",
        "1 passed, 1 left out, 3 in all",
    ]
    written = json.loads(results.read_text("ascii"))
    assert (written["build"], [one["result"] for one in written["results"]]) == (
        "20348",
        ["failed", "left out", "passed"],
    )
    assert written["results"][0]["shown"] == "two\r\nlines \x81"
    assert "echo 192.0.2.1 name>>hosts" in machine.lines
    assert machine.files["C:\\root.cer"] == (folder / "tls" / "root.cer").read_bytes()


@pytest.mark.parametrize(
    ("machine", "arguments", "code"),
    [
        (Scripted(reg=[(0, BUILD, "")]), ["--only", "c/*"], 0),
        (Scripted(reg=[(0, BUILD, "")]), ["--only", "none/*"], 2),
        (Scripted(reg=[(1, "", "access is denied")]), [], 2),
        (Scripted(reg=[(0, BUILD, "")], certutil=[(5, "", "denied")]), [], 2),
    ],
)
def test_exit_codes(
    machine: Scripted, arguments: list[str], code: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert carry_out(monkeypatch, machine, str(folder), *arguments) == code


def test_cases_of_another_version_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "cases" / "a.json").write_text(json.dumps(case(case_version=2)))
    assert carry_out(monkeypatch, Scripted(), str(folder)) == 2


def test_this_machine_is_no_windows(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main([str(folder)]) == 2
    assert "this is not Windows: --machine names a class" in capsys.readouterr().err


def test_another_machine_is_a_class_of_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "windows_case_machine.py").write_text("class Mine:\n    name = 'mine'\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert type(program.open_machine("windows_case_machine:Mine")).__name__ == "Mine"


class Process:
    """A program that hangs, or ends with 3."""

    pid = 7

    def __init__(self, command: str, *, hangs: bool, out: IO[bytes]) -> None:
        self.command, self.hangs = command, hangs
        out.write(b"shown")

    def wait(self, timeout: float) -> int:
        if self.hangs:
            raise subprocess.TimeoutExpired(self.command, timeout)
        return 3


def test_this_machine_runs_a_line_by_its_command_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []
    ended: list[list[str]] = []

    def start(command: str, **options: Any) -> Process:  # noqa: ANN401 - those of subprocess
        started.append(command)
        return Process(command, hangs="hang" in command, out=options["stdout"])

    monkeypatch.setattr(subprocess, "Popen", start)
    monkeypatch.setattr(subprocess, "run", lambda command, **_: ended.append(command))
    here = object.__new__(program.Here)

    assert here.run('reg query "HKLM\\A B" & exit 3', 5) == (3, "shown", "")
    assert started == [rf'{program.SYSTEM}\cmd.exe /d /s /c "reg query "HKLM\A B" & exit 3"']
    with pytest.raises(TimeoutError, match=r"^it did not end within 5 s, and had printed: shown$"):
        here.run("hang", 5)
    assert ended == [[rf"{program.SYSTEM}\taskkill.exe", "/F", "/T", "/PID", "7"]]


def test_options_say_what_is_needed() -> None:
    options: argparse.Namespace = program.read_options(["folder", "--only", "a/*", "--only", "b/*", "--machine", "m:C"])
    assert (options.folder, options.only, options.machine) == (Path("folder"), ["a/*", "b/*"], "m:C")


@pytest.fixture
def ask(folder: Path) -> Iterator[Callable[..., tuple[int, bytes]]]:
    """Ask the server of a case for a path, by its name and with its root."""
    with contextlib.ExitStack() as stack:
        listeners = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2)]
        ports = [listener.getsockname()[1] for listener in listeners]
    with contextlib.closing(program.Server(folder, ports)) as server:

        def get(path: str, headers: dict[str, str] | None = None) -> tuple[int, bytes]:
            tls = ssl.create_default_context(cadata=(folder / "tls" / "root.cer").read_text())
            connection = http.client.HTTPSConnection("localhost", ports[0], context=tls, timeout=30)
            with contextlib.closing(connection):
                connection.request("GET", path, headers=headers or {})
                answer = connection.getresponse()
                return answer.status, answer.read()

        get.server = server  # type: ignore[attr-defined]  # the test reads its requests
        yield get


@pytest.mark.e2e
def test_the_server_answers_as_the_case_says(ask: Any) -> None:  # noqa: ANN401 - a function with its server
    answers = [{"status": 503}, {"file": "digest", "cut": 4}, {"file": "digest"}]
    ask.server.show({"/a": answers, "/b": [{"location": "https://other.imagegen.test/a"}]})

    assert ask("/a")[0] == 503
    with pytest.raises(http.client.IncompleteRead):
        ask("/a")
    assert ask("/a?x=1", {"Authorization": "Bearer x"}) == ask("/a") == (200, b"an artifact")
    assert ask("/b")[0] == 302
    assert ask("/none")[0] == 404
    assert [line.partition(" ")[2] for line in ask.server.requests][2:4] == [
        "/a?x=1 with credentials",
        "/a without credentials",
    ]
