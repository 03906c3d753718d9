"""`--rehearse`: hosts the private network and runs the ordinary `imagegen build` in it as a child.

The child is told nothing of a rehearsal but a label; its environment is the stage's. The lock, the tree, the logs and
the manifest stay below out/rehearsal; everything else is cleaned up, whatever happens.
"""

from __future__ import annotations

import dataclasses
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from imagegen import pipeline
from imagegen.build import process
from imagegen.build.tools import find_tools
from imagegen.errors import BuildError, ExitCode
from imagegen.manifest.store import LocalStore
from imagegen.providers import provider
from imagegen.rehearsal.scenery import refuse_what_is_not_played, scene_for
from imagegen.rehearsal.stage import Stage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pydantic import JsonValue

    from imagegen.console import Console
    from imagegen.manifest.model import ImageManifest

LABEL = "rehearsal=true"
NOT_CHECKED = (
    "that the PowerShell of the engine and its kinds does on Windows what the model machine did",
    "that the published artifacts hold what the steps expect of them: stand-ins were served",
    "sysprep, EC2Launch, the Azure agents and the first boot of a node",
    "the accounts' permissions, quotas and networks",
)
_TIMEOUT_S = 900.0


class _StoppedByFault(Exception):
    """Raised in the watch of the child: something that must not happen has happened."""


def rehearse_build(
    asked: pipeline.Asked,
    target: str,
    *,
    out: Path,
    labels: Sequence[str],
    flags: Sequence[str],
    environ: Mapping[str, str],
    console: Console,
) -> ImageManifest:
    """The manifest of the rehearsed build, with what it cost and what it did not check."""
    loaded = pipeline.load(asked)
    refuse_what_is_not_played(loaded, target)
    # Tools are built, where they must be, with the network that the user has.
    cloud = provider(target)
    find_tools(environ=environ, console=console, needed={cloud.PLUGIN: cloud.PLUGIN_SINCE})
    began = time.monotonic()
    (out / "rehearsal").mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{loaded.config.name}-{target}-", dir=out / "rehearsal"))
    argv = [
        *(
            sys.executable,
            "-m",
            "imagegen",
            "build",
            str(asked.file),
            "--target",
            target,
            "--plain",
            "--format",
            "none",
        ),
        *("--lock", str(folder / "lock.json"), "--out", str(folder), "--label", LABEL),
        *(word for label in labels for word in ("--label", label)),
        *(word for given in asked.sets for word in ("--set", given)),
        *flags,
    ]
    console.say(f"{target}  rehearsal in {folder}")
    with tempfile.TemporaryDirectory(prefix="imagegen-rehearsal-") as scratch:
        with Stage(scene_for(loaded, target, folder), Path(scratch)) as stage:
            code = _run_child(argv, stage, environ, console)
        _judge(stage, code, folder)
        cost = stage.cost
    store = LocalStore(folder / "manifests")
    note: dict[str, JsonValue] = {
        "seconds": round(time.monotonic() - began, 1),
        "winrm": dataclasses.asdict(cost),
        "not_checked": list(NOT_CHECKED),
    }
    return store.annotate(store.list()[0], "rehearsal", note)


def _run_child(argv: Sequence[str], stage: Stage, environ: Mapping[str, str], console: Console) -> int:
    def watch() -> None:
        if stage.faults:
            raise _StoppedByFault

    try:
        return process.stream(
            argv,
            environ=stage.child_environ(environ),
            cwd=Path.cwd(),
            timeout=_TIMEOUT_S,
            on_line=console.say,
            watch=watch,
        )
    except _StoppedByFault:
        return int(ExitCode.BUILD)


def _judge(stage: Stage, code: int, folder: Path) -> None:
    """Nothing that must not happen happened, and everything that must happen did."""
    faults = stage.faults
    if code == ExitCode.OK:
        faults += [f"the machine was never told {step}" for step in stage.missing]
    if faults:
        raise BuildError("the rehearsal failed", details=faults, hint=f"everything it left is in {folder}")
    if code != ExitCode.OK:
        error = BuildError(
            f"the rehearsed build ended with exit code {code}", hint=f"its own words are above; logs are in {folder}"
        )
        error.exit_code = ExitCode(code) if code in set(ExitCode) else ExitCode.BUILD
        raise error
