"""Runs command lines and batch files on the model machine. A command that it does not know fails the boot.

`Shell(programs).run(process)` starts a process as Windows does. `programs` are those that the image brings, by the
name of their file. A program runs only if its file is on the model's disk.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from imagegen.rehearsal.boot.batch import Cmd, command_line_words
from imagegen.rehearsal.boot.model import Process
from imagegen.rehearsal.boot.programs import NoSuchProgramError, Programs, is_file, split_words
from imagegen.rehearsal.boot.taken_as_run import run_powershell
from imagegen.rehearsal.boot.windows_programs import WINDOWS_PROGRAMS, refused
from imagegen.rehearsal.machine.refusal import NoSuchFile

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imagegen.rehearsal.boot.model import Ended, Program
    from imagegen.rehearsal.machine.windows import Machine


class Shell:
    """`unchecked` gets what the machine took as run."""

    def __init__(self, programs: Mapping[str, Program], unchecked: list[str]) -> None:
        own: dict[str, Program] = {
            "cmd.exe": self._run_cmd,
            "powershell.exe": lambda process: run_powershell(process, unchecked),
        }
        self._programs = Programs({**WINDOWS_PROGRAMS, **programs, **own}, self._run_batch)

    def run(self, process: Process) -> Ended:
        """Start a program, or a batch file, by its arguments. A line for cmd is the argument after `/c`."""
        try:
            return self._programs.start(process)
        except NoSuchProgramError as missing:
            raise NoSuchFile(f"cannot find the program {missing} (error 2)") from None

    def run_line(self, machine: Machine, line: str) -> Ended:
        """Start a program by its command line, as SYSTEM."""
        words = split_words(line)
        is_cmd = bool(words) and re.fullmatch(r"(?i)(.*[\\/])?cmd(\.exe)?", words[0]) is not None
        return self.run(Process(machine, tuple(command_line_words(line) if is_cmd else words)))

    def _run_batch(self, process: Process) -> Ended:
        return Cmd(self._programs, process).run_file()

    def _run_cmd(self, process: Process) -> Ended:
        option, *words = [*process.arguments[1:], ""]
        if option.lower() != "/c" or not words[0]:
            raise refused(process)
        line = " ".join(filter(None, words))
        return Cmd(self._programs, process).run_line(_without_outer_quotes(process, line))


def _without_outer_quotes(process: Process, line: str) -> str:
    """What cmd does with a line that begins with a quote: it keeps the quotes only around the name of one program."""
    if not line.startswith('"'):
        return line
    inside, end, rest = line[1:].partition('"')
    is_program = line.count('"') == 2 and not rest and bool(end) and not re.search(r"[&<>()@^|]", inside)
    if is_program and " " in inside and is_file(process.machine, inside):
        return line
    body, _, after = line[1:].rpartition('"')
    return body + after if body else line[1:]
