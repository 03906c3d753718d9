"""Turns the options of a verb into arguments of the pipeline: targets, lock, the run, a manifest of a store.

`--rehearse` is here too. The rehearsal is imported only when it is used: it needs an extra of the package.
"""

import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Final

import click

from imagegen import pipeline
from imagegen.base.console import make_console
from imagegen.base.errors import ConfigError, ImagegenError, ToolError
from imagegen.base.lines import counted
from imagegen.cli.messages import messages
from imagegen.cli.options import REHEARSAL_LABEL, load_config, parse_labels, today
from imagegen.cli.output import error_text, print_as, print_manifest
from imagegen.fetch import locking
from imagegen.fetch.lock import Lock, read_lock
from imagegen.fetch.locking import default_lock, lock_command
from imagegen.plan import loading
from imagegen.plan.loading import ConfigRequest, Loaded
from imagegen.plan.resolve import Decision
from imagegen.plan.target import PreparedTarget
from imagegen.record.manifest import ImageManifest
from imagegen.record.store import Listing, LocalStore
from imagegen.run import Run

_ID: Final = re.compile(r"[0-9A-Fa-f]{1,64}")


def find_store(folder: Path | None, out: Path) -> Path:
    """The folder `manifests` in FOLDER or in OUT. FOLDER must exist, and may also be the folder `manifests` itself."""
    if folder and not folder.is_dir():
        raise ConfigError(f"{folder} is not a folder", hint="name a folder that holds `manifests`, as --out does")
    return folder if folder and folder.name == "manifests" else (folder or out) / "manifests"


def choose_manifest(image_id: str, listing: Listing, store: Path) -> ImageManifest:
    """The one manifest whose image id begins so."""
    found = [item for item in listing.records if item.image_id.startswith(image_id.lower())]
    if not found:
        listing.reject_bad()
    if len(found) != 1:
        what = "no manifest" if not found else counted(len(found), "manifest")
        hint = f"run `imagegen manifest list {shlex.quote(str(store.parent))}` to see them"
        if not listing.records:
            hint = f"give the --out folder of the build as FOLDER, after {image_id}"
        raise ConfigError(f"{store} has {what} whose image id begins with {image_id!r}", hint=hint)
    return found[0]


def is_image_id(name: str) -> bool:
    """Whether a name can be the start of an image's id."""
    return _ID.fullmatch(name) is not None


def find_manifest_file(name: str, folder: Path | None) -> Path:
    """The file of a manifest: a path, or the start of an image's id in a store."""
    if is_image_id(name) and not Path(name).exists():
        root = find_store(folder, Path("out"))
        store = LocalStore(root)
        found = choose_manifest(name, store.list(), root)
        return store.path(found.name, found.target, found.image_id, found.labels)
    if not Path(name).exists():
        hint = "give the file of a manifest, or the start of its image's id, which `imagegen manifest list` shows"
        raise ConfigError(f"{name} does not exist", hint=hint)
    if folder is not None:
        raise ConfigError(f"{name} is a file, so FOLDER has no effect", hint=f"leave {folder} out")
    return Path(name)


def prepare_targets(loaded: Loaded, target: str | None) -> list[PreparedTarget]:
    """The chosen targets, or all of them. All are prepared first, so that every error comes before any work."""
    return [pipeline.prepare_target(loaded, name) for name in loading.find_targets(loaded, target)]


def choose_targets(loaded: Loaded, target: str | None, *, one: bool = False) -> list[PreparedTarget]:
    """Like `prepare_targets`, but several targets must be chosen by the name of their cloud, if not only one is
    allowed."""
    names = loading.find_targets(loaded, target)
    if len(names) > 1 and (one or target is None):
        choices = " or ".join(f"--target {name}" for name in names)
        raise ConfigError(f"{loaded.file} has the targets {', '.join(names)}", hint=f"choose one: {choices}")
    return prepare_targets(loaded, target)


def decide_plan(
    config: Path,
    target: str | None,
    sets: tuple[str, ...],
    lock_file: Path | None,
    *,
    rehearse: bool,
    frozen: bool = False,
) -> Decision:
    """The plan of one target, with its lock or, with `rehearse`, with a new lock of stand-ins."""
    check_lock_options(lock_file, frozen=frozen, rehearse=rehearse)
    [chosen] = choose_targets(load_config(config, sets), target, one=True)
    if rehearse:
        request = ConfigRequest(config, today(), sets)
        lock: Lock = import_rehearsal().rehearse_lock(request, chosen.name, open_run())
    elif frozen:
        lock = locking.verify_frozen([chosen], find_lock_file(config, lock_file, {}), open_run()).lock
    else:
        lock = locking.read_lock_for(chosen, find_lock_file(config, lock_file, {}))
    return pipeline.decide(chosen, lock)


