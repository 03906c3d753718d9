"""Carries rendered cases out on a Windows machine: by the command lines that Packer sends, judged by what the machine
says and by what Windows' own commands show. Standard library only, and one file: copy it to the machine with the cases.

    python run.py FOLDER [--only PATTERN] [--no-restart] [--json FILE] [--machine MODULE:CLASS]

tests/windows/README.md says what a machine must be like, and what a class for --machine has.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import http.server
import importlib
import json
import os
import re
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

CASE_VERSION = 1
EVENT, CHECK = "imagegen: ", "imagegen-check: "
# Of the output of a failed step, in the results; and the seconds for a program that was ended to go.
KEPT_CHARACTERS, KILL_S = 4000, 30
BUILD_LINE = r'reg query "HKLM\SOFTWARE\Microsoft\Windows NT\CurrentVersion" /v CurrentBuildNumber'

# Absent elsewhere than on Windows.
SYSTEM = os.environ.get("SYSTEMROOT", r"C:\Windows") + r"\System32"

Step = dict[str, Any]
Case = dict[str, Any]


class Failure(Exception):
    """A step did not do what its case says."""


class LeftOut(Exception):
    """A case cannot be carried out on this machine."""


class Machine(Protocol):
    """A Windows machine."""

    def run(self, line: str, timeout_s: float) -> tuple[int, str, str]:
        """Exit code, standard output and standard error of a command line of cmd.exe. TimeoutError: it did not end."""

    def put(self, data: bytes, path: str) -> None:
        """Write a file, and the folders above it."""

    def get(self, path: str) -> bytes:
        """Return a file's bytes. FileNotFoundError: there is none."""

    def restart(self) -> None:
        """Restart Windows, and return when it runs commands again."""


def decode(data: bytes) -> str:
    """Return a program's output as text. Few programs write UTF-16 to a file; most write the console's code page."""
    if data[1::2].count(0) > len(data) // 4:
        return data.decode("utf-16-le", "replace").lstrip("\ufeff")
    return data.decode("oem" if os.name == "nt" else "cp437", "replace")


class Here:
    """The machine on which this program runs."""

    def __init__(self) -> None:
        if os.name != "nt":
            raise LeftOut("this is not Windows: --machine names a class for another machine")
        if struct.calcsize("P") != 8:
            raise LeftOut("this is a 32-bit Python, to which Windows shows other folders and keys: use a 64-bit one")

    def run(self, line: str, timeout_s: float) -> tuple[int, str, str]:
        # Files, not pipes: a program that outlives its parent, such as a service, may keep a pipe open.
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            # As WinRM does: cmd.exe gets the line as it is. With /s it takes off the outer quotes only.
            command = f'{SYSTEM}\\cmd.exe /d /s /c "{line}"'
            # PowerShell 7 puts its own modules there, which Windows PowerShell would then load.
            own = {name: value for name, value in os.environ.items() if name.upper() != "PSMODULEPATH"}
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=own)  # noqa: S603
            try:
                code = process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self._end(process)
                out.seek(0)
                shown = decode(out.read())[-KEPT_CHARACTERS:]
                raise TimeoutError(f"it did not end within {timeout_s:.0f} s, and had printed: {shown}") from None
            out.seek(0)
            err.seek(0)
            return code, decode(out.read()), decode(err.read())

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        taskkill = [f"{SYSTEM}\\taskkill.exe", "/F", "/T", "/PID", str(process.pid)]
        with contextlib.suppress(subprocess.SubprocessError, OSError):
            subprocess.run(taskkill, capture_output=True, check=False, timeout=KILL_S)  # noqa: S603
        with contextlib.suppress(subprocess.SubprocessError):
            process.wait(KILL_S)

    def put(self, data: bytes, path: str) -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_bytes(data)

    def get(self, path: str) -> bytes:
        return Path(path).read_bytes()

    def restart(self) -> None:
        raise LeftOut("this machine cannot restart itself and go on")


