"""Runs PowerShell as powershell.exe of Windows PowerShell 5.1 does, with a few statements and cmdlets."""

from __future__ import annotations

import dataclasses
import ntpath
import re
from typing import TYPE_CHECKING

from imagegen.rehearsal.boot.cmdlets import CMDLETS, Given
from imagegen.rehearsal.boot.model import Ended, UnknownCommandError
from imagegen.rehearsal.boot.powershell_syntax import (
    Assignment,
    Call,
    Exit,
    If,
    Pipeline,
    Text,
    Throw,
    Variable,
    parse_script,
    refusal,
)
from imagegen.rehearsal.boot.programs import NoSuchProgramError, full_path, is_file, variables_of
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.machine.script_policy import REFUSED, find_refusal
from imagegen.trust.block import without_signature

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from imagegen.rehearsal.boot.cmdlets import Cmdlet
    from imagegen.rehearsal.boot.model import OwnScripts, Process, Program
    from imagegen.rehearsal.boot.powershell_syntax import Condition, Expression, Statement
    from imagegen.rehearsal.boot.programs import Programs

_SWITCHES = ("-noprofile", "-noninteractive", "-nologo", "-sta", "-mta")
_WITH_VALUE = ("-executionpolicy", "-ep", "-windowstyle")
_COMMAND, _FILE = ("-command", "-c"), ("-file", "-f")
# What a cmdlet may be given besides its own parameters.
_COMMON_VALUES = ("erroraction", "warningaction")
_COMMON_SWITCHES = ("verbose",)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "0": "\0"}