def process_targets(
    targets: list[PreparedTarget],
    process: Callable[[PreparedTarget], ImageManifest],
    form: str,
    prepare: Callable[[PreparedTarget], object] | None = None,
) -> None:
    """Process the targets one after another, and print their manifests. If there are several, `prepare` runs for all
    of them before the first is processed.

    If one of several fails, the others are still processed. The exit code is the worst of all.
    """
    if len(targets) == 1:
        print_manifest(process(targets[0]), form)
        return
    manifests: list[ImageManifest] = []
    codes: list[int] = []

    def succeeds(work: Callable[[PreparedTarget], object], target: PreparedTarget) -> bool:
        try:
            work(target)
        except ImagegenError as error:
            messages().show(error_text(error))
            codes.append(int(error.exit_code))
            return False
        return True

    for target in [one for one in targets if prepare is None or succeeds(prepare, one)]:
        if succeeds(lambda one: manifests.append(process(one)), target):
            print_manifest(manifests[-1], form if form == "text" else "none")
    if form == "json":
        print_as(form, [manifest.model_dump(mode="json") for manifest in manifests], [])
    if codes:
        raise click.exceptions.Exit(max(codes))


def find_lock_file(config: Path, lock_file: Path | None, labels: Mapping[str, str]) -> Path:
    """The lock: beside the config unless another one is given. The lock of a rehearsal is only for rehearsals."""
    file = lock_file or default_lock(config)
    lock = read_lock(file)
    if lock and lock.labels.get(REHEARSAL_LABEL) == "true" and labels.get(REHEARSAL_LABEL) != "true":
        raise ConfigError(
            f"{file} is the lock of a rehearsal: its base images and artifacts are stand-ins",
            hint=f"give another lock with --lock, or delete this one and run `{lock_command(config, file)}`",
        )
    return file


def open_run(labels: Sequence[str] = (), *, plain: bool = False, quiet: bool = False, out: Path = Path("out")) -> Run:
    """The run of this command. From now on, its messages are printed on its console too."""
    console = make_console(plain=True if plain else None, quiet=quiet)
    messages().console = console
    return Run.start(os.environ, parse_labels(labels), console, out)


def list_flags(switches: Mapping[str, bool], on_error: str) -> list[str]:
    """The options that a rehearsal passes on to the build in its sandbox."""
    return [*(flag for flag, is_on in switches.items() if is_on), "--on-error", on_error]


def rehearse_build(
    request: ConfigRequest, target: str, run: Run, flags: Sequence[str], faults: Sequence[str], *, boot: bool
) -> ImageManifest:
    """Rehearse the build of one target."""
    if REHEARSAL_LABEL in run.labels:
        raise ConfigError(
            f"--label {REHEARSAL_LABEL}=… cannot be set together with --rehearse",
            hint=f"leave it out: every rehearsal is labelled {REHEARSAL_LABEL}=true",
        )
    manifest: ImageManifest = import_rehearsal().rehearse_build(request, target, run, flags, faults, boot=boot)
    return manifest


def check_lock_options(lock_file: Path | None, *, frozen: bool, rehearse: bool) -> None:
    """Reject --lock and --frozen together with --rehearse: a lock of real artifacts has no stand-ins."""
    given = "--lock" if lock_file is not None else "--frozen" if frozen else ""
    if rehearse and given:
        raise ConfigError(
            f"{given} cannot be used together with --rehearse",
            hint=f"leave {given} out: a rehearsal makes a lock of its own, for its stand-ins",
        )


def check_rehearsal_options(
    names: Sequence[str], targets: Sequence[PreparedTarget], *, no_boot: bool, rehearse: bool
) -> None:
    """Reject --no-boot and faults without --rehearse, and unknown faults."""
    if no_boot and not rehearse:
        raise ConfigError("--no-boot can only be used together with --rehearse", hint="leave --no-boot out")
    if not names:
        return
    if not rehearse:
        raise ConfigError(
            "--fault can only be used together with --rehearse",
            hint=f"add --rehearse: imagegen causes no faults in a real {targets[0].spec.provider} account",
        )
    from imagegen.rehearsal.faults.table import find_faults

    for target in targets:
        find_faults(names, target.spec.provider)


def import_rehearsal() -> ModuleType:
    """The module that rehearses, imported with the environment variables that it needs."""
    from imagegen.rehearsal.clouds import import_variables

    for name, value in import_variables().items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    try:
        import imagegen.rehearsal.rehearse as rehearse
    except ModuleNotFoundError as missing:
        raise ToolError(
            f"a rehearsal needs {missing.name}, which is not installed", hint="pip install 'imagegen[rehearsal]'"
        ) from None
    return rehearse
