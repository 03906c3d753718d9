"""The walks of the operator guide, command by command: from a policy to a proof, then in a closed network."""

from __future__ import annotations

import dataclasses
import gzip
import os
import re
import shlex
import shutil
import sys
from typing import TYPE_CHECKING, Final, cast

import pytest

from imagegen.base.errors import ExitCode
from imagegen.build import process
from imagegen.fetch.lock import read_lock
from imagegen.record.store import ATTESTATION, SBOM
from imagegen.rehearsal import preparation
from imagegen.rehearsal.boot.boot import boot_image
from imagegen.rehearsal.boot.booted import Image
from imagegen.rehearsal.cloudbase_init.run import Runner
from imagegen.rehearsal.signing.authority import SigningAuthority
from imagegen.rehearsal.signing.sign import sign
from imagegen.rehearsal.signing.stand_in_signer import StandInSigner
from tests.conftest import REPOSITORY, load_today
from tests.e2e.boot_support import check_node
from tests.e2e.rehearsal_support import DEADLINE_S, sandbox_of, setup_of, user_environ

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from imagegen.build.process import Completed
    from imagegen.rehearsal.boot.booted import Image
    from imagegen.rehearsal.machine.windows import Machine
    from imagegen.rehearsal.sandbox import Sandbox, SandboxSetup

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("tools_are_here")]

GUIDE: Final = (REPOSITORY / "docs" / "operator-guide.md").read_text(encoding="utf-8")
MIRROR: Final = "https://files.example.com/mirror"
CONTAINERD: Final = "containerd-2.3.4.tar.gz"
OWN_FILES: Final = ("image.yaml", "image.lock.json", "mirror", "roots", "signed-scripts", "attest.key", "attest.pub")


def _section(title: str) -> str:
    (found,) = re.findall(rf"(?ms)^(#+) {title}\n(.*?)(?=^#{{2,3}} |\Z)", GUIDE)
    return str(found[1])


def _blocks(section: str, language: str) -> list[str]:
    return re.findall(rf"(?ms)^```{language}\n(.*?)^```$", section)


def _commands(section: str) -> list[list[str]]:
    """The commands of each block. Another test builds the wheel and installs it."""
    blocks = [re.findall(r"(?m)^\$ (.*)$", block) for block in _blocks(section, "console")]
    return [[command for command in block if not command.startswith("pip ")] for block in blocks]


PROOF, CLOSED = _section("From a policy to a proof"), _section("Closed networks")


class Company:
    """Who signs programs and scripts, as the guide calls it."""

    def __init__(self) -> None:
        self.authority = SigningAuthority((("CN", "Example Root"),))
        self.signer = self.authority.certify((("CN", "Example Corporation"),))

    def sign_files(self, source: Path, target: Path) -> None:
        for file in (file for file in source.rglob("*") if file.is_file()):
            copy = target / file.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(sign(file.name, file.read_bytes(), self.signer))

    def stand_in(self) -> type[StandInSigner]:
        """Signs all stand-ins of artifacts."""
        company = self

        class Signer(StandInSigner):
            @property
            def roots(self) -> bytes:
                return company.authority.pem

            def sign(self, _artifact: str, path: str, data: bytes) -> bytes:
                return sign(path, data, company.signer)

        return Signer


@dataclasses.dataclass
class Desk:
    """A folder in which somebody types the commands of the guide."""

    folder: Path
    sandbox: Sandbox | None = None
    image_id: str = ""

    def type(self, command: str) -> Completed:
        """What a shell does with a command of the guide. `ID` is that of the image."""
        # Packer's plugin makes its socket among the temporary files, and Unix limits the path of a socket.
        environ = user_environ(self.folder.parent)
        environ = self.sandbox.child_environ(environ) if self.sandbox else environ
        words = re.sub(r"\bID\b", self.image_id or "ID", command)
        line = f'imagegen() {{ {shlex.quote(sys.executable)} -m imagegen "$@"; }}; {words}'
        return process.run(["/bin/sh", "-c", line], environ=environ, cwd=self.folder, timeout=DEADLINE_S)

    def walk(self, commands: list[str]) -> list[str]:
        """Type them one after another; what each prints."""
        printed = []
        for command in commands:
            done = self.type(command)
            assert done.returncode == ExitCode.OK, (command, done.stderr)
            printed.append(done.stdout)
        return printed

    def find_image(self) -> Path:
        """The manifest of the image that was built."""
        (manifest,) = (file for file in self.folder.glob("out/manifests/*/*/*.json") if file.stem.count(".") == 0)
        self.image_id = load_id(manifest)
        return manifest


def load_id(manifest: Path) -> str:
    (found,) = re.findall(r'(?m)^  "image_id": "([0-9a-f]+)"', manifest.read_text())
    return str(found)[:8]


def _served(mirror: Path) -> dict[str, bytes]:
    files = [file for file in mirror.rglob("*") if file.is_file()]
    return {f"{MIRROR}/{file.relative_to(mirror).as_posix()}": file.read_bytes() for file in files}


@pytest.fixture
def company(monkeypatch: pytest.MonkeyPatch) -> Company:
    made = Company()
    monkeypatch.setattr(preparation, "StandInSigner", made.stand_in())
    return made


def _setup(folder: Path, config: str) -> SandboxSetup:
    """A network whose machines trust what the config says, and nobody else."""
    return dataclasses.replace(setup_of("aws", folder / "out", load_today(folder / config)), signing_roots=b"")