class _ScriptEndedError(Exception):
    """`exit`, or an error that ends the script."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class PowerShell:
    """One powershell.exe. `scripts` are those whose effect is known by their bytes, and `own` the operator's."""

    def __init__(self, programs: Programs, process: Process, scripts: Mapping[bytes, Program], own: OwnScripts) -> None:
        self._programs = programs
        self._process = process
        self._scripts = scripts
        self._own = own
        self._environ = variables_of(process)
        self._variables: dict[str, str] = {"erroractionpreference": "Continue"}
        self._output: list[str] = []
        self._last_ok = True
        self._shown_as = ""

    def run(self) -> Ended:
        """What the process does with its arguments."""
        rest = list(self._process.arguments[1:])
        while rest and rest[0].lower() in (*_SWITCHES, *_WITH_VALUE):
            del rest[: 2 if rest[0].lower() in _WITH_VALUE else 1]
        if not rest:
            raise UnknownCommandError("the rehearsal has nobody who types commands into powershell")
        word = rest[0].lower()
        if word.startswith("-") and word not in (*_COMMAND, *_FILE):
            raise UnknownCommandError(f"the rehearsal does not know the option {rest[0]} of powershell")
        if word in _FILE:
            return self._run_file(rest[1:])
        text = " ".join(rest[1:] if word in _COMMAND else rest)
        code = self._run_text(text, f"the command line {text!r}")
        # With -Command the code says only whether the last command succeeded.
        return Ended(code if code is not None else int(not self._last_ok), "".join(self._output))

    def _run_file(self, words: Sequence[str]) -> Ended:
        path = full_path(self._process.folder, words[0]) if words else ""
        if not is_file(self._process.machine, path) or not path.lower().endswith(".ps1"):
            return Ended(-196608, f"The argument '{path}' to the -File parameter does not exist.\r\n")
        code = self._run_script(path, words[1:])
        return Ended(code or 0, "".join(self._output))

    def _run_script(self, path: str, words: Sequence[str]) -> int | None:
        """The code with which the script ended, if it did so itself."""
        if why := find_refusal(self._process.machine, path):
            self._output.append(f"{path} cannot be loaded: {why}\r\n")
            return REFUSED
        data = self._process.machine.files.read(path)
        if known := self._scripts.get(without_signature(data)):
            ended = known(dataclasses.replace(self._process, arguments=(path, *words)))
            self._output.append(ended.output)
            return ended.exit_code
        try:
            return self._interpret(path, data, words)
        except UnknownCommandError as unknown:
            if without_signature(data) not in self._own.known:
                raise
            # The boot goes on as if it had succeeded, and says so.
            self._own.limits.append(f"{path} to its end: {unknown}")
            return 0

    def _interpret(self, path: str, data: bytes, words: Sequence[str]) -> int | None:
        if words:
            raise UnknownCommandError(f"the rehearsal does not know what the arguments of {path} do")
        return self._run_text(data.decode("utf-8-sig", errors="replace"), path)

    def _run_text(self, text: str, shown_as: str) -> int | None:
        outer, self._shown_as = self._shown_as, shown_as
        # What a script sets is its own, except for the last program's exit code.
        variables, self._variables = self._variables, dict(self._variables)
        try:
            self._run_block(parse_script(text, shown_as))
        except _ScriptEndedError as ended:
            return ended.code
        finally:
            self._shown_as = outer
            self._variables = {**variables, "lastexitcode": self._variables.get("lastexitcode", "")}
        return None

    def _run_block(self, statements: Sequence[Statement]) -> None:
        for statement in statements:
            what = statement.what
            if isinstance(what, Assignment):
                self._assign(what, statement.line)
            elif isinstance(what, If):
                self._run_block(what.then if self._holds(what.condition, statement.line) else what.otherwise)
            elif isinstance(what, Exit):
                code = self._value(what.code)
                if not re.fullmatch(r"-?[0-9]+", code):
                    raise refusal(self._shown_as, statement.line, f"exit {code}")
                raise _ScriptEndedError(int(code))
            elif isinstance(what, Throw):
                self._output.append(f"{self._value(what.reason)}\r\n")
                self._last_ok = False
                raise _ScriptEndedError(1)
            else:
                self._output.extend(f"{line}\r\n" for line in self._run_pipeline(what, statement.line))

    def _assign(self, what: Assignment, line: int) -> None:
        value = self._value(what.value)
        if what.variable.startswith("env:"):
            self._environ.set(what.variable.removeprefix("env:"), value)
            return
        if what.variable == "erroractionpreference" and value.lower() not in ("stop", "continue", "silentlycontinue"):
            raise refusal(self._shown_as, line, f"$ErrorActionPreference = {value}")
        self._variables[what.variable] = value

    def _holds(self, condition: Condition, line: int) -> bool:
        if isinstance(condition.left, Call):
            lines = self._run_call(condition.left, (), line)
            holds = bool(lines) and lines[-1] not in ("", "False")
        else:
            left = self._value(condition.left)
            right = self._value(condition.right) if condition.right is not None else ""
            same = left.lower() == right.lower()
            holds = {"-eq": same, "-ne": not same}.get(condition.operator, left not in ("", "False", "0"))
        return holds != condition.negated

    def _run_pipeline(self, what: Pipeline, line: int) -> list[str]:
        lines: list[str] = []
        for part in what.parts:
            lines = self._run_call(part, lines, line) if isinstance(part, Call) else [self._value(part)]
        return lines

    # ---- a call

    def _run_call(self, call: Call, lines: Sequence[str], line: int) -> list[str]:
        name = self._value(call.words[0])
        cmdlet = CMDLETS.get(name.lower())
        if cmdlet is None:
            return self._run_program(call, line)
        given = self._bind(name, cmdlet, call.words[1:], line)
        action = given.pop("erroraction", self._variables["erroractionpreference"]).lower()
        try:
            found = cmdlet.run(Given(self._process.machine, self._process.folder, given, lines))
        except RefusedByWindows as failure:
            self._fail(f"{name} : {failure}", action)
            return []
        except (KeyError, ValueError) as error:
            raise refusal(self._shown_as, line, f"{name} with {error}") from error
        self._last_ok = True
        if cmdlet.writes_pipe:
            return found
        self._output.extend(f"{one}\r\n" for one in found)
        return []

    def _fail(self, message: str, action: str) -> None:
        self._last_ok = False
        if action != "silentlycontinue":
            self._output.append(f"{message}\r\n")
        if action == "stop":
            raise _ScriptEndedError(1)

    def _bind(self, name: str, cmdlet: Cmdlet, words: Sequence[Expression], line: int) -> dict[str, str]:
        """The cmdlet's parameters. An unknown one is refused."""
        given: dict[str, str] = {}
        rest, free = list(words), list(cmdlet.positional)
        while rest:
            word = rest.pop(0)
            parameter = word.text[1:].lower() if isinstance(word, Text) and word.bare and word.text[0] == "-" else ""
            if parameter and not re.fullmatch(r"[0-9.]+", parameter):
                if parameter in (*cmdlet.switches, *_COMMON_SWITCHES):
                    given[parameter] = "True"
                elif parameter in (*cmdlet.positional, *cmdlet.values, *_COMMON_VALUES) and rest:
                    given[parameter] = self._value(rest.pop(0))
                else:
                    raise refusal(self._shown_as, line, f"the parameter -{parameter} of {name}")
            else:
                free = [one for one in free if one not in given]
                if not free:
                    raise refusal(self._shown_as, line, f"another argument of {name}")
                given[free[0]] = self._value(word)
        return given

    def _run_program(self, call: Call, line: int) -> list[str]:
        words = [self._value(word) for word in call.words]
        path = full_path(self._process.folder, words[0])
        if words[0].lower().endswith(".ps1") and ntpath.basename(words[0]) != words[0]:
            if not is_file(self._process.machine, path):
                return self._not_found(words[0])
            code = self._run_script(path, words[1:])
            if code is not None:
                self._variables["lastexitcode"] = str(code)
            self._last_ok = not code
            return []
        if re.fullmatch(r"(?i)[a-z]+-[a-z]+", words[0]):
            raise refusal(self._shown_as, line, words[0])
        process = dataclasses.replace(self._process, arguments=tuple(words), environ=self._environ.all())
        try:
            ended = self._programs.start(process)
        except NoSuchProgramError:
            return self._not_found(words[0])
        self._variables["lastexitcode"] = str(ended.exit_code)
        self._last_ok = ended.exit_code == 0
        return ended.output.splitlines()

    def _not_found(self, name: str) -> list[str]:
        text = (
            f"The term '{name}' is not recognized as the name of a cmdlet, function, script file, or operable program."
        )
        self._fail(text, self._variables["erroractionpreference"].lower())
        return []

    # ---- values

    def _value(self, expression: Expression) -> str:
        if isinstance(expression, Variable):
            return self._variable(expression.name)
        return self._expand(expression.text) if expression.expands else expression.text

    def _variable(self, name: str) -> str:
        if name.startswith("env:"):
            return self._environ.get(name.removeprefix("env:")) or ""
        known = {"true": "True", "false": "False", "null": "", "?": str(self._last_ok), **self._variables}
        return known.get(name, "")

    def _expand(self, text: str) -> str:
        def replaced(match: re.Match[str]) -> str:
            if match["escaped"]:
                return _ESCAPES.get(match["escaped"], match["escaped"])
            if match["quote"]:
                return '"'
            name = match["braced"] or match["inner"] or match["plain"]
            if name is None:
                raise UnknownCommandError(f"the rehearsal does not know this PowerShell: {self._shown_as}: {text}")
            return self._variable(name.lower())

        pattern = (
            r'`(?P<escaped>.)|(?P<quote>"")|\$\{(?P<braced>[^}]+)\}|\$\(\$(?P<inner>(?:env:)?[A-Za-z_]\w*)\)'
            r"|\$(?P<plain>(?:env:)?[A-Za-z_]\w*|\?)|\$\("
        )
        return re.sub(pattern, replaced, text, flags=re.DOTALL)
