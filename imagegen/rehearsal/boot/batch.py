"""Runs command lines and batch files as cmd.exe does. What this interpreter does not know is refused by name."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from typing import TYPE_CHECKING

from imagegen.rehearsal.boot.batch_syntax import Command, Redirect, parse_line
from imagegen.rehearsal.boot.model import Ended, UnknownCommandError
from imagegen.rehearsal.boot.programs import (
    BATCH_FILES,
    NoSuchProgramError,
    full_path,
    is_file,
    split_words,
    variables_of,
)
from imagegen.rehearsal.machine.files import parent
from imagegen.rehearsal.machine.refusal import RefusedByWindows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from imagegen.rehearsal.boot.model import Process
    from imagegen.rehearsal.boot.programs import Programs

NOT_RECOGNISED = 9009
_NO_PATH = "The system cannot find the path specified.\r\n"
_NO_PROGRAM = "'{}' is not recognized as an internal or external command,\r\noperable program or batch file.\r\n"
_BAD_SYNTAX = "The syntax of the command is incorrect.\r\n"


class _BatchEnded(Exception):
    """`exit /b`, or the end of a batch file that another one took over from."""


class _CmdEnded(Exception):
    """`exit`: the whole interpreter ends."""


class Cmd:
    """One cmd.exe. Its current folder and its variables end with it."""

    def __init__(self, programs: Programs, process: Process) -> None:
        self._programs = programs
        self._process = process
        self._variables = variables_of(process)
        self._folder = process.folder
        self._output: list[tuple[int, str]] = []
        """By stream. A program's whole output counts as its standard output."""
        self._echo = True
        self._level = 0
        self._batch: Sequence[str] = ()
        """The batch file that runs, and its arguments. Empty for a command line."""
        self._place = ""

    def run_line(self, line: str) -> Ended:
        """What `cmd /c LINE` does."""
        self._place = line
        with contextlib.suppress(_CmdEnded):
            self._run(line)
        return self._ended()

    def run_file(self) -> Ended:
        """Run the batch file that the process names."""
        with contextlib.suppress(_CmdEnded):
            self._run_batch(self._process.arguments)
        return self._ended()

    def _ended(self) -> Ended:
        return Ended(self._level, "".join(text for _, text in self._output))

    def _run_batch(self, words: Sequence[str]) -> None:
        outer, self._batch = self._batch, tuple(words)
        text = self._process.machine.files.read(words[0]).decode("utf-8", errors="replace")
        try:
            for number, line in enumerate(text.splitlines(), start=1):
                self._place = f"{words[0]}, line {number}: {line.strip()}"
                if line.strip():
                    self._run(line)
        except _BatchEnded:
            pass
        self._batch = outer

    def _run(self, line: str) -> int:
        line = self._expand(line).strip()
        silent = line.startswith("@")
        if self._batch and self._echo and not silent:
            self._say(f"\r\n{self._folder}>{line}\r\n")
        code = 0
        for alternatives in parse_line(line.lstrip("@ "), self._refuse):
            for chain in alternatives:
                for command in chain:
                    code = self._run_command(command)
                    if code:
                        break
                if not code:
                    break
        return code

    def _expand(self, line: str) -> str:
        def value(match: re.Match[str]) -> str:
            if match[0] == "%%":
                return "%" if self._batch else "%%"
            if match["argument"]:
                return self._argument(match["argument"])
            name = match["name"]
            special = {"errorlevel": str(self._level), "cd": self._folder}
            found = self._variables.get(name) or special.get(name.lower())
            # An unknown name is empty in a batch file, and stays in a command line.
            return found if found is not None else "" if self._batch else match[0]

        return re.sub(r"%%|%(?P<argument>~dp0|[0-9*])|%(?P<name>[^%\s:]+)%", value, line)

    def _argument(self, which: str) -> str:
        if not self._batch:
            return f"%{which}"
        if which == "*":
            return " ".join(self._batch[1:])
        if which == "~dp0":
            return parent(self._batch[0]) + "\\"
        return self._batch[int(which)] if int(which) < len(self._batch) else ""

    # ---- one command

    def _run_command(self, command: Command) -> int:
        """Run a command, and write its output where its redirections say."""
        before, self._output = self._output, []
        try:
            code = self._dispatch(command.text) if self._open(command.redirects) else self._fail(_NO_PATH)
        finally:
            written, self._output = self._output, before
            self._write(command.redirects, written)
        return code

    def _open(self, redirects: Sequence[Redirect]) -> bool:
        """Make the files to which the output goes. Whether that was possible."""
        files = self._process.machine.files
        try:
            for one in redirects:
                if path := self._file_of(one):
                    files.write(path, files.read(path) if one.appends and files.is_file(path) else b"")
        except RefusedByWindows:
            return False
        return True

    def _write(self, redirects: Sequence[Redirect], written: Sequence[tuple[int, str]]) -> None:
        goes_to: dict[int, Redirect | int] = {1: 1, 2: 2}
        for one in redirects:
            goes_to[one.stream] = goes_to[int(one.target[1])] if one.target in ("&1", "&2") else one
        files = self._process.machine.files
        for stream, text in written:
            place = goes_to[stream]
            if isinstance(place, int):
                self._output.append((place, text))
            elif (path := self._file_of(place)) and is_file(self._process.machine, path):
                files.write(path, files.read(path) + text.encode())

    def _file_of(self, redirect: Redirect) -> str | None:
        """The file to which a stream is redirected."""
        if redirect.target.lower() in ("nul", "&1", "&2"):
            return None
        return full_path(self._folder, redirect.target)

    def _dispatch(self, text: str) -> int:
        """Run a command without redirections. Its code decides what follows; the level is what it leaves behind."""
        text = text.lstrip("@ ")
        match = re.match(r"(?i)(echo|cd|chdir)(?=[.\\])|\S+", text)
        name = match[0] if match else ""
        own = self._own_commands().get(name.lower())
        return own(text[len(name) :]) if own else self._start(text)

    def _own_commands(self) -> dict[str, Callable[[str], int]]:
        return {
            "rem": lambda _: 0,
            "echo": self._do_echo,
            "cd": self._change_folder,
            "chdir": self._change_folder,
            "mkdir": self._make_folder,
            "md": self._make_folder,
            "set": self._set,
            "exit": self._exit,
            "call": self._call,
        }

    def _refuse(self, what: str) -> UnknownCommandError:
        return UnknownCommandError(f"the rehearsal does not know {what} of cmd: {self._place}")

    def _say(self, text: str) -> None:
        self._output.append((1, text))

    def _fail(self, message: str, code: int = 1) -> int:
        self._output.append((2, message))
        self._level = code
        return code

    def _do_echo(self, rest: str) -> int:
        if rest.strip().lower() in ("on", "off"):
            self._echo = rest.strip().lower() == "on"
        elif not rest.strip():
            self._say(f"ECHO is {'on' if self._echo else 'off'}.\r\n")
        else:
            self._say(f"{rest[1:]}\r\n" if rest != "." else "\r\n")
        return 0

    def _change_folder(self, rest: str) -> int:
        target = re.sub(r"(?i)^\s*/d\s", "", rest).strip().strip('"')
        if not target:
            self._say(f"{self._folder}\r\n")
            return 0
        path = full_path(self._folder, target)
        try:
            found = self._process.machine.files.is_folder(path)
        except RefusedByWindows:
            found = False
        if not found:
            return self._fail(_NO_PATH)
        self._folder, self._level = path, 0
        return 0

    def _make_folder(self, rest: str) -> int:
        if re.search(r"/", re.sub(r'"[^"]*"', "", rest)):
            return self._fail(_BAD_SYNTAX)  # what follows a slash is an option, and mkdir has none
        names = split_words(rest)
        if not names:
            return self._fail(_BAD_SYNTAX)
        for name in names:
            path = full_path(self._folder, name)
            try:
                if self._process.machine.files.exists(path):
                    return self._fail(f"A subdirectory or file {name} already exists.\r\n")
                self._process.machine.files.make_folder(path)
            except RefusedByWindows as refusal:
                return self._fail(f"{refusal}\r\n")
        self._level = 0
        return 0

    def _set(self, rest: str) -> int:
        text = rest.strip()
        if text.startswith('"'):
            text = text[1:].rpartition('"')[0] or text[1:]
        name, equals, value = text.partition("=")
        if not equals or name.startswith("/"):
            raise self._refuse("this form of set")
        self._variables.set(name, value)
        return 0

    def _exit(self, rest: str) -> int:
        match = re.fullmatch(r"(?i)\s*(/b)?\s*(-?[0-9]+)?\s*", rest)
        if match is None:
            raise self._refuse("this form of exit")
        if match[2]:
            self._level = int(match[2])
        raise _BatchEnded if match[1] and self._batch else _CmdEnded

    def _call(self, rest: str) -> int:
        if rest.strip().startswith(":"):
            raise self._refuse("labels")
        return self._start(rest.strip(), calls=True)

    def _start(self, text: str, *, calls: bool = False) -> int:
        process = dataclasses.replace(self._process, folder=self._folder, environ=self._variables.all())
        words = tuple(split_words(text))
        if words[0].lower() in ("cmd", "cmd.exe"):
            words = tuple(command_line_words(text))
        elif words[0].lower() in _UNKNOWN:
            raise self._refuse(f"the command '{words[0]}'")
        if path := self._batch_file(words[0]):
            self._run_batch((path, *words[1:]))
            if self._batch and not calls:
                raise _BatchEnded  # without `call` there is no way back
            return self._level
        try:
            ended = self._programs.start(dataclasses.replace(process, arguments=words))
        except NoSuchProgramError as missing:
            # Only a batch file sees the number of this error.
            return self._fail(_NO_PROGRAM.format(missing), NOT_RECOGNISED if self._batch else 1)
        self._say(ended.output)
        self._level = ended.exit_code
        return ended.exit_code

    def _batch_file(self, name: str) -> str | None:
        path = full_path(self._folder, name)
        return path if name.lower().endswith(BATCH_FILES) and is_file(self._process.machine, path) else None


# Commands of cmd itself that this interpreter does not have.
_UNKNOWN = frozenset(
    {
        *(
            "assoc",
            "break",
            "cls",
            "color",
            "copy",
            "date",
            "del",
            "dir",
            "endlocal",
            "erase",
            "for",
            "ftype",
            "goto",
            "if",
        ),
        *("mklink", "move", "path", "pause", "popd", "prompt", "pushd", "rd", "ren", "rename", "rmdir", "setlocal"),
        *("shift", "start", "time", "title", "type", "ver", "verify", "vol"),
    }
)


def command_line_words(line: str) -> list[str]:
    """Program, option and the untouched rest of a line that starts cmd."""
    match = re.match(r'\s*("[^"]+"|\S+)(?:\s+(/\S+))?\s*(.*)', line, re.DOTALL)
    return [match[1].strip('"'), match[2] or "", match[3]] if match else []
