"""Proof of a rehearsed build: signed by a key and by a cosign on the PATH, and compared with a node of the image."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from imagegen.base.console import make_console
from imagegen.base.errors import ExitCode
from imagegen.build import process
from imagegen.plan.loading import ConfigRequest
from imagegen.record.store import ATTESTATION, SBOM
from imagegen.rehearsal import rehearse
from imagegen.rehearsal.boot.boot import boot_image
from imagegen.run import Run
from tests.attest_support import private_pem, public_pem
from tests.conftest import TODAY
from tests.deadlines import HANG_S
from tests.e2e.boot_support import check_node
from tests.e2e.rehearsal_support import CONFIG, imagegen, user_environ

if TYPE_CHECKING:
    from imagegen.build.process import Completed
    from imagegen.rehearsal.boot.booted import Boot

pytestmark = pytest.mark.e2e

TARGET = "azure"
SCRIPT = r"C:\k\start-kubelet.ps1"
# It writes what cosign 3 writes, and keeps the arguments that it was given.
COSIGN = """\
#!{python}
import json, pathlib, sys
from imagegen.record.attest import sign
from imagegen.record.attest import read_signing_key
from imagegen.record.attest import Statement

def value(option):
    return pathlib.Path(sys.argv[sys.argv.index(option) + 1])

pathlib.Path(__file__).with_name("argv.json").write_text(json.dumps(sys.argv[1:]))
statement = Statement(json.loads(value("--statement").read_bytes()))
envelope = json.loads(sign(statement, read_signing_key(value("--key").read_bytes(), "key", None)))
media_type = "application/vnd.dev.sigstore.bundle.v0.3+json"
material = {{"publicKey": {{"hint": "x"}}}}
bundle = {{"mediaType": media_type, "verificationMaterial": material, "dsseEnvelope": envelope}}
value("--bundle").write_text(json.dumps(bundle))
"""


@dataclasses.dataclass(frozen=True)
class Built:
    """A rehearsed build: its manifest and lock, and what -Check printed on its node, before and after a change."""

    folder: Path
    manifest: Path
    lock: Path
    checks: tuple[str, ...]

    def run(self, *words: str | Path, **environ: str) -> Completed:
        return process.run(imagegen(*words), environ=user_environ(self.folder, **environ), timeout=HANG_S)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("built")
    nodes: list[Boot] = []

    def boot(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - as the original has them
        nodes.append(boot_image(*arguments, **named))
        return nodes[-1]

    checks = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(rehearse, "boot_image", boot)
        patched.setattr(rehearse, "scratch_folder", lambda *_: contextlib.nullcontext(tmp_path_factory.mktemp("s")))
        rehearse.rehearse_build(
            *(ConfigRequest(CONFIG, TODAY), TARGET),
            Run.start(user_environ(folder), {}, make_console(plain=True, quiet=True), folder),
            flags=(),
            faults=(),
            boot=True,
        )
    (rehearsed,) = (folder / "rehearsal").glob("windows-*")
    (tree,) = rehearsed.glob("**/tree")
    machine = nodes[0].machine
    checks.append(check_node(machine, tree))
    machine.files.write(SCRIPT, machine.files.read(SCRIPT) + b"# changed by somebody\n")
    checks.append(check_node(machine, tree))
    (manifest,) = rehearsed.glob("manifests/*/*/*.json")
    (folder / "a.key").write_bytes(private_pem("ed25519"))
    (folder / "a.key").chmod(0o600)
    (folder / "a.pub").write_bytes(public_pem("ed25519"))
    return Built(folder, manifest, rehearsed / "lock.json", tuple(checks))


def test_proof_of_a_build_holds_for_its_lock_and_its_node(built: Built) -> None:
    signed = built.run("attest", built.manifest, "--key", built.folder / "a.key")
    assert (signed.returncode, signed.stderr) == (0, "")
    node = built.folder / "check.txt"
    node.write_text(built.checks[0])
    documents = ("--key", built.folder / "a.pub", "--lock", built.lock, "--node", node)
    words = ("verify", built.manifest, "--rehearsal", *documents)
    verified = built.run(*words, "--format", "json")
    assert verified.returncode == 0, verified.stderr
    checks = json.loads(verified.stdout)["checks"]
    assert [(one["name"], one["status"]) for one in checks] == [
        (name, "ok") for name in ("manifest", "attestation", "sbom", "lock", "node")
    ]
    manifest = json.loads(built.manifest.read_bytes())
    assert manifest["finished"] >= manifest["created"]
    assert manifest["run_id"]
    unsigned = built.run("attest", built.manifest, "--out", built.folder / "unsigned", "--format", "json")
    statement = json.loads(unsigned.stdout)["attestation"]
    metadata = json.loads(Path(statement).read_bytes())["predicate"]["runDetails"]["metadata"]
    assert metadata == {
        "invocationId": manifest["run_id"],
        "startedOn": manifest["created"],
        "finishedOn": manifest["finished"],
    }


def test_a_node_that_has_drifted_is_refused_by_the_file_that_changed(built: Built) -> None:
    node = built.folder / "drifted.txt"
    node.write_text(built.checks[1])
    verified = built.run("verify", built.manifest, "--rehearsal", "--node", node)
    assert verified.returncode == ExitCode.VERIFICATION
    assert f"{node}: kubernetes/file:C:\\k\\start-kubelet.ps1: has drifted: sha256 is " in verified.stderr


def test_a_cosign_on_the_path_signs_with_its_own_key(built: Built) -> None:
    program = built.folder / "bin" / "cosign"
    program.parent.mkdir()
    program.write_text(COSIGN.format(python=sys.executable))
    program.chmod(0o755)
    (built.folder / "cosign.key").write_bytes(private_pem("p256"))
    (built.folder / "cosign.pub").write_bytes(public_pem("p256"))
    signed = built.run(
        *("attest", built.manifest, "--cosign", "--cosign-key", built.folder / "cosign.key"),
        PATH=f"{program.parent}:{os.environ['PATH']}",
    )
    assert signed.returncode == 0, signed.stderr
    assert signed.stdout.splitlines()[0].endswith(f"{built.manifest.stem}{ATTESTATION}: signed by cosign")
    assert signed.stdout.splitlines()[1].endswith(f"{built.manifest.stem}{SBOM}")
    argv = json.loads((program.parent / "argv.json").read_bytes())
    assert argv[0] == "attest-blob"
    assert argv[5:] == [
        *("--new-bundle-format=true", "--yes", "--key", str(built.folder / "cosign.key")),
        *("--use-signing-config=false", "--tlog-upload=false"),
    ]
    assert built.run("verify", built.manifest, "--rehearsal", "--key", built.folder / "cosign.pub").returncode == 0
    refused = built.run("verify", built.manifest, "--rehearsal", "--key", built.folder / "a.pub")
    assert refused.returncode == ExitCode.VERIFICATION
    assert "has no valid signature by the Ed25519 key " in refused.stderr
