"""`--rehearse` of every verb. The rehearsal is imported only here: it needs an extra of the package."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from imagegen.artifacts.lock import Lock, read_lock
from imagegen.cli.labels import parse_labels
from imagegen.errors import ConfigError, ToolError

if TYPE_CHECKING:
    from imagegen.console import Console
    from imagegen.loading import ConfigRequest
    from imagegen.manifest.model import ImageManifest

_MARK = "rehearsal"


def rehearse_build(
    request: ConfigRequest,
    target: str,
    out: Path,
    labels: Sequence[str],
    flags: Sequence[str],
    faults: Sequence[str],
    console: Console,
) -> ImageManifest:
    """The manifest of a rehearsed build."""
    if _MARK in parse_labels(labels):
        message = f"--label {_MARK}=… cannot be set together with --rehearse"
        raise ConfigError(message, hint="leave it out: every rehearsal is labelled rehearsal=true")
    room = _rehearsal_room()
    made: ImageManifest = room.rehearse_build(
        request, target, out=out, labels=labels, flags=flags, faults=faults, environ=os.environ, console=console
    )
    return made


def rehearse_lock(request: ConfigRequest, target: str, *, console: Console) -> Lock:
    """A lock of stand-ins."""
    made: Lock = _rehearsal_room().rehearse_lock(request, target, environ=os.environ, console=console)
    return made


def refuse_lock_file(lock_file: Path | None) -> None:
    """A lock of real artifacts says what no stand-in is."""
    if lock_file is not None:
        message = "--lock cannot be used together with --rehearse"
        raise ConfigError(message, hint="leave --lock out: a rehearsal makes a lock of its own, for its stand-ins")


def refuse_stand_ins(file: Path, labels: Sequence[str]) -> None:
    """A rehearsal's lock names base images that no cloud has, and digests of bytes that no server has."""
    lock = read_lock(file)
    if lock is not None and lock.labels.get(_MARK) == "true" and parse_labels(labels).get(_MARK) != "true":
        message = f"{file} is the lock of a rehearsal: its base images and artifacts are stand-ins"
        raise ConfigError(message, hint="name another lock, or delete it and run `imagegen lock`")


def check_faults(names: Sequence[str], clouds: Sequence[str], *, rehearse: bool) -> None:
    """Faults are a rehearsal's, and their names are checked before anything is looked for."""
    if not names:
        return
    if not rehearse:
        message = "--fault can only be used together with --rehearse"
        raise ConfigError(message, hint=f"add --rehearse: imagegen makes no fault happen in a real {clouds[0]} account")
    from imagegen.rehearsal.faults.table import find_faults

    for cloud in clouds:
        find_faults(names, cloud)


def listed_faults() -> dict[str, dict[str, str]]:
    """By name: on which clouds, the exit code, what happens."""
    from imagegen.rehearsal.faults.table import FAULTS

    return {
        name: {"clouds": ", ".join(fault.clouds), "exit code": str(int(fault.exit_code)), "what": fault.description}
        for name, fault in FAULTS.items()
    }


def _rehearsal_room() -> ModuleType:
    from imagegen.rehearsal.clouds import import_variables

    for name, value in import_variables().items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    try:
        import imagegen.rehearsal.rehearse as rehearse
    except ModuleNotFoundError as missing:
        message = f"a rehearsal needs {missing.name}, which is not installed"
        raise ToolError(message, hint="pip install 'imagegen[rehearsal]'") from None
    return rehearse