class Server:
    """Serves the artifacts of a case: over HTTPS, and on a second port without TLS."""

    def __init__(self, folder: Path, ports: Sequence[int]) -> None:
        self._folder = folder
        self._routes: dict[str, list[Mapping[str, Any]]] = {}
        self.requests: list[str] = []
        self._lock = threading.Lock()
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(folder / "tls" / "server.pem")
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            # A client that goes away must not keep its thread.
            timeout = 60

            def do_GET(self) -> None:
                outer.answer(self)

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing: each request is in the results."""

        class Listener(http.server.ThreadingHTTPServer):
            daemon_threads = True
            # On Windows, this option would let two programs listen at one port.
            allow_reuse_address = os.name != "nt"

            def handle_error(self, request: object, client_address: object) -> None:
                """Say nothing: a client may hang up."""

        self._listeners = [Listener(("0.0.0.0", port), Handler) for port in ports]  # noqa: S104
        # The handshake belongs to the thread of its connection: a client that says nothing must not keep the others.
        secure = self._listeners[0]
        secure.socket = tls.wrap_socket(secure.socket, server_side=True, do_handshake_on_connect=False)
        for listener in self._listeners:
            threading.Thread(target=listener.serve_forever, daemon=True).start()

    def close(self) -> None:
        for listener in self._listeners:
            listener.shutdown()
            listener.server_close()

    def show(self, routes: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        """Serve these paths from now on. The last answer of a path is repeated."""
        with self._lock:
            self._routes, self.requests = {path: list(answers) for path, answers in routes.items()}, []

    def answer(self, handler: http.server.BaseHTTPRequestHandler) -> None:
        path = handler.path.partition("?")[0]
        has = "with" if handler.headers.get("Authorization") else "without"
        with self._lock:
            answers = self._routes.get(path) or [{"status": 404}]
            answer = answers.pop(0) if len(answers) > 1 else answers[0]
            self.requests.append(f"{handler.headers.get('Host')} {handler.path} {has} credentials")
        data = (self._folder / "files" / answer["file"]).read_bytes() if "file" in answer else b""
        handler.close_connection = True
        handler.send_response(answer.get("status", 302 if "location" in answer else 200))
        if "location" in answer:
            handler.send_header("Location", answer["location"])
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        # Cut off, a body ends before its length: the connection is closed.
        handler.wfile.write(data[: answer.get("cut", len(data))])


class Run:
    """One case on one machine."""

    def __init__(self, machine: Machine, folder: Path, server: Server | None, build: str) -> None:
        self._machine, self._folder, self._server, self._build = machine, folder, server, build
        self._ends = time.monotonic()
        # What the last step printed or read.
        self.shown = ""

    def carry_out(self, case: Case) -> None:
        """Carry out the steps. Failure names the first that did not do what the case says."""
        if self._build not in case["builds"]:
            raise LeftOut(f"it is rendered for the builds {', '.join(case['builds'])}, not {self._build}")
        self._ends = time.monotonic() + case["timeout_s"]
        if self._server is not None:
            self._server.show(case["serves"])
        try:
            self._clean(case["clean"])
            for number, step in enumerate(case["steps"], 1):
                self.shown = ""
                try:
                    self._do(step)
                except Failure as failure:
                    verb, value = next(iter(step.items()))
                    name = verb if value is True else self._of_build(value)[:300]
                    raise Failure(f"step {number} ({name}): {failure}") from None
        finally:
            # The next case must find the machine as this one did, also when this one's time is over.
            with contextlib.suppress(Exception):
                self._clean(case["clean"])

    def _clean(self, lines: Sequence[str]) -> None:
        for line in lines:
            with contextlib.suppress(TimeoutError):
                self._machine.run(line, 120)

    def _of_build(self, value: str | dict[str, str]) -> str:
        """Return a text, or that of the machine's build where the builds differ."""
        return value[self._build] if isinstance(value, dict) else value

    def _do(self, step: Step) -> None:
        verb = next(iter(step))
        if verb == "run":
            self._run(step)
        elif verb == "put":
            data = (self._folder / "files" / self._of_build(step["file"])).read_bytes()
            self._machine.put(data, step["put"])
        elif verb == "get":
            try:
                self.shown = decode(self._machine.get(step["get"]))
            except FileNotFoundError:
                raise Failure("there is no such file") from None
            judge_text(step, self.shown)
        elif verb == "requests":
            self.shown = "\n".join(self._server.requests if self._server else [])
            judge_text(step, self.shown)
        elif verb == "restart":
            self._machine.restart()
        else:
            raise Failure(f"this program has no verb {verb}: it is older than the cases")

    def _run(self, step: Step) -> None:
        timeout_s = min(step.get("timeout_s", 120), self._ends - time.monotonic())
        if timeout_s <= 0:
            raise Failure("the case has no time left")
        try:
            code, out, err = self._machine.run(self._of_build(step["run"]), timeout_s)
        except TimeoutError as error:
            raise Failure(f"{error}") from None
        self.shown = out + err
        codes = step.get("codes", [0])
        if codes and signed(code) not in [signed(one) for one in codes]:
            raise Failure(f"it ended with {code}, not with {' or '.join(map(str, codes))}")
        judge_text(step, self.shown)
        if "events" in step:
            judge_events(step["events"], out)
        if "check" in step:
            judge_check(step["check"], out)


