"""Runs Packer on a rendered tree: validates it, builds it, answers with the artifact or an error that says what failed.

Writes the log; touches nothing else on this machine.
"""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Final

from imagegen.build import environment, process
from imagegen.build.hearing import BuiltArtifact, Hearing
from imagegen.build.keeper import Grace
from imagegen.build.log import BuildLog
from imagegen.build.scrub import scrub
from imagegen.errors import RefusedError, ToolError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from imagegen.build.process import BuildStream, Run
    from imagegen.build.progress import Display
    from imagegen.build.toolchain import Toolchain

_VALIDATE_TIMEOUT_S: Final = 300
_A_YEAR_S: Final = 365.0 * 24 * 3600
_DEBUGGING: Final = frozenset({"PACKER_LOG"})
# A cloud takes minutes to delete a machine, and Packer says nothing meanwhile.
CLEAN_UP: Final = Grace(least_s=20 * 60, quiet_s=5 * 60)


@dataclasses.dataclass(frozen=True)
class CloudSide:
    """What a run of Packer has to know of its cloud."""

    names: frozenset[str] = frozenset()
    """The environment variables that Packer sees; one that ends in `*` names all that begin so."""
    secret_names: frozenset[str] = frozenset()
    """Variables that hold secrets and whose names do not say so."""
    traces: str = "(?!)"
    """A regular expression for the names of what Packer makes in the account besides the image."""
    advice: str = ""
    """How to reach and remove these, where Packer did not."""


@dataclasses.dataclass(frozen=True)
class OnError:
    """What Packer does with its machine when a build fails."""

    choice: str = "cleanup"
    """`cleanup`, `abort` or `ask`, in Packer's words."""
    ask: Callable[[str], str] | None = None
    """For `ask`: told the step that failed, it answers c, a or r, as Packer's question has it."""

    @property
    def flags(self) -> list[str]:
        """The options of `packer build`; Packer does not ask where it is machine-readable."""
        form = [] if self.ask else ["-machine-readable"]
        return [*form, f"-on-error={self.choice}"]


def validate_tree(
    tools: Toolchain,
    tree: Path,
    *,
    environ: Mapping[str, str],
    cloud: CloudSide = CloudSide(),
    run: Run = process.run,
) -> None:
    """RefusedError with Packer's words unless the tree is formatted and valid."""
    child_environ = environment.build_environment(environ, tools.environment, {}, cloud.names | cloud.secret_names)
    secrets = environment.secret_values(environ, cloud.secret_names)
    for words, what in ((("fmt", "-check", "-diff"), "formatted"), (("validate",), "valid")):
        argv = [tools.packer, *words, "."]
        try:
            done = run(argv, environ=child_environ, cwd=tree, timeout=_VALIDATE_TIMEOUT_S)
        except TimeoutError as overdue:
            raise ToolError(str(overdue)) from overdue
        if done.returncode != 0:
            said = [scrub(line, secrets) for line in (done.stdout + done.stderr).splitlines()]
            raise RefusedError(f"the tree in {tree} is not {what}", details=[line for line in said if line.strip()])


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
    on_error: OnError | None = None,
    stream: BuildStream = process.stream,
) -> BuiltArtifact:
    """Build the image. BuildError where that fails; KeyboardInterrupt once Packer has cleaned up after a Ctrl-C."""
    on_error = on_error or OnError()
    ask = on_error.ask
    argv: list[str | Path] = [tools.packer, "build", *on_error.flags, "-color=false", "."]
    names = cloud.names | cloud.secret_names | _DEBUGGING
    secrets = environment.secret_values({**environ, **variables}, cloud.secret_names)
    log.parent.mkdir(parents=True, exist_ok=True)
    with BuildLog(log) as file, contextlib.ExitStack() as opened:
        terminal = opened.enter_context(process.Terminal()) if ask else None
        on_question = (lambda step: terminal.answer(ask(step))) if ask and terminal else None
        hearing = Hearing(file, display, secrets, cloud.traces, on_question)
        try:
            code = stream(
                argv,
                environ=environment.build_environment(environ, tools.environment, variables, names),
                cwd=tree,
                # Who is asked may take any time to answer.
                timeout=_A_YEAR_S if ask else timeout_s,
                on_line=hearing.hear,
                on_error_line=hearing.hear_error,
                grace=CLEAN_UP,
                orphan=process.Orphan(CLEAN_UP, log, secrets),
                terminal=terminal,
            )
        except KeyboardInterrupt:
            if not hearing.cleaned_up:
                for line in (*_remains(hearing, tree, cloud).splitlines(), f"the full log: {log}"):
                    display.warn(line)
            raise
        except TimeoutError as overdue:
            hint = "" if hearing.cleaned_up else _remains(hearing, tree, cloud)
            raise hearing.failure(log, str(overdue), hint) from overdue
    if code != 0 or hearing.blame is not None:
        raise hearing.failure(log, hint=_remains(hearing, tree, cloud) if hearing.aborted else "")
    if hearing.artifact is None:
        raise hearing.failure(log, "it ended well and made no artifact")
    return hearing.artifact


def _remains(hearing: Hearing, tree: Path, cloud: CloudSide) -> str:
    """What is left of a build that was not cleaned up, as far as Packer named it, and what to do with it."""
    named = ", ".join(hearing.traced)
    what = f"Packer did not remove {named}" if named else "Packer did not say whether it removed everything"
    return "\n".join([f"{what} (built from {tree})", *([cloud.advice] if cloud.advice else [])])