@pytest.fixture
def outside(tmp_path: Path, company: Company) -> Path:
    """The folder of the config, with the root of the company beside it."""
    folder = tmp_path / "outside"
    (folder / "roots").mkdir(parents=True)
    (folder / "roots" / "example-root.pem").write_bytes(company.authority.pem)
    (folder / "image.yaml").write_text(_blocks(PROOF, "yaml")[0])
    return folder


def test_from_a_policy_to_a_proof_and_then_a_closed_network(tmp_path: Path, outside: Path, company: Company) -> None:
    policy, inspect, scripts, lock, (rehearse, *build), proof, node = _commands(PROOF)
    fill, inside = _commands(CLOSED)
    desk = Desk(outside)
    # A config names the file of the roots, which the first commands make.
    desk.walk(policy[:2])
    setup = _setup(outside, "image.yaml")
    (outside / CONTAINERD).write_bytes(_one(setup.artifacts, f"/{CONTAINERD}"))
    desk.walk(policy[2:])
    assert set(re.findall(r"(?m)^  signature +(\w+)", desk.walk(inspect)[0])) == {"valid"}
    desk.walk(scripts[:1])
    company.sign_files(outside / "to-sign", outside / "signed-scripts")
    assert "0 to sign" in desk.walk(scripts[1:])[0]
    with sandbox_of(_setup(outside, "image.yaml"), tmp_path) as sandbox:
        desk.sandbox = sandbox
        desk.walk(lock)
        told = desk.walk(fill)[1]
        # A rehearsal needs no cloud: it has its own.
        desk.sandbox = None
        desk.walk([rehearse])
        desk.sandbox = sandbox
        desk.walk(build)
        assert (sandbox.faults, sandbox.captured is None) == ([], False)
        spec = load_today(outside / "image.yaml").specs["aws"]
        image = Image(cast("Machine", sandbox.captured), spec)
    desk.sandbox = None
    manifest = desk.find_image()
    desk.walk(proof)
    for suffix in (".json", ATTESTATION, SBOM):
        shutil.copy(manifest.with_name(f"{manifest.stem}{suffix}"), outside / f"manifest{suffix}")
    booted = boot_image(image, Runner(tmp_path, os.environ))
    assert booted.faults == []
    trees = [path for path in outside.glob("**/tree") if "rehearsal" not in path.parts]
    tree = max(trees, key=lambda path: path.stat().st_mtime)
    (outside / "check.txt").write_text(check_node(booted.machine, tree))
    assert re.search(r"(?m)^node +ok ", desk.walk(node)[0])
    _walk_inside(tmp_path / "inside", outside, told, inside)


def _walk_inside(folder: Path, outside: Path, told: str, commands: list[str]) -> None:
    """The commands of the closed network, in a folder with what is carried over; the keys are those of the proof."""
    folder.mkdir()
    for name in OWN_FILES:
        (shutil.copytree if (outside / name).is_dir() else shutil.copy)(outside / name, folder / name)
    (folder / "closed.yaml").write_text(_blocks(CLOSED, "yaml")[0])
    loaded = load_today(folder / "closed.yaml")
    wanted = {f"overrides.{name}": value for name, value in loaded.config.overrides.items()}
    assert dict(re.findall(r"(?m)^(\S+) is a URL of the config, .*: write (\S+)$", told)) == wanted
    setup = dataclasses.replace(_setup(folder, "closed.yaml"), artifacts=_served(folder / "mirror"))
    copy, lock, *rest = commands
    _refuse_another_signed_file(folder, setup, [copy, lock])
    desk = Desk(folder)
    with sandbox_of(setup, folder.parent) as desk.sandbox:
        desk.walk([copy, lock])
        assert _digests(folder / "closed.lock.json") == _digests(folder / "image.lock.json")
        doctor, build, *proof = rest
        desk.walk([doctor, build])
        assert desk.sandbox.faults == []
        hosts = {entry.host for entry in desk.sandbox.network.journal if not entry.host[0].isdigit()}
    assert {host for host in hosts if not host.endswith(".amazonaws.com")} == {"files.example.com"}
    desk.sandbox = None
    desk.find_image()
    desk.walk(proof)


def _refuse_another_signed_file(folder: Path, setup: SandboxSetup, commands: list[str]) -> None:
    """The mirror serves another file that the same company signed: only the lock tells."""
    containerd = _url(setup.artifacts, f"/{CONTAINERD}")
    other = _repacked(setup.artifacts[containerd])
    changed = dataclasses.replace(setup, artifacts={**setup.artifacts, containerd: other})
    desk = Desk(folder)
    with sandbox_of(changed, folder.parent) as desk.sandbox:
        desk.walk(commands[:1])
        refused = desk.type(commands[1])
    assert refused.returncode == ExitCode.VERIFICATION, refused.stderr
    assert f"containerd: {containerd} has other bytes than " in refused.stderr
    assert "run `imagegen lock closed.yaml --upgrade containerd`" in refused.stderr
    assert _digests(folder / "closed.lock.json") == _digests(folder / "image.lock.json")


def _repacked(data: bytes) -> bytes:
    """The same programs, packed at another time: signed as before."""
    return gzip.compress(gzip.decompress(data), mtime=1)


def _digests(file: Path) -> dict[str, str]:
    lock = read_lock(file)
    assert lock is not None
    return {name: one.sha256 for name, one in lock.artifacts.items()}


def _url(artifacts: Mapping[str, bytes], end: str) -> str:
    (url,) = (url for url in artifacts if url.endswith(end))
    return url


def _one(artifacts: Mapping[str, bytes], end: str) -> bytes:
    return artifacts[_url(artifacts, end)]
