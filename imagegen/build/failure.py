"""Turns what was heard of a failed build into the one error that an operator reads. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imagegen.build.events import PhaseEvent, ResourceEvent
from imagegen.errors import BuildError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_SHOWN_LINES: Final = 15


def build_failure(
    *,
    blame: ResourceEvent | PhaseEvent | None,
    errors: Sequence[str],
    tail: Sequence[str],
    log: Path,
    hint: str = "",
) -> BuildError:
    """The resource that failed, or the phase, or else Packer's own words; then the last lines, and the log."""
    details = []
    match blame:
        case ResourceEvent():
            message = f"{blame.id} failed in {blame.phase}: {blame.reason}"
            details.append(f"step {blame.step}: ansible-win/roles/{blame.step}/resources.yml")
        case PhaseEvent():
            message = f"{blame.phase} failed: {blame.reason}"
        case _:
            message = f"Packer failed: {errors[0]}" if errors else "Packer failed and did not say why"
    details += [f"Packer: {error}" for error in (errors if blame else errors[1:])]
    if tail:
        details += ["the last lines:", *(f"  {line}" for line in tail[-_SHOWN_LINES:])]
    details.append(f"the full log: {log}")
    return BuildError(message, details=details, hint=hint)
