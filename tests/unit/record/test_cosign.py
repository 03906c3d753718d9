"""cosign is started so that nothing is published, and what it signed is looked at before it is kept."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from imagegen.base.errors import ToolError
from imagegen.build.process import Completed
from imagegen.record.attest import Statement, make_documents, make_statement, sign, sign_with_cosign
from imagegen.record.store import read_manifest
from tests.attest_support import check, said, signing_key

if TYPE_CHECKING:
    from tests.attest_support import Proof

HORSE = "correct horse"
MEDIA_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"


class Cosign:
    """Stands for a run of cosign: it signs with a key of the test, as cosign 3 writes it."""

    def __init__(self, **changes: Any) -> None:  # noqa: ANN401 - JSON
        self.argv: list[str] = []
        self.payload = b""
        self.changes = changes
        self.result = Completed(0, "", "Wrote bundle to file bundle.json\n")

    def __call__(
        self, argv: Sequence[str | Path], *, environ: Mapping[str, str], cwd: Path | None = None, timeout: float
    ) -> Completed:
        assert environ["COSIGN_PASSWORD"] == HORSE
        assert cwd is None
        assert timeout > 180
        self.argv = [str(word) for word in argv]
        self.payload = Path(self.value("--statement")).read_bytes()
        envelope = json.loads(sign(Statement(json.loads(self.payload)), signing_key("p256")))
        # cosign names no key.
        del envelope["signatures"][0]["keyid"]
        bundle = {"mediaType": MEDIA_TYPE, "verificationMaterial": {"publicKey": {}}, "dsseEnvelope": envelope}
        if self.result.returncode == 0:
            Path(self.value("--bundle")).write_text(json.dumps(bundle | self.changes))
        return self.result

    def value(self, option: str) -> str:
        return self.argv[self.argv.index(option) + 1]


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """A PATH with a cosign."""
    program = tmp_path / "bin" / "cosign"
    program.parent.mkdir()
    program.touch(mode=0o755)
    return {"PATH": str(program.parent), "COSIGN_PASSWORD": HORSE}


def statement_of(proof: Proof) -> Statement:
    return make_statement(read_manifest(proof.manifest), None)


def test_what_cosign_signs_with_a_key_verifies_with_it(proof: Proof, environ: dict[str, str]) -> None:
    cosign = Cosign()

    def signing(statement: Statement) -> bytes:
        return sign_with_cosign(statement, "my.key", public_log=False, environ=environ, run=cosign)

    make_documents(read_manifest(proof.manifest), signing).write(proof.files)
    assert said(check(proof, "p256"), proof.folder) == {}
    assert said(check(proof, "other"), proof.folder)["attestation"][0].endswith(
        f"by the Ed25519 key {signing_key('other').public.id}"
    )
    scratch = Path(cosign.value("--bundle")).parent
    assert cosign.argv == [
        *(f"{environ['PATH']}/cosign", "attest-blob", "--statement", f"{scratch}/statement.json"),
        *("--bundle", f"{scratch}/bundle.json", "--new-bundle-format=true", "--yes", "--key", "my.key"),
        *("--use-signing-config=false", "--tlog-upload=false"),
    ]
    assert not scratch.exists()


@pytest.mark.parametrize(("key", "words"), [(None, []), ("awskms:///x", ["--key", "awskms:///x"])])
def test_the_public_log_is_used_only_where_that_is_said(
    proof: Proof, environ: dict[str, str], key: str | None, words: list[str]
) -> None:
    cosign = Cosign()
    sign_with_cosign(statement_of(proof), key, public_log=True, environ=environ, run=cosign)
    assert cosign.argv[6:] == ["--new-bundle-format=true", "--yes", *words]


def test_without_cosign_the_hint_installs_it(proof: Proof, tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="cosign is not on the PATH") as refused:
        sign_with_cosign(statement_of(proof), "k", public_log=False, environ={"PATH": str(tmp_path)})
    assert "install cosign 2.6 or newer" in refused.value.hint


@pytest.mark.parametrize(
    ("stderr", "hint"),
    [
        ("Error: reading key: decrypt: encrypted: decryption failed\n", "set COSIGN_PASSWORD"),
        ("Enter password for private key: Error: inappropriate ioctl for device\n", "set COSIGN_PASSWORD"),
        ("Error: unknown flag: --statement\n", "install cosign 2.6 or newer"),
        ("Error: getting signer: no such key\n", "read cosign's output above"),
        ("\n".join(f"line {number}" for number in range(100)), "read cosign's output above"),
    ],
)
def test_a_failed_cosign_is_told_with_its_own_words(
    proof: Proof, environ: dict[str, str], stderr: str, hint: str
) -> None:
    cosign = Cosign()
    cosign.result = Completed(1, "", stderr)
    with pytest.raises(ToolError, match="cosign ended with exit code 1 and signed nothing") as refused:
        sign_with_cosign(statement_of(proof), "k", public_log=False, environ=environ, run=cosign)
    assert refused.value.hint.startswith(hint)
    assert list(refused.value.details) == stderr.splitlines()[-10:]


def other_payload() -> dict[str, Any]:
    payload = base64.b64encode(b"{}").decode()
    return {"payload": payload, "payloadType": "application/vnd.in-toto+json", "signatures": [{"sig": "AA=="}]}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dsseEnvelope": {}}, "cosign's bundle cannot be read"),
        ({"dsseEnvelope": other_payload()}, "cosign did not sign the statement that it was given"),
    ],
)
def test_a_bundle_of_something_else_is_not_kept(
    proof: Proof, environ: dict[str, str], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ToolError, match=message):
        sign_with_cosign(statement_of(proof), "k", public_log=False, environ=environ, run=Cosign(**changes))


def test_a_cosign_that_waits_for_ever_is_ended(proof: Proof, environ: dict[str, str]) -> None:
    def wait(*_: object, **__: object) -> Completed:
        raise TimeoutError("cosign attest-blob --statement did not end within 300 s")

    with pytest.raises(ToolError, match="did not end within 300 s"):
        sign_with_cosign(statement_of(proof), "k", public_log=False, environ=environ, run=wait)
