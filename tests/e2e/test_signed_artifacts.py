"""configs/signed-artifacts.yaml is built with signed stand-ins, and refused if one is not signed as required."""

from __future__ import annotations

import io
import json
import os
from typing import TYPE_CHECKING

import pytest

from imagegen.base.console import Console
from imagegen.base.errors import BuildError, ExitCode
from imagegen.fetch.lock import read_lock
from imagegen.plan.loading import ConfigRequest
from imagegen.rehearsal import preparation, rehearse
from imagegen.rehearsal.signing.authority import SigningAuthority
from imagegen.rehearsal.signing.sign import sign
from imagegen.rehearsal.signing.stand_in_signer import StandInSigner
from imagegen.run import Run
from tests.conftest import REPOSITORY, TODAY
from tests.signing_support import StampedSigner

if TYPE_CHECKING:
    from pathlib import Path

    from imagegen.record.manifest import ImageManifest

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("tools_are_here")]

CONFIG = REPOSITORY / "configs" / "signed-artifacts.yaml"
# A stand-in cannot have the digest of the config: imagegen says so, with these options.
SETS = (
    *(f"overrides.{name}_url.sha256=null" for name in ("containerd", "crictl", "cloudbase_init")),
    "artifacts.require_sha256=false",
)


def build(folder: Path, lines: io.StringIO, *sets: str) -> ImageManifest:
    return rehearse.rehearse_build(
        ConfigRequest(CONFIG, TODAY, (*SETS, *sets)),
        "aws",
        Run.start(os.environ, {}, Console(lines, plain=True), folder / "out"),
        flags=[],
        faults=[],
        boot=False,
    )


def test_signed_stand_ins_go_the_whole_way(tmp_path: Path) -> None:
    lines = io.StringIO()
    # The list of revoked certificates is downloaded too.
    manifest = build(tmp_path, lines, "artifacts.signatures.crls=[https://artifacts.example.com/signing.crl]")
    assert manifest.published is not None
    (file,) = (tmp_path / "out" / "rehearsal").glob("*/lock.json")
    lock = read_lock(file)
    assert lock is not None
    signers = {name: {one.signer for one in (entry.signed or {}).values()} for name, entry in lock.artifacts.items()}
    own = {"CN=Example Corporation"}
    assert signers == {
        **dict.fromkeys(("containerd", "crictl", "kubelet", "kubeadm", "kubectl", "kube-log-runner"), own),
        "cloudbase-init": {"O=Cloudbase Solutions Srl"},
    }
    assert "the signatures of 7 artifacts are as the config requires" in lines.getvalue()
    policy = json.loads(json.dumps(manifest.inputs.stated))["artifacts"]["signatures"]
    assert policy["signers"] == ["CN=Example Corporation"]


STAMPED = "artifacts.signatures.signers=[CN=Example Inc]"


def test_stand_ins_with_timestamps_go_the_whole_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparation, "StandInSigner", StampedSigner)
    assert build(tmp_path, io.StringIO(), STAMPED).published is not None


class Unsigned(StandInSigner):
    """Forgets one program."""

    def sign(self, artifact: str, path: str, data: bytes) -> bytes:
        return data if path.endswith("ctr.exe") else super().sign(artifact, path, data)


class Forged(StandInSigner):
    """Signs one program by somebody with the right name, below another root."""

    def sign(self, artifact: str, path: str, data: bytes) -> bytes:
        if not path.endswith("ctr.exe"):
            return super().sign(artifact, path, data)
        return sign(path, data, SigningAuthority((("CN", "Other"),)).certify((("CN", "Example Corporation"),)))


class Somebody(StandInSigner):
    """Signs one program by somebody else, below the same root."""

    def sign(self, artifact: str, path: str, data: bytes) -> bytes:
        return super().sign("cloudbase-init" if path.endswith("ctr.exe") else artifact, path, data)


@pytest.mark.parametrize(
    ("signer", "says"),
    [
        (Unsigned, "containerd: bin/ctr.exe is not signed, but artifacts.signatures.signers requires CN=Example"),
        (Forged, 'rejected by artifacts.signatures.signers: untrusted: the chain ends at the root "CN=Other"'),
        (Somebody, 'containerd: bin/ctr.exe is signed by O=Cloudbase Solutions Srl, but'),
    ],
)  # fmt: skip
def test_a_stand_in_that_is_wrong_ends_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, signer: type[StandInSigner], says: str
) -> None:
    monkeypatch.setattr(preparation, "StandInSigner", signer)
    lines = io.StringIO()
    with pytest.raises(BuildError) as raised:
        build(tmp_path, lines)
    assert raised.value.exit_code == ExitCode.VERIFICATION
    assert "the signature of 1 file is not as the config requires" in lines.getvalue()
    assert says in lines.getvalue()
