"""`--rehearse`: opens a sandbox and runs the ordinary `imagegen build` in it as a child process.

The child process does not know about the rehearsal, except for a label, or about injected faults. Its environment is
that of the sandbox. Lock, tree, logs and manifest of the newest rehearsals are kept in out/rehearsal. Everything else
is always cleaned up. `rehearse_lock` runs `imagegen lock` in the same way, for `plan` and `render`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import shlex
import shutil
import sys
import tempfile
import time
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from imagegen import pipeline
from imagegen.base.console import seconds
from imagegen.base.errors import BuildError, ExitCode
from imagegen.base.files import scratch_folder, write_file
from imagegen.base.locks import locked
from imagegen.base.signals import stop_signals
from imagegen.build import process
from imagegen.build.supervisor import Grace, Orphan
from imagegen.build.tools import find_tools
from imagegen.fetch.lock import read_lock
from imagegen.plan import loading
from imagegen.providers.provider import provider
from imagegen.record.store import LocalStore
from imagegen.rehearsal.boot.boot import boot_image
from imagegen.rehearsal.boot.booted import Image
from imagegen.rehearsal.cloudbase_init.run import Runner
from imagegen.rehearsal.cloudbase_init.versions import choose_version
from imagegen.rehearsal.clouds import stand_in
from imagegen.rehearsal.faults.selection import SelectedFaults
from imagegen.rehearsal.faults.table import settings_of
from imagegen.rehearsal.preparation import prepare_setup, reject_unsupported
from imagegen.rehearsal.sandbox import Sandbox

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pydantic import JsonValue

    from imagegen.base.console import Console
    from imagegen.fetch.lock import Lock
    from imagegen.record.manifest import ImageManifest
    from imagegen.run import Run
    from imagegen.settle.spec import Spec
    from imagegen.steps.evaluate import EvaluatedStep

LABEL = "rehearsal=true"
_SCRATCH = "imagegen-rehearsal-"
_NOT_CHECKED = (
    "that the published artifacts have the contents that `imagegen catalog products` lists: stand-ins were used",
    "sysprep and {agents}, of which the model machine knows what is recorded",
    "{boot}",
    "the permissions, quotas and networks of the account",
)
_PRIVATE = "that the hosts of private artifacts accept your credentials: stand-ins were used"
_SIGNATURES = "that your certificates have signed the artifacts, and that Windows trusts them: stand-ins were used"
_IMAGES = "that the registries and tarballs have your container images for this Windows: stand-ins were used"
_OWN_SCRIPTS = "what imagegen's own scripts do on Windows, which were taken as run: {}"
_TAKEN_AS_RUN = "what your script {} does: the model machine took it as run and did not run it"
_NOT_CHECKED_OF_BOOT = {
    True: (
        "kubeadm, kubelet and the container runtime of the node, which did not run, and Windows Setup and cmd, which "
        "are models"
    ),
    False: "Windows Setup and the first boot of a node, which did not run",
}
_TIMEOUT_S = 900.0
# Of one config and target, with the new one: enough to compare a failure with earlier rehearsals.
_KEPT_REHEARSALS = 5
# main prints this line when it is interrupted. Both processes are interrupted, and one line is enough.
_INTERRUPTED = "interrupted"
_LOCK = "lock.json"
# Locked for as long as the rehearsal runs.
_HELD = ".lock"
_WAIT_FOR_OTHERS_S = 60.0
_BOOT_LOG = "cloudbase-init.log"
# The child process runs Packer, and ends it at a second SIGINT. Stand-ins need no clean-up, and if this process is
# gone, its network is gone too.
_GRACE = Grace(least_s=60, quiet_s=20)
_ORPHAN = Orphan(Grace(least_s=2, last_s=5))


class _StoppedByFault(Exception):
    """Ends the child process after an error in the sandbox."""


class _StillRunning(Exception):
    """Another rehearsal holds its folder."""


def rehearse_build(
    request: loading.ConfigRequest, target: str, run: Run, flags: Sequence[str], faults: Sequence[str], *, boot: bool
) -> ImageManifest:
    """Rehearse a build, and with `boot` the first boot of a node from its image. Returns the manifest, with what was
    rehearsed, how long it took, and what was not checked."""
    environ, console = run.environ, run.console
    request = dataclasses.replace(request, sets=(*settings_of(faults), *request.sets))
    loaded = loading.load(request)
    selected = SelectedFaults.from_names(faults, loaded, target)
    reject_unsupported(loaded, target)
    # Before the sandbox opens: building the tools, and another cloudbase-init, need the user's network.
    spec = loaded.specs[target]
    choice = choose_version(spec.config.cloudbase_init.version, environ=environ, console=console) if boot else None
    find_tools(environ=environ, console=console, needed=[provider(spec.provider).plugin])
    started = time.monotonic()
    parent, prefix, temporary = run.out / "rehearsal", f"{loaded.config.name}-{target}-", Path(tempfile.gettempdir())
    # Between its children, too, a signal lets it clean up: the scratch folder has the node's keys.
    with stop_signals(), _new_folder(parent, prefix) as folder, scratch_folder(temporary, _SCRATCH) as scratch:
        labels = [f"{name}={value}" for name, value in run.labels.items()]
        arguments = [*("--out", str(folder), "--format", "none"), *_repeat_option("--label", labels), *flags]
        argv = _child_argv("build", request, target, folder / _LOCK, arguments)
        console.say(f"{target}  rehearsal in {folder}")
        with Sandbox(prepare_setup(loaded, target, folder), scratch) as sandbox:
            selected.inject(sandbox)
            try:
                code = _run_child(argv, sandbox, environ, console.relay)
            finally:
                for line in selected.report_lines():
                    console.say(f"{target}  {line}")
        _check_result(sandbox, code, folder, selected.untriggered())
        unchecked: list[JsonValue] = [*_list_unchecked(loaded, target, boots=choice is not None)]
        note: dict[str, JsonValue] = {"winrm": dataclasses.asdict(sandbox.cost), "not_checked": unchecked}
        if faults:
            note["faults"] = dict(selected.trigger_counts())
        if choice:
            runner = Runner(scratch, environ, choice.modules, choice.reason)
            unchecked += _boot(sandbox, spec, runner, folder, console, note)
        duration = time.monotonic() - started
        note["seconds"] = round(duration, 1)
        manifest = _annotate(folder, note)
    command = f"imagegen manifest list {shlex.quote(str(folder))}"
    console.say(f"{target}  rehearsal passed in {seconds(duration)}: `{command}` shows its manifest")
    return manifest


def _list_unchecked(loaded: loading.Loaded, target: str, *, boots: bool) -> list[str]:
    """What the manifest of a rehearsal says that nothing checked."""
    spec = loaded.specs[target]
    words = {"agents": stand_in(spec.provider).agents, "boot": _NOT_CHECKED_OF_BOOT[boots]}
    config = spec.config
    images = [_IMAGES] if config.images or config.windows.container_images or config.image_tarballs else []
    private = [_PRIVATE] if config.artifacts.credentials else []
    signatures = [_SIGNATURES] if config.requires_signatures else []
    scripts = (_TAKEN_AS_RUN.format(script.file) for script in config.all_scripts)
    own = [
        "the engine",
        f"the scripts of {spec.provider}",
        *sorted(_list_scripts(pipeline.prepare_target(loaded, target).steps)),
    ]
    general = (_OWN_SCRIPTS.format(", ".join(own)), *(text.format(**words) for text in _NOT_CHECKED))
    return [*general, *images, *private, *signatures, *scripts]


def _list_scripts(steps: Iterable[EvaluatedStep]) -> Iterator[str]:
    """The names of the scripts that the steps themselves bring."""
    for step in steps:
        files = (PurePosixPath(path) for path in step.texts.keys() - step.given.keys())
        yield from (file.name for file in files if file.suffix == ".ps1")


def _annotate(folder: Path, note: dict[str, JsonValue]) -> ImageManifest:
    store = LocalStore(folder / "manifests")
    return store.annotate(store.list().records[0], "rehearsal", note)


def _boot(
    sandbox: Sandbox, spec: Spec, runner: Runner, folder: Path, console: Console, note: dict[str, JsonValue]
) -> Sequence[str]:
    """Start a node from the captured machine, and add to `note` what the manifest says of it. Returns what the boot
    did not check."""
    captured = sandbox.captured
    if captured is None:
        raise BuildError("there is no machine to boot: nothing was sealed", hint=f"its files are in {folder}")
    log = folder / _BOOT_LOG
    # The manifest of an image says so from now on, whatever ends the boot before its verdict.
    _annotate(folder, note | {"failed": {"boot": ["it did not come to its end"]}})
    try:
        with console.task(f"starting a node from the image for {spec.target}", None):
            image = Image(captured, spec)
            booted = boot_image(image, runner, keep_log=lambda text: write_file(log, text.encode()))
    except BuildError as error:
        _annotate(folder, note | {"failed": {"boot": [error.message, *error.details]}})
        error.hint = error.hint or f"the log of cloudbase-init is {log}"
        raise
    note["boot"] = booted.record()
    for line in booted.lines:
        console.say(f"{spec.target}  boot: {line}")
    for limit in booted.limits:
        console.say(f"{spec.target}  boot: not checked: {limit}")
    if booted.faults:
        _annotate(folder, note | {"failed": booted.failed})
        raise BuildError(
            "the image was built, and no node comes up from it",
            details=booted.faults,
            hint=f"docs/reality.md explains what is in brackets; the log of cloudbase-init is {log}",
        )
    return booted.limits


def rehearse_lock(request: loading.ConfigRequest, target: str, run: Run) -> Lock:
    """Make a lock of stand-ins, for planning and rendering without an account. It has the label of a rehearsal."""
    loaded = loading.load(request)
    reject_unsupported(loaded, target)
    lines: list[str] = []
    parent = Path(tempfile.gettempdir())
    with run.console.task(f"locking stand-ins for {target}", None), scratch_folder(parent, _SCRATCH) as scratch:
        file = scratch / _LOCK
        argv = _child_argv("lock", request, target, file, [])
        with Sandbox(prepare_setup(loaded, target, scratch), scratch) as sandbox:
            code = _run_child(argv, sandbox, run.environ, lines.append)
            faults = sandbox.faults
        lock = read_lock(file)
    if faults or code != ExitCode.OK or lock is None:
        raise BuildError("the lock of stand-ins could not be made", details=[*faults, *lines])
    return lock


def _child_argv(
    verb: str, request: loading.ConfigRequest, target: str, lock: Path, arguments: Sequence[str]
) -> list[str]:
    """The command line of the child process, with `arguments` at its end."""
    return [
        *(sys.executable, "-m", "imagegen", verb, str(request.file), "--target", target, "--plain"),
        *("--lock", str(lock), "--label", LABEL),
        *_repeat_option("--set", request.sets),
        *arguments,
    ]


def _repeat_option(option: str, values: Sequence[str]) -> list[str]:
    return [argument for value in values for argument in (option, value)]


@contextlib.contextmanager
def _new_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """Make a folder for one rehearsal, and delete all but the newest folders of the same config and target.

    A folder is locked while its rehearsal runs, however long that takes, and no other rehearsal deletes it then.
    """
    with contextlib.ExitStack() as held:
        # Another rehearsal finds no folder before it is locked.
        with locked(parent / _HELD, wait_s=_WAIT_FOR_OTHERS_S, waiting=lambda: None):
            own = [path for path in parent.iterdir() if _is_rehearsal(path, prefix)]
            for path in sorted(own, key=lambda path: path.stat().st_mtime, reverse=True)[_KEPT_REHEARSALS - 1 :]:
                with contextlib.suppress(_StillRunning), locked(path / _HELD, wait_s=0, waiting=_keep_running):
                    shutil.rmtree(path)
            folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
            held.enter_context(locked(folder / _HELD, wait_s=0, waiting=_keep_running))
        yield folder


def _keep_running() -> None:
    raise _StillRunning


def _is_rehearsal(path: Path, prefix: str) -> bool:
    """Whether a rehearsal made this folder: it has a lock of artifacts, or is empty if the rehearsal failed before.

    The whole name counts, because the names of other configs can begin with this one's.
    """
    named = re.fullmatch(rf"{re.escape(prefix)}[a-z0-9_]{{8}}", path.name)
    if named is None or path.is_symlink() or not path.is_dir():
        return False
    return (path / _LOCK).is_file() or all(entry.name == _HELD for entry in path.iterdir())


def _run_child(argv: Sequence[str], sandbox: Sandbox, environ: Mapping[str, str], relay: Callable[[str], None]) -> int:
    def watch() -> None:
        if sandbox.faults:
            raise _StoppedByFault

    def on_line(line: str) -> None:
        # The line begins with the time of day.
        if line.rpartition("Z ")[2] != _INTERRUPTED:
            relay(line)

    try:
        return process.stream(
            argv,
            environ=sandbox.child_environ(environ),
            cwd=Path.cwd(),
            timeout=_TIMEOUT_S,
            on_line=on_line,
            supervision=process.Supervision(watch=watch, grace=_GRACE, orphan=_ORPHAN),
        )
    except _StoppedByFault:
        return int(ExitCode.BUILD)
    except TimeoutError as overdue:
        raise BuildError(str(overdue), hint="lower `timeouts`, for example `--set timeouts.restart=1`") from overdue


def _check_result(sandbox: Sandbox, code: int, folder: Path, untriggered: Sequence[str] = ()) -> None:
    """Raise an error if the build failed, did something that it must not do, left out a step or triggered no fault."""
    faults = sandbox.faults
    if code == ExitCode.OK:
        faults += [f"the build ended without {step}" for step in sandbox.missing]
        faults += [f"the fault {name} was not triggered: the build did not reach it" for name in untriggered]
    if faults:
        raise BuildError("the rehearsal failed", details=faults, hint=f"its files are in {folder}")
    if code != ExitCode.OK:
        error = BuildError(
            f"the rehearsed build ended with exit code {code}", hint=f"see its error above; its logs are in {folder}"
        )
        error.exit_code = ExitCode(code) if code in set(ExitCode) else ExitCode.BUILD
        raise error
