"""A node that runs only signed scripts: the image is built, sealed and booted under the policy AllSigned. A script that
is not signed fails by its name, wherever it is started."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from imagegen.providers.registry import PROVIDERS
from imagegen.rehearsal.boot.boot import boot_image
from imagegen.rehearsal.boot.booted import Image
from imagegen.rehearsal.cloudbase_init.run import Runner
from imagegen.rehearsal.machine.certificates import TRUSTED_PUBLISHER
from imagegen.rehearsal.machine.script_policy import ALL_SIGNED, POLICY
from imagegen.trust.block import without_signature
from tests.authenticode.tools import find_tools
from tests.conftest import REPOSITORY
from tests.deadlines import HANG_S
from tests.e2e.boot_support import capture
from tests.signing_support import (
    SIGNED,
    listed,
    sign_all,
    signers,
    write_config,
)

if TYPE_CHECKING:
    from pathlib import Path

    from imagegen.rehearsal.boot.booted import Boot, Image

pytestmark = pytest.mark.e2e

MORE = "ssh: {}\nscripts: [own.ps1]\nkubeadm_scripts: {pre: [own.ps1]}\ncni: {plugin: win-bridge}\n"
OWN = b"Write-Output own\n"


def make_image(folder: Path, target: str) -> Image:
    (folder / "own.ps1").write_bytes(OWN)
    config = write_config(folder, MORE)
    sign_all(config, target)
    return Image(capture(target, folder / "disk", config), config.specs[target])


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    return make_image(tmp_path_factory.mktemp("image"), "aws")


def boot(image: Image, folder: Path) -> Boot:
    return boot_image(image, Runner(folder, os.environ))


@pytest.mark.parametrize("target", PROVIDERS)
def test_an_image_of_signed_scripts_comes_up(tmp_path: Path, target: str) -> None:
    image = make_image(tmp_path, target)
    assert image.machine.certificates.thumbprints(TRUSTED_PUBLISHER) == {signers().signer.read.sha1}
    booted = boot(image, tmp_path)
    assert booted.faults == []
    assert booted.machine.registry.text(POLICY, "ExecutionPolicy") == ALL_SIGNED


PATHS = {
    r"C:\Windows\Setup\Scripts\first-boot.ps1": "setup: ",
    r"C:\k\start-kubelet.ps1": "join: ",
    r"C:\k\pre-kubeadm\01-own.ps1": "join: ",
    r"C:\k\set-pod-network.ps1": "signed-scripts: ",
}


@pytest.mark.parametrize("path", PATHS)
def test_one_script_without_its_signature_fails_the_boot(image: Image, tmp_path: Path, path: str) -> None:
    machine = image.machine.copy(tmp_path / "disk")
    machine.files.write(path, without_signature(machine.files.read(path)))
    booted = boot(dataclasses.replace(image, machine=machine), tmp_path)
    assert any(fault.startswith(PATHS[path]) for fault in booted.faults), booted.faults
    (refused,) = [fault for fault in booted.faults if fault.startswith("signed-scripts: ")]
    assert f"{path}: it is not signed" in refused


def test_a_rehearsal_with_packer_builds_and_boots_it(tmp_path: Path) -> None:
    """The scripts are signed by a program that operators have, and listed by the command that they use."""
    (tmp_path / "own.ps1").write_bytes(OWN)
    config = write_config(tmp_path, MORE)
    tools_folder = tmp_path / "tools"
    tools_folder.mkdir()
    tools = find_tools(tools_folder)
    (tmp_path / "chain.pem").write_bytes(b"".join(one.pem for one in signers().signer.chain[:-1]))
    (tmp_path / "key.pem").write_bytes(signers().signer.key_pem)
    imagegen(tmp_path, "sign-list", config.file, "--target", "aws", "--out", tmp_path / "to-sign")
    for file in (tmp_path / "to-sign").rglob("*.ps*1"):
        target = tmp_path / SIGNED / file.relative_to(tmp_path / "to-sign")
        target.parent.mkdir(parents=True, exist_ok=True)
        options = ("-h", "sha256", "-certs", tmp_path / "chain.pem", "-key", tmp_path / "key.pem")
        tools.sign(file, target, *options)
    out = tmp_path / "out"
    printed = imagegen(
        tmp_path, "build", config.file, "--target", "aws", "--rehearse", "--out", out, "--plain", "--format", "json"
    )
    manifest = json.loads(printed)
    assert "failed" not in manifest["notes"]["rehearsal"]
    checked = manifest["report"]["signatures"]
    # Packer runs the other three by themselves. The same bytes are one file: the config has own.ps1 twice.
    bundled = {script.data for script in listed(config, "aws")} - {sent(name) for name in SENT}
    # The others are programs, which the config's policy asks for too.
    assert (len(checked) > len(bundled), set(checked.values())) == (True, {"machine"})
    kinds = [row["kind"] for row in manifest["report"]["resources"]]
    assert kinds[:2] == ["certificate", "certificate"]


SENT = ("guest/start.ps1", "guest/logs.ps1", "aws/generalise.ps1")


def sent(name: str) -> bytes:
    return (REPOSITORY / "packer" / name).read_bytes()


def imagegen(folder: Path, *arguments: object) -> str:
    done = subprocess.run(  # noqa: S603 - the command under test
        [sys.executable, "-m", "imagegen", *map(str, arguments)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