def signed(code: int) -> int:
    """Return an exit code as Windows counts it, with 32 bits: some callers show the highest bit as a sign."""
    return (code + 2**31) % 2**32 - 2**31


def judge_text(step: Mapping[str, Any], text: str) -> None:
    """Compare a text with the expressions that must and must not be found in it."""
    text = text.replace("\r\n", "\n")
    for pattern in step.get("has", []):
        if re.search(pattern, text, re.MULTILINE) is None:
            raise Failure(f"it does not show {pattern!r}")
    for pattern in step.get("lacks", []):
        if (found := re.search(pattern, text, re.MULTILINE)) is not None:
            raise Failure(f"it shows {found[0]!r}, which it must not")


def read_objects(marker: str, text: str) -> list[dict[str, Any]]:
    """Return the JSON objects of the lines that begin with a marker."""
    found = []
    for line in text.splitlines():
        if not line.startswith(marker):
            continue
        if not line.isascii():
            raise Failure(f"a line is not ASCII: {line[:200]!r}")
        try:
            one = json.loads(line.removeprefix(marker))
        except ValueError:
            raise Failure(f"a line is not whole: {line[:200]!r}") from None
        found.append(one if isinstance(one, dict) else {"event": "none"})
    return found


def fits(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    """Return the first difference. A reason is an expression that must be found in it; an empty one means none."""
    for key, value in wanted.items():
        have = found.get(key)
        if key == "reason" and value:
            if not isinstance(have, str) or re.search(value, have) is None:
                return f"its reason is {have!r}, not {value!r}"
        elif have != value:
            return f"its {key} is {have!r}, not {value!r}"
    return ""


def judge_events(wanted: Sequence[Mapping[str, Any]], text: str) -> None:
    """Compare the events of resources and phases, one by one and in order, and artifacts that the case names."""
    of_case = {one["event"] for one in wanted} | {"resource", "phase"}
    found = [one for one in read_objects(EVENT, text) if one.get("event") in of_case]
    for number, expected in enumerate(wanted):
        if number >= len(found):
            raise Failure(f"there is no event {json.dumps(expected)}")
        if difference := fits(expected, found[number]):
            raise Failure(f"event {number + 1}, {json.dumps(found[number])[:300]}: {difference}")
    if len(found) > len(wanted):
        raise Failure(f"there is one more event: {json.dumps(found[len(wanted)])}")


def judge_check(wanted: Mapping[str, str], text: str) -> None:
    """Compare the last line of -Check: the resources that are not as planned, and why."""
    found = read_objects(CHECK, text)
    if len(found) != 1:
        raise Failure(f"there are {len(found)} lines of the result, not one")
    resources = found[0].get("resources", [])
    others = {one.get("id"): "; ".join(one.get("reasons", [])) for one in resources if one.get("status") != "ok"}
    if others.keys() != wanted.keys():
        raise Failure(f"not as planned: {sorted(map(str, others))}, and the case says {sorted(wanted)}")
    for name, pattern in wanted.items():
        if re.search(pattern, others[name]) is None:
            raise Failure(f"the reason of {name} is {others[name]!r}, not {pattern!r}")


def read_cases(folder: Path, only: Sequence[str]) -> list[Case]:
    cases = [json.loads(path.read_text("utf-8")) for path in sorted((folder / "cases").glob("*.json"))]
    if [case for case in cases if case["case_version"] != CASE_VERSION]:
        raise LeftOut("the cases are of another version than this program: render them again")
    return [case for case in cases if not only or any(fnmatch.fnmatch(case["id"], pattern) for pattern in only)]


def read_build(machine: Machine) -> str:
    code, out, err = machine.run(BUILD_LINE, 60)
    found = re.search(r"REG_SZ\s+(\d+)", out)
    if code != 0 or found is None:
        raise LeftOut(f"the machine does not say its build: {out}{err}")
    return found[1]


def set_up(machine: Machine, folder: Path, setting: Mapping[str, Any], address: str) -> None:
    """Make the machine trust the server of the artifacts, and find it by its names."""
    machine.put((folder / "tls" / "root.cer").read_bytes(), setting["root"])
    for line in setting["lines"]:
        code, out, err = machine.run(line.replace("ADDRESS", address), 120)
        if code != 0:
            raise LeftOut(f"the machine cannot be set up: {line} ended with {code}: {out}{err}")


def attempt(run: Run, case: Case, left_out: str) -> dict[str, Any]:
    """Carry a case out. Return its result."""
    began = time.monotonic()
    result, reason, shown = "passed", "", ""
    try:
        if left_out:
            raise LeftOut(left_out)
        run.carry_out(case)
    except LeftOut as error:
        result, reason = "left out", str(error)
    except Failure as error:
        result, reason, shown = "failed", str(error), run.shown[-KEPT_CHARACTERS:]
    # Whatever a class of somebody else raises ends one case, and not the others.
    except Exception as error:
        result, reason, shown = "error", f"{type(error).__name__}: {error}", run.shown[-KEPT_CHARACTERS:]
    seconds = round(time.monotonic() - began, 1)
    return {
        "id": case["id"],
        "subject": case["subject"],
        "result": result,
        "reason": reason,
        "shown": shown,
        "s": seconds,
    }


def carry_out_all(machine: Machine, options: argparse.Namespace) -> list[dict[str, Any]]:
    cases = read_cases(options.folder, options.only)
    setting = json.loads((options.folder / "set-up.json").read_text("utf-8"))
    build, results = read_build(machine), []
    set_up(machine, options.folder, setting, options.address)
    with contextlib.closing(Server(options.folder, setting["ports"])) as server:
        for case in cases:
            left_out = "it needs a restart" if options.no_restart and case["restart"] else ""
            result = attempt(Run(machine, options.folder, server, build), case, left_out)
            results.append(result)
            reason = f": {result['reason']}" if result["reason"] else ""
            # One line each: a reason may have the lines of a program.
            print(" ".join(f"{result['result']:8} {case['id']} ({result['s']} s){reason}".split()), flush=True)
            if options.json:
                write_results(options.json, build, results)
    return results


def write_results(path: Path, build: str, results: Sequence[Mapping[str, Any]]) -> None:
    """Write what is known so far: a machine that goes away takes only what comes after it."""
    text = json.dumps({"results_version": 1, "build": build, "results": results}, indent=1)
    path.write_text(text + "\n", "ascii")


def open_machine(name: str) -> Machine:
    if not name:
        return Here()
    module, _, attribute = name.partition(":")
    # A class beside the caller, as `python -m` finds it.
    sys.path.insert(0, str(Path.cwd()))
    return cast(Machine, getattr(importlib.import_module(module), attribute)())


def read_options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="run.py", description="Carries rendered cases out on a Windows machine.")
    parser.add_argument("folder", type=Path, help="what `make windows-cases OUT=FOLDER` wrote")
    parser.add_argument("--only", action="append", default=[], metavar="PATTERN", help="cases by name: 'service/*'")
    parser.add_argument("--no-restart", action="store_true", help="leave out what needs a restart of Windows")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to this file")
    parser.add_argument("--machine", default="", metavar="MODULE:CLASS", help="another machine than this one")
    parser.add_argument("--address", default="127.0.0.1", help="where the machine reaches this program")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    """Return 0 if no case failed, 1 if one did, and 2 if none could be carried out."""
    options = read_options(arguments)
    # A code page need not have every character of a program's output.
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        results = carry_out_all(open_machine(options.machine), options)
    except (LeftOut, OSError) as error:
        print(f"failed: {error}", file=sys.stderr)
        return 2
    kinds = [result["result"] for result in results]
    print(f"{kinds.count('passed')} passed, {kinds.count('left out')} left out, {len(kinds)} in all")
    if {"failed", "error"} & set(kinds):
        return 1
    return 0 if "passed" in kinds else 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
