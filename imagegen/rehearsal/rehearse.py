"""`--rehearse`: hosts the private network and runs the ordinary `imagegen build` in it as a child.

The child is told nothing of a rehearsal but a label, and of injected faults nothing; its environment is the stage's.
The lock, the tree, the logs and the manifest stay below out/rehearsal, of the newest rehearsals; everything else is
cleaned up, whatever happens.
`rehearse_lock` runs `imagegen lock` in the same way: a lock is all that `plan` and `render` need.
"""

from __future__ import annotations

import dataclasses
import re
import shlex
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from imagegen import loading
from imagegen.artifacts.lock import read_lock
from imagegen.build import process
from imagegen.build.supervisor import Grace
from imagegen.build.tools import find_tools
from imagegen.console import seconds
from imagegen.errors import BuildError, ExitCode
from imagegen.manifest.store import LocalStore
from imagegen.providers.provider import provider
from imagegen.rehearsal.clouds import stand_in
from imagegen.rehearsal.faults.injected import Injected
from imagegen.rehearsal.scenery import refuse_what_is_not_played, scene_for
from imagegen.rehearsal.stage import Stage
from imagegen.scratch import scratch_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pydantic import JsonValue

    from imagegen.artifacts.lock import Lock
    from imagegen.console import Console
    from imagegen.manifest.model import ImageManifest

LABEL = "rehearsal=true"
_SCRATCH = "imagegen-rehearsal-"
_NOT_CHECKED = (
    "that the PowerShell of the engine and its kinds does on Windows what the model machine did",
    "that the published artifacts hold what `imagegen catalog releases` says of them: stand-ins were served",
    "sysprep, {agents} and the first boot of a node",
    "the accounts' permissions, quotas and networks",
)
_TIMEOUT_S = 900.0
# Of one config and target, the new one included: enough to compare a failure with what worked.
_KEPT_REHEARSALS = 5
# What main prints when it is interrupted; both processes are, and one line says it.
_INTERRUPTED = "interrupted"
_LOCK = "lock.json"
# The child runs Packer, and ends it at a second SIGINT. Stand-ins lose nothing by an end without clean-up; and once
# this process is gone, its network is gone, and there is nothing left to clean up.
_GRACE = Grace(least_s=60, quiet_s=20)
_ORPHAN = process.Orphan(Grace(least_s=2, last_s=5))


class _StoppedByFault(Exception):
    """Raised in the watch of the child: something that must not happen has happened."""


def rehearse_build(
    asked: loading.ConfigRequest,
    target: str,
    *,
    out: Path,
    labels: Sequence[str],
    flags: Sequence[str],
    faults: Sequence[str],
    environ: Mapping[str, str],
    console: Console,
) -> ImageManifest:
    """The manifest of the rehearsed build, with what it cost and what it did not check."""
    loaded = loading.load(asked)
    injected = Injected.of(faults, loaded, target)
    refuse_what_is_not_played(loaded, target)
    # Tools are built, where they must be, with the network that the user has.
    provider_name = loaded.specs[target].provider
    find_tools(environ=environ, console=console, needed=[provider(provider_name).plugin])
    began = time.monotonic()
    folder = _new_folder(out / "rehearsal", f"{loaded.config.name}-{target}-")
    words = [*("--out", str(folder), "--format", "none"), *_repeated("--label", labels), *flags]
    argv = _child_argv("build", asked, target, folder / _LOCK, words)
    console.say(f"{target}  rehearsal in {folder}")
    with scratch_folder(Path(tempfile.gettempdir()), _SCRATCH) as scratch:
        with Stage(scene_for(loaded, target, folder), scratch) as stage:
            injected.arrange(stage)
            try:
                code = _run_child(argv, stage, environ, console.relay)
            finally:
                for line in injected.told():
                    console.say(f"{target}  {line}")
        _judge(stage, code, folder, injected.unmet())
        cost = stage.cost
    took = time.monotonic() - began
    store = LocalStore(folder / "manifests")
    note: dict[str, JsonValue] = {
        "seconds": round(took, 1),
        "winrm": dataclasses.asdict(cost),
        "not_checked": [each.format(agents=stand_in(provider_name).agents) for each in _NOT_CHECKED],
    }
    if faults:
        note["faults"] = dict(injected.met())
    manifest = store.annotate(store.list().records[0], "rehearsal", note)
    command = f"imagegen manifest list {shlex.quote(str(folder))}"
    console.say(f"{target}  rehearsal passed in {seconds(took)}: `{command}` shows its manifest")
    return manifest


