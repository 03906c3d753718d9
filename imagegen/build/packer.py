"""Runs Packer on a rendered tree: validates and builds it, and returns the artifact or raises an error with the cause.

Writes the log; touches nothing else on this machine.
"""

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence, Set
from pathlib import Path
from typing import Final

from imagegen.build import environment, process
from imagegen.build.output import BuildOutput
from imagegen.build.packer_output import BuildLog, scrub
from imagegen.build.process import ProgramRunner, ProgramStreamer
from imagegen.build.progress import Display
from imagegen.build.supervisor import Grace, Orphan
from imagegen.build.toolchain import Toolchain
from imagegen.console import Console
from imagegen.errors import BuildError, RefusedError, ToolError

_VALIDATE_TIMEOUT_S: Final = 300
# What Packer prints if a plugin ends at once. A plugin makes its socket in TMPDIR, and Unix limits the path of a socket
# to 107 characters, of which its own name has 24.
_NOT_STARTED: Final = "plugin exited before we could connect"
_LONGEST_TMPDIR: Final = 80
_A_YEAR_S: Final = 365.0 * 24 * 3600
# A cloud takes minutes to delete a machine, and Packer prints nothing meanwhile.
CLEAN_UP: Final = Grace(least_s=20 * 60, quiet_s=5 * 60)


@dataclasses.dataclass(frozen=True)
class CloudSide:
    """What a run of Packer needs to know about its cloud."""

    names: frozenset[str] = frozenset()
    """The environment variables that Packer sees. A name that ends with `*` is a prefix."""
    secret_names: frozenset[str] = frozenset()
    """Variables that hold secrets although their names do not show it."""
    traces: str = "(?!)"
    """A regular expression for the names of the temporary resources that Packer makes in the account."""
    advice: str = ""
    """How to find and delete the resources that Packer did not delete."""


@dataclasses.dataclass(frozen=True)
class OnError:
    """What Packer does with its machine when a build fails."""

    choice: str = "cleanup"
    """Packer's option: `cleanup`, `abort` or `ask`."""
    ask: Callable[[str], str] | None = None
    """For `ask`: takes the step that failed and returns Packer's answer: c, a or r."""


def validate_tree(
    tools: Toolchain,
    tree: Path,
    *,
    environ: Mapping[str, str],
    cloud: CloudSide = CloudSide(),
    run: ProgramRunner = process.run,
) -> None:
    """RefusedError with Packer's messages unless the tree is formatted and valid."""
    child_environ = environment.build_environment(environ, tools.environment, {}, cloud.names | cloud.secret_names)
    secrets = environment.secret_values(environ, cloud.secret_names)
    for arguments, quality in ((("fmt", "-check", "-diff"), "formatted"), (("validate",), "valid")):
        try:
            argv = [tools.packer, *arguments, "."]
            done = run(argv, environ=child_environ, cwd=tree, timeout=_VALIDATE_TIMEOUT_S)
        except TimeoutError as overdue:
            raise ToolError(str(overdue)) from overdue
        if done.returncode != 0:
            lines = (done.stdout + done.stderr).splitlines()
            details = [scrub(line, secrets) for line in lines if line.strip()]
            if len(child_environ.get("TMPDIR", "")) > _LONGEST_TMPDIR and any(_NOT_STARTED in line for line in lines):
                hint = f"set TMPDIR to a folder whose path has at most {_LONGEST_TMPDIR} characters"
                raise ToolError("Packer's plugin cannot make its socket in TMPDIR", hint=hint, details=details)
            raise RefusedError(f"the tree in {tree} is not {quality}", details=details)


def build_tree(
    tools: Toolchain,
    tree: Path,
    *,
    environ: Mapping[str, str],
    variables: Mapping[str, str],
    log: Path,
    display: Display,
    timeout_s: float,
    cloud: CloudSide = CloudSide(),
    on_error: OnError = OnError(),
    stream: ProgramStreamer = process.stream,
) -> str:
    """Build the image: the artifact as Packer reports it. KeyboardInterrupt once Packer cleaned up after a Ctrl-C."""
    ask = on_error.ask
    # With -machine-readable Packer does not ask.
    flags = [*([] if ask else ["-machine-readable"]), f"-on-error={on_error.choice}", "-color=false", "."]
    names = cloud.names | cloud.secret_names | {"PACKER_LOG"}
    secrets = environment.secret_values({**environ, **variables}, cloud.secret_names)
    log.parent.mkdir(parents=True, exist_ok=True)
    with BuildLog(log) as file, contextlib.ExitStack() as opened:
        terminal = opened.enter_context(process.Terminal()) if ask else None
        on_question = (lambda step: terminal.answer(ask(step))) if ask and terminal else None
        output = BuildOutput(file, display, secrets, cloud.traces, on_question)
        try:
            code = stream(
                [tools.packer, "build", *flags],
                environ=environment.build_environment(environ, tools.environment, variables, names),
                cwd=tree,
                # The user may take any time to answer a question.
                timeout=_A_YEAR_S if ask else timeout_s,
                on_line=output.add_line,
                on_error_line=output.add_error_line,
                grace=CLEAN_UP,
                orphan=Orphan(CLEAN_UP, str(log), secrets),
                terminal=terminal,
            )
        except KeyboardInterrupt:
            if not output.cleaned_up:
                for line in (*_leftovers_hint(output, tree, cloud).splitlines(), f"the full log: {log}"):
                    display.warn(line)
            raise
        except TimeoutError as overdue:
            hint = "" if output.cleaned_up else _leftovers_hint(output, tree, cloud)
            raise output.failure(log, str(overdue), hint) from overdue
    if code != 0 or output.culprit is not None:
        raise output.failure(log, hint=_leftovers_hint(output, tree, cloud) if output.aborted else "")
    if not output.artifact:
        raise output.failure(log, "it ended with code 0 but made no artifact")
    return output.artifact


def _leftovers_hint(output: BuildOutput, tree: Path, cloud: CloudSide) -> str:
    """The hint for a build that was not cleaned up: what Packer named and did not delete, and what to do."""
    named = ", ".join(output.traced)
    problem = f"Packer did not delete {named}" if named else "Packer did not report whether it deleted everything"
    return "\n".join([f"{problem} (built from {tree})", *([cloud.advice] if cloud.advice else [])])


def build_on_first(
    sizes: Sequence[str], build: Callable[[str], str], *, no_capacity: Set[str], console: Console
) -> str:
    """Call `build` with each size in turn, until it does not fail for lack of capacity.

    `no_capacity` are the cloud's error codes for a lack of capacity.
    """
    for size, following in itertools.pairwise(sizes):
        try:
            return build(size)
        except BuildError as error:
            codes = [code for code in sorted(no_capacity) if code in str(error.message)]
            if not codes:
                raise
            for line in (f"{size} is not available now ({codes[0]}): trying {following}", *error.hint.splitlines()):
                console.warn(line)
    return build(sizes[-1])
