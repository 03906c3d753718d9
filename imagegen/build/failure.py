"""Makes the error of a failed build from the output of Packer. Pure."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from imagegen.build.events import PhaseEvent, ResourceEvent
from imagegen.errors import BuildError

_SHOWN_LINES: Final = 15


def build_failure(
    *,
    culprit: ResourceEvent | PhaseEvent | None,
    errors: Sequence[str],
    tail: Sequence[str],
    log: Path,
    hint: str = "",
) -> BuildError:
    """The error names the resource or phase that failed, or Packer's own error; then the last lines and the log."""
    details = []
    match culprit:
        case ResourceEvent():
            message = f"{culprit.id} failed in {culprit.phase}: {culprit.reason}"
            details.append(f"step {culprit.step}: ansible-win/roles/{culprit.step}/resources.yml")
        case PhaseEvent():
            message = f"{culprit.phase} failed: {culprit.reason}"
        case _:
            message = f"Packer failed: {errors[0]}" if errors else "Packer failed without an error message"
    details += [f"Packer: {error}" for error in (errors if culprit else errors[1:])]
    if tail:
        details += ["the last lines:", *(f"  {line}" for line in tail[-_SHOWN_LINES:])]
    details.append(f"the full log: {log}")
    return BuildError(message, details=details, hint=hint)