def rehearse_lock(asked: loading.ConfigRequest, target: str, *, environ: Mapping[str, str], console: Console) -> Lock:
    """A lock of stand-ins, for who plans or renders without an account; it is labelled as a rehearsal's."""
    loaded = loading.load(asked)
    refuse_what_is_not_played(loaded, target)
    heard: list[str] = []
    parent = Path(tempfile.gettempdir())
    with console.task(f"locking stand-ins for {target}", None), scratch_folder(parent, _SCRATCH) as scratch:
        file = scratch / _LOCK
        argv = _child_argv("lock", asked, target, file, [])
        with Stage(scene_for(loaded, target, scratch), scratch) as stage:
            code = _run_child(argv, stage, environ, heard.append)
            faults = stage.faults
        lock = read_lock(file)
    if faults or code != ExitCode.OK or lock is None:
        raise BuildError("no lock could be made on the stand-ins", details=[*faults, *heard])
    return lock


def _child_argv(verb: str, asked: loading.ConfigRequest, target: str, lock: Path, words: Sequence[str]) -> list[str]:
    """The command line of the child; `words` come last."""
    return [
        *(sys.executable, "-m", "imagegen", verb, str(asked.file), "--target", target, "--plain"),
        *("--lock", str(lock), "--label", LABEL),
        *_repeated("--set", asked.sets),
        *words,
    ]


def _repeated(option: str, values: Sequence[str]) -> list[str]:
    return [word for value in values for word in (option, value)]


def _new_folder(parent: Path, prefix: str) -> Path:
    """A folder for one rehearsal. Older ones of the same config and target are deleted but for the newest few."""
    parent.mkdir(parents=True, exist_ok=True)
    own = [path for path in parent.iterdir() if _is_rehearsal(path, prefix)]
    newest_first = sorted(((path.stat().st_mtime, path) for path in own), reverse=True)
    for changed, path in newest_first[_KEPT_REHEARSALS - 1 :]:
        # One that still runs began less than its deadline ago.
        if time.time() - changed > _TIMEOUT_S:
            shutil.rmtree(path)
    return Path(tempfile.mkdtemp(prefix=prefix, dir=parent))


def _is_rehearsal(path: Path, prefix: str) -> bool:
    """Whether a rehearsal made this folder: by its whole name, as other configs' names begin alike, and its lock.

    One that failed before it had a lock is empty.
    """
    named = re.fullmatch(rf"{re.escape(prefix)}[a-z0-9_]{{8}}", path.name)
    if named is None or path.is_symlink() or not path.is_dir():
        return False
    return (path / _LOCK).is_file() or not any(path.iterdir())


def _run_child(argv: Sequence[str], stage: Stage, environ: Mapping[str, str], tell: Callable[[str], None]) -> int:
    def watch() -> None:
        if stage.faults:
            raise _StoppedByFault

    def on_line(line: str) -> None:
        # After the time of day.
        if line.rpartition("Z ")[2] != _INTERRUPTED:
            tell(line)

    try:
        return process.stream(
            argv,
            environ=stage.child_environ(environ),
            cwd=Path.cwd(),
            timeout=_TIMEOUT_S,
            on_line=on_line,
            watch=watch,
            grace=_GRACE,
            orphan=_ORPHAN,
        )
    except _StoppedByFault:
        return int(ExitCode.BUILD)


def _judge(stage: Stage, code: int, folder: Path, unmet: Sequence[str] = ()) -> None:
    """Nothing that must not happen happened, and everything that must happen did, injected faults as well."""
    faults = stage.faults
    if code == ExitCode.OK:
        faults += [f"the machine was never told {step}" for step in stage.missing]
        faults += [f"the fault {name} was never met: this build shows nothing of it" for name in unmet]
    if faults:
        raise BuildError("the rehearsal failed", details=faults, hint=f"everything it left is in {folder}")
    if code != ExitCode.OK:
        error = BuildError(
            f"the rehearsed build ended with exit code {code}", hint=f"read its error above; its logs are in {folder}"
        )
        error.exit_code = ExitCode(code) if code in set(ExitCode) else ExitCode.BUILD
        raise error
