"""Shared code of the rehearsal's tests: a rendered tree to change, and its build in a sandbox, as with `--rehearse`."""

from __future__ import annotations

import dataclasses
import fnmatch
import functools
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from imagegen import pipeline
from imagegen.base.console import make_console
from imagegen.base.errors import BuildError, ExitCode
from imagegen.base.files import write_tree
from imagegen.build import process
from imagegen.build.packer import CloudSide, PackerBuild, build_tree
from imagegen.build.process import Supervision
from imagegen.build.tools import find_tools
from imagegen.fetch.lock import LockedBase
from imagegen.plan import loading
from imagegen.providers.provider import provider
from imagegen.rehearsal import rehearse
from imagegen.rehearsal.clouds.aws.base_images import DEFAULT_IMAGES, base_ami_id
from imagegen.rehearsal.clouds.azure.options import default_marketplace
from imagegen.rehearsal.preparation import prepare_setup
from imagegen.rehearsal.sandbox import Sandbox
from tests.conftest import REPOSITORY, load_today, make_test_lock
from tests.deadlines import HANG_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from imagegen.build.events import GuestEvent
    from imagegen.build.output import OutputLine
    from imagegen.fetch.lock import Lock
    from imagegen.rehearsal.network.network import Network
    from imagegen.rehearsal.sandbox import SandboxSetup

CloudT = TypeVar("CloudT")
OptionsT = TypeVar("OptionsT")
CONFIG = REPOSITORY / "configs" / "windows-2022-containerd.yaml"
TARGETS = ("aws", "azure")
DEADLINE_S = HANG_S
# The requests that stop the machine and make an image of it.
CAPTURES = {
    "aws": {"ec2:StopInstances", "ec2:CreateImage"},
    "azure": {"POST virtualmachines/deallocate", "POST virtualmachines/generalize", "PUT galleries/images/versions"},
}


@dataclasses.dataclass
class Tree:
    """A rendered tree while a test changes it; a change that changes nothing is a defect of the test."""

    files: dict[str, bytes]

    def replace(self, path: str, old: str, new: str) -> None:
        text = self.files[path].decode()
        assert text.count(old) == 1, f"{path} holds {old!r} {text.count(old)} times"
        self.files[path] = text.replace(old, new).encode()

    def drop_line(self, path: str, words: str) -> None:
        lines = self.files[path].decode().splitlines(keepends=True)
        found = [line for line in lines if words in line]
        assert len(found) == 1, f"{path} has {len(found)} lines with {words!r}"
        self.files[path] = "".join(line for line in lines if line not in found).encode()

    def add_line(self, path: str, after: str, line: str) -> None:
        self.replace(path, after, f"{after}\n{line}")

    def drop_block(self, words: str) -> None:
        blocks = self._blocks()
        del blocks[self._position(blocks, words)]
        self._put(blocks)

    def change_block(self, words: str, old: str, new: str) -> None:
        blocks = self._blocks()
        position = self._position(blocks, words)
        assert blocks[position].count(old) == 1
        blocks[position] = blocks[position].replace(old, new)
        self._put(blocks)

    def swap_blocks(self, one: str, other: str) -> None:
        blocks = self._blocks()
        first, second = self._position(blocks, one), self._position(blocks, other)
        blocks[first], blocks[second] = blocks[second], blocks[first]
        self._put(blocks)

    def add_block_after(self, words: str, block: str) -> None:
        blocks = self._blocks()
        blocks.insert(self._position(blocks, words) + 1, block)
        self._put(blocks)

    def flip_byte(self, path: str, position: int) -> None:
        data = bytearray(self.files[path])
        data[position] ^= 0x01
        self.files[path] = bytes(data)

    def _blocks(self) -> list[str]:
        body, end = self.files["build.pkr.hcl"].decode().rstrip().rsplit("\n}", 1)
        assert end == ""
        return body.split("\n\n")

    def _position(self, blocks: Sequence[str], words: str) -> int:
        (found,) = [number for number, block in enumerate(blocks) if words in block]
        return found

    def _put(self, blocks: Sequence[str]) -> None:
        self.files["build.pkr.hcl"] = ("\n\n".join(blocks) + "\n}\n").encode()


@functools.cache
def loaded() -> loading.Loaded:
    return load_today(CONFIG)


def stock_lock(config: loading.Loaded) -> Lock:
    """The lock that `imagegen lock` would make in a sandbox, without a sandbox."""
    bases = {name: _stock_base(config, name) for name in config.config.targets.named()}
    return make_test_lock(config).model_copy(update={"base_images": bases})


def _stock_base(config: loading.Loaded, target: str) -> LockedBase:
    spec = config.specs[target]
    request = provider(target).base_request(spec.settings, spec.offered_image)
    if target == "azure":
        asked = {name: request[name] for name in ("publisher", "offer", "sku")}
        version = default_marketplace()[request["offer"].lower(), request["sku"].lower()][-1]
        return LockedBase(
            request=request, identity={**asked, "version": version}, place={"location": request["location"]}
        )
    found = [image for image in DEFAULT_IMAGES if fnmatch.fnmatchcase(image.name, request["name"])]
    name = max(found, key=lambda image: image.created).name
    place = {"region": request["region"], "ami_id": base_ami_id(request["region"], name)}
    return LockedBase(request=request, identity={"owner": request["owner"], "name": name}, place=place)


