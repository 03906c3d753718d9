"""`imagegen attest` and `imagegen verify`: what they write and print, and what they refuse before any work."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from imagegen.base.errors import ExitCode
from imagegen.record.store import LocalStore
from tests.attest_support import Proof, make_proof, private_pem, public_pem, signing_key
from tests.unit.record.test_manifest_store import manifest

Run = Callable[..., tuple[object, str, str]]


@pytest.fixture
def proof(tmp_path: Path) -> Proof:
    made = make_proof(tmp_path)
    (tmp_path / "a.key").write_bytes(private_pem("ed25519"))
    (tmp_path / "a.key").chmod(0o600)
    (tmp_path / "a.pub").write_bytes(public_pem("ed25519"))
    return made


def test_what_attest_writes_verify_accepts(run: Run, proof: Proof, tmp_path: Path) -> None:
    for path in (proof.files.attestation, proof.files.sbom):
        path.unlink()
    signer = f"the Ed25519 key {signing_key('ed25519').public.id}"
    assert run("attest", proof.manifest, "--key", tmp_path / "a.key") == (
        0,
        f"{proof.files.attestation}: signed by {signer}\n{proof.files.sbom}\n",
        "",
    )
    assert run("verify", proof.manifest, "--key", tmp_path / "a.pub", "--lock", proof.lock, "--node", proof.node) == (
        0,
        "manifest     ok       43ed4e1a3e88057a: 9 artifacts, 2 images\n"
        f"attestation  ok       signed by {signer}\n"
        "sbom         ok       12 components\n"
        f"lock         ok       sha256 {proof.read(proof.manifest)['inputs']['lock_sha256']}\n"
        "node         ok       ip-10-0-0-7: 3 ok\n",
        "",
    )


def test_documents_without_a_signature_say_so(run: Run, proof: Proof) -> None:
    proof.files.attestation.unlink()
    code, out, err = run("attest", proof.manifest, "--format", "json")
    assert code == 0
    assert json.loads(out) == {
        "attestation": str(proof.files.attestation),
        "sbom": str(proof.files.sbom),
        "signed_by": None,
    }
    assert err == "warning: not signed, so anybody could have written it: sign it with --key FILE or --cosign\n"


def test_a_signature_is_not_lost(run: Run, proof: Proof, tmp_path: Path) -> None:
    assert run("attest", proof.manifest, "--key", tmp_path / "a.key")[0] == 0
    signed = proof.files.attestation.read_bytes()
    code, _, err = run("attest", proof.manifest)
    assert code == ExitCode.REFUSED
    assert f"error: {proof.files.attestation} is signed, and would be replaced by an unsigned one" in err
    assert proof.files.attestation.read_bytes() == signed
    assert run("attest", proof.manifest, "--out", tmp_path / "unsigned")[0] == 0


def test_a_failed_check_is_printed_with_its_reason(run: Run, proof: Proof, tmp_path: Path) -> None:
    (tmp_path / "b.pub").write_bytes(public_pem("other"))
    code, out, err = run("verify", proof.manifest, "--key", tmp_path / "b.pub")
    assert code == ExitCode.VERIFICATION
    assert out.splitlines()[1] == "attestation  failed   1 problem"
    other, signer = (signing_key(kind).public.id for kind in ("other", "ed25519"))
    assert err == (
        f"error: {proof.manifest}: 1 check failed: attestation\n"
        f"{proof.files.attestation}: signatures: has no valid signature by the Ed25519 key {other}, "
        f"but names {signer}\n"
        "  hint: give the public key of its signer, or sign it again\n"
    )


def test_a_program_reads_the_checks_as_json(run: Run, proof: Proof) -> None:
    proof.files.sbom.unlink()
    code, out, _ = run("verify", proof.manifest, "--format", "json")
    result = json.loads(out)
    assert (code, result["ok"]) == (ExitCode.VERIFICATION, False)
    assert [(one["name"], one["status"]) for one in result["checks"]] == [
        ("manifest", "ok"),
        ("attestation", "ok"),
        ("sbom", "failed"),
    ]
    assert result["checks"][2]["problems"][0]["message"] == "does not exist"


def test_documents_may_be_in_another_folder(run: Run, proof: Proof, tmp_path: Path) -> None:
    for path in (proof.files.attestation, proof.files.sbom):
        path.unlink()
    assert run("attest", proof.manifest, "--out", tmp_path / "proof", "--key", tmp_path / "a.key")[0] == 0
    assert sorted(path.name for path in (tmp_path / "proof").iterdir()) == [
        "manifest.cdx.json",
        "manifest.provenance.json",
    ]
    words = ("verify", proof.manifest, "--key", tmp_path / "a.pub")
    assert run(*words)[0] == ExitCode.VERIFICATION
    assert run(*words, "--documents", tmp_path / "proof")[0] == 0


def test_a_manifest_is_found_by_the_id_of_its_image(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    stored = LocalStore(tmp_path / "out" / "manifests")
    stored.put(manifest())
    path = tmp_path / "out" / "manifests" / "node" / "aws" / f"{'a1' * 8}.json"
    assert run("attest", "a1a1")[0] == 0
    assert run("verify", "a1a1")[0] == 0
    assert run("attest", "a1a1", "out")[0] == 0
    assert {one.name for one in path.parent.iterdir()} == {
        path.name,
        f"{path.stem}.cdx.json",
        f"{path.stem}.provenance.json",
    }
    # The documents are no manifests.
    assert run("manifest", "list")[0] == 0
    # An id in capitals, and the file itself.
    assert run("verify", "A1A1")[0] == 0
    assert run("manifest", "show", path)[:2] == run("manifest", "show", "a1a1")[:2]
    assert run("manifest", "show", "none.json")[0] == ExitCode.USAGE
    assert run("attest", "b2") == (
        ExitCode.USAGE,
        "",
        "error: out/manifests has no manifest whose image id begins with 'b2'\n"
        "hint: run `imagegen manifest list out` to see them\n",
    )


def test_a_key_that_others_may_read_is_a_warning(run: Run, proof: Proof, tmp_path: Path) -> None:
    (tmp_path / "a.key").chmod(0o640)
    code, _, err = run("attest", proof.manifest, "--key", tmp_path / "a.key")
    assert (code, err) == (
        0,
        f"warning: other users may read the key {tmp_path}/a.key: run `chmod 600 {tmp_path}/a.key`\n",
    )


def test_the_passphrase_of_a_key_comes_from_the_environment(
    run: Run, proof: Proof, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.key").write_bytes(private_pem("ed25519", "horse"))
    words = ("attest", proof.manifest, "--key", tmp_path / "a.key", "--key-passphrase-env", "ATTEST_PASSPHRASE")
    assert run(*words)[2] == (
        "error: the environment variable ATTEST_PASSPHRASE is not set\nhint: set it to the passphrase of the key\n"
    )
    monkeypatch.setenv("ATTEST_PASSPHRASE", "horse")
    assert run(*words)[0] == 0
    for path in tmp_path.iterdir():
        assert b"horse" not in path.read_bytes()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--key", "k", "--cosign"], "--key and --cosign cannot be used together: cosign's own key is --cosign-key"),
        (["--key-passphrase-env", "X"], "--key-passphrase-env can only be used together with --key"),
        (["--cosign-key", "k"], "--cosign-key and --public-log can only be used together with --cosign"),
        (["--public-log"], "--cosign-key and --public-log can only be used together with --cosign"),
        (["--cosign"], "--cosign without a key signs with your identity, which Sigstore publishes for ever"),
        (["--key", "missing.key"], "the key missing.key does not exist"),
    ],
)
def test_options_that_do_not_fit_are_refused(run: Run, proof: Proof, words: list[str], message: str) -> None:
    before = proof.files.attestation.read_bytes()
    code, out, err = run("attest", proof.manifest, *words)
    assert (code, out) == (ExitCode.USAGE, "")
    assert message in err
    assert proof.files.attestation.read_bytes() == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["missing.json"], "missing.json does not exist"),
        (["{folder}/manifest.json", "{folder}"], "{folder}/manifest.json is a file, so FOLDER has no effect"),
        (["{folder}/manifest.json", "--key", "no.pub"], "the key no.pub does not exist"),
        (["{folder}/manifest.json", "--key", "{folder}/a.key"], "is a private key, which must stay where it signs"),
        (["{folder}/manifest.json", "--lock", "no.json"], "no.json does not exist"),
        (["{folder}/manifest.json", "--node", "no.txt"], "no.txt does not exist"),
        (["{folder}/manifest.json", "--documents", "no"], "no does not exist"),
        (["{folder}/manifest.json", "--documents", "{folder}/manifest.json"], "manifest.json is not a folder"),
    ],
)
def test_a_file_that_is_not_there_is_an_error_of_the_command_line(
    run: Run, proof: Proof, words: list[str], message: str
) -> None:
    code, out, err = run("verify", *(word.format(folder=proof.folder) for word in words))
    assert (code, out) == (ExitCode.USAGE, "")
    assert message.format(folder=proof.folder) in err


def test_whoever_names_a_folder_of_documents_wants_them(run: Run, proof: Proof, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    code, out, err = run("verify", proof.manifest, "--documents", tmp_path / "empty")
    assert (code, "attestation  failed" in out) == (ExitCode.VERIFICATION, True)
    assert "manifest.provenance.json: does not exist" in err


def test_a_manifest_that_cannot_be_attested_is_refused(run: Run, proof: Proof, tmp_path: Path) -> None:
    proof.change(proof.manifest, lambda it: it.update(built=None, published=None))
    shutil.rmtree(tmp_path / "proof", ignore_errors=True)
    code, out, err = run("attest", proof.manifest, "--out", tmp_path / "proof")
    assert (code, out) == (ExitCode.USAGE, "")
    assert err.startswith(f"error: {proof.manifest} cannot be attested\n{proof.manifest}: built: no image was built\n")
    assert not (tmp_path / "proof").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda it: it.update(created="yesterday"), "has a value that cannot be attested: Invalid isoformat string"),
        (
            lambda it: it["inputs"]["artifacts"]["nssm"].update(url="https://a.test/%zz"),
            "has a value that an SBOM cannot have: ",
        ),
        (lambda it: it["inputs"]["artifacts"].update({"": it["inputs"]["artifacts"]["executable-1"]}), "name"),
    ],
)
def test_a_value_that_an_sbom_cannot_have_is_refused(
    run: Run, proof: Proof, change: Callable[[object], object], message: str
) -> None:
    proof.change(proof.manifest, change)
    code, out, err = run("attest", proof.manifest)
    assert (code, out) == (ExitCode.USAGE, "")
    assert message in err


def test_a_url_with_any_character_is_attested(run: Run, proof: Proof) -> None:
    proof.files.attestation.unlink()
    url = "https://a.test/[x]/%20{'y'}"
    proof.change(proof.manifest, lambda it: it["inputs"]["artifacts"]["nssm"].update(url=url))
    assert run("attest", proof.manifest)[0] == 0
    assert run("verify", proof.manifest)[0] == 0


@pytest.mark.parametrize(("options", "code"), [((), 4), (("--rehearsal",), 0)])
def test_the_manifest_of_a_rehearsal_needs_the_option(
    run: Run, proof: Proof, tmp_path: Path, options: Sequence[str], code: int
) -> None:
    """Whoever has the key may have signed it by mistake."""
    proof.change(proof.manifest, lambda it: it["labels"].update(rehearsal="true"))
    proof.attest("ed25519")
    status, _, errors = run("verify", proof.manifest, "--key", tmp_path / "a.pub", *options)
    assert (status, "labels.rehearsal: is the manifest of a rehearsal" in errors) == (code, code == 4)