@functools.cache
def _rendered(target: str) -> dict[str, bytes]:
    return pipeline.render_tree(pipeline.decide(pipeline.prepare_target(loaded(), target), stock_lock(loaded())))


def rendered(target: str) -> Tree:
    """A fresh copy of the shipped config's tree."""
    return Tree(dict(_rendered(target)))


@dataclasses.dataclass(frozen=True)
class Verdict:
    """How a rehearsal ended: passed, or what its error says; `heard` is what the display was told before."""

    passed: bool
    words: str
    heard: str


class _StoppedByFaultError(Exception):
    """Raised in the watch of Packer, as `--rehearse` does."""


class Heard:
    """A display that keeps what it is told."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def show_event(self, event: GuestEvent) -> None:
        self.lines.append(str(event))

    def show_output(self, output: OutputLine) -> None:
        self.lines.append(output.text)

    def warn(self, text: str) -> None:
        self.lines.append(text)


def setup_of(target: str, folder: Path, config: loading.Loaded | None = None) -> SandboxSetup:
    """The setup of the sandbox, as `--rehearse` makes it."""
    return prepare_setup(config or loaded(), target, folder)


def cloud_of(network: Network, kind: type[CloudT]) -> CloudT:
    """The one cloud of this kind in the network."""
    (found,) = [cloud for cloud in network.clouds if isinstance(cloud, kind)]
    return found


def options_of(setup: SandboxSetup, kind: type[OptionsT]) -> OptionsT:
    """The options of the cloud of the setup, which are of this kind."""
    assert isinstance(setup.cloud_options, kind)
    return setup.cloud_options


def sandbox_of(setup: SandboxSetup, folder: Path) -> Sandbox:
    """A sandbox with its scratch below `folder`."""
    return Sandbox(setup, Path(tempfile.mkdtemp(dir=folder)))


def rehearse_tree(
    target: str,
    tree: Tree,
    folder: Path,
    *,
    change_setup: Callable[[SandboxSetup], SandboxSetup] = lambda setup: setup,
    prepare: Callable[[Sandbox], None] = lambda _: None,
) -> Verdict:
    """Build a tree in a sandbox of its own, stopped at the first fault and judged as `--rehearse` judges."""
    write_tree(tree.files, folder / "tree")
    setup = dataclasses.replace(setup_of(target, folder), tree=lambda: folder / "tree")
    with sandbox_of(change_setup(setup), folder) as sandbox:
        prepare(sandbox)
        environ = sandbox.child_environ(os.environ)
        heard = Heard()
        code, words = _build(sandbox, target, folder, environ, heard)
        untriggered = sandbox.network.untriggered_injections
    assert untriggered == 0, "an injected fault was not triggered: the case shows nothing"
    try:
        rehearse._check_result(sandbox, code, folder)
    except BuildError as error:
        return Verdict(False, "\n".join([error.message, *error.details, *words]), "\n".join(heard.lines))
    return Verdict(True, "", "\n".join(heard.lines))


def _build(
    sandbox: Sandbox, target: str, folder: Path, environ: Mapping[str, str], heard: Heard
) -> tuple[int, list[str]]:
    def watch() -> None:
        if sandbox.faults:
            raise _StoppedByFaultError

    def watched(argv: Any, supervision: Supervision = Supervision(), **named: Any) -> int:  # noqa: ANN401, B008 - as process.stream
        return process.stream(argv, supervision=dataclasses.replace(supervision, watch=watch), **named)

    cloud = provider(target)
    tools = find_tools(
        environ=environ,
        console=make_console(plain=True, quiet=True),
        needed=[cloud.plugin],
    )
    try:
        build_tree(
            tools,
            PackerBuild(folder / "tree", folder / "packer.log", DEADLINE_S, cloud=CloudSide(cloud.environment)),
            environ=environ,
            display=heard,
            stream=watched,
        )
    except _StoppedByFaultError:
        return int(ExitCode.BUILD), []
    except BuildError as error:
        return int(error.exit_code), [error.message, *error.details]
    return int(ExitCode.OK), []


def user_environ(folder: Path, **more: str) -> dict[str, str]:
    """The little that a user's shell has; temporary files go below `folder`, where a test can count them."""
    temporary = folder / "tmp"
    temporary.mkdir(parents=True, exist_ok=True)
    kept = {name: os.environ[name] for name in ("HOME", "XDG_CACHE_HOME") if name in os.environ}
    return {"PATH": os.environ.get("PATH", os.defpath), **kept, "TMPDIR": str(temporary), **more}


def imagegen(*words: str | Path) -> list[str]:
    """The command line of the checkout."""
    return [sys.executable, "-m", "imagegen", *map(str, words)]


def processes_with(words: str) -> Iterator[int]:
    """The processes, other than this one, whose environment holds these words."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            environ = (entry / "environ").read_bytes()
        except OSError:
            # It ended meanwhile, or is another user's.
            continue
        if words.encode() in environ and int(entry.name) != os.getpid():
            yield int(entry.name)
