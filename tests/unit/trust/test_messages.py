"""What imagegen advises for each reason why a signature does not count. The advice, followed, makes the file valid."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

from imagegen.authenticode.model import Verdict
from imagegen.authenticode.trust import load_trust
from imagegen.trust.messages import add_to_roots, advise
from tests.authenticode.pki import LATER, NOW, STAMPED, START, make_authority, make_ca, make_root, make_signer, pki
from tests.authenticode.signing import NESTED, Options, sign_pe, signature_of
from tests.authenticode.support import fixture, judge, trust

if TYPE_CHECKING:
    from imagegen.authenticode.model import Trust, Verification
    from tests.authenticode.pki import Identity

PROGRAM = fixture("program.exe")
OTHER_ROOT = make_root("O=Other, CN=Other Root")
OTHER_CA = make_ca(OTHER_ROOT, "O=Other, CN=Other CA")
STRANGER = make_signer(OTHER_CA)
AGAIN = "sign it again with the certificates of its CAs (osslsigncode: -ac FILE, signtool: /ac FILE)"
ADD = "add it to the PEM file of the roots"
THIS = f"if you trust this root, {ADD}"


def found(signer: Identity, options: Options, trusted: Trust | None = None) -> tuple[Verification, str]:
    trusted = trusted or trust()
    verification = judge(sign_pe(PROGRAM, signer, options), "x.exe", trusted)
    advice = advise(verification, trusted, add_root=add_to_roots(trusted, "the roots"), other="take another one")
    return verification, advice


def test_a_missing_ca_is_added_to_the_signature() -> None:
    missing, advice = found(pki().signer, Options(certificates=[pki().signer]))
    assert missing.reason.startswith('the certificate of "CN=Example Code CA, O=Example" is missing')
    assert advice == f"{AGAIN}; if the missing one is a root that you trust, {ADD}"
    assert found(pki().signer, Options())[0].verdict is Verdict.VALID


def test_a_missing_root_is_added_to_the_roots() -> None:
    missing, advice = found(STRANGER, Options())
    assert missing.reason.startswith('the certificate of "CN=Other Root, O=Other" is missing')
    assert advice == f"if the missing one is a root that you trust, {ADD}; if it is another CA, {AGAIN}"
    assert found(STRANGER, Options(), trust(OTHER_ROOT))[0].verdict is Verdict.VALID


def test_a_root_that_came_with_the_signature_is_added_to_the_roots() -> None:
    assert found(STRANGER, Options(certificates=STRANGER.chain))[1] == THIS


def test_a_certificate_that_signed_itself_is_no_root() -> None:
    assert found(make_signer(None), Options())[1] == f"if you trust this certificate, {ADD}"  # type: ignore[arg-type]  # it signs itself


def test_without_own_roots_the_file_replaces_those_of_microsoft() -> None:
    advice = found(STRANGER, Options(certificates=STRANGER.chain), load_trust(now=NOW))[1]
    assert advice == (
        "if you trust this root, write it into a PEM file for the roots, with the roots of your vendors: the file "
        "replaces Microsoft's list"
    )


def test_a_chain_that_no_root_mends() -> None:
    signer = make_signer(make_signer(pki().ca))
    unusable, advice = found(signer, Options())
    assert unusable.verdict is Verdict.UNTRUSTED
    assert advice == "take another one: this certificate cannot be used"
    namesake = make_signer(make_ca(make_root()))
    assert found(namesake, Options())[1] == "take another one: this certificate cannot be used"


def test_the_root_of_a_timestamp_is_added_to_the_roots() -> None:
    clock = make_authority(OTHER_CA)
    bad, advice = found(pki().signer, Options(timestamps=[clock]))
    assert bad.verdict is Verdict.BAD_TIMESTAMP
    assert advice == (
        f"if you trust the root of the timestamp, {ADD}; or sign it again, with the timestamp of a public authority"
    )
    assert found(pki().signer, Options(timestamps=[clock]), trust(pki().root, OTHER_ROOT))[0].verdict is Verdict.VALID


def test_a_timestamp_that_no_root_mends() -> None:
    advice = found(pki().signer, Options(timestamps=[pki().signer]))[1]
    assert advice == "sign it again, with the timestamp of a public authority"


def test_a_certificate_that_is_not_valid_yet() -> None:
    later = make_signer(pki().ca, valid=(NOW + datetime.timedelta(days=1), LATER))
    early, advice = found(later, Options())
    assert early.reason.startswith('the certificate of "Example Inc" is not valid before 2026-06-02')
    assert advice == "wait until then, or correct the clock of this machine"
    expired = make_signer(pki().ca, valid=(START, STAMPED))
    assert found(expired, Options())[1].startswith("sign it again with a timestamp")


def test_of_a_weak_signature_the_nested_one_is_to_be_mended() -> None:
    nested = signature_of(sign_pe(PROGRAM, pki().signer, Options(timestamps=[make_authority(OTHER_ROOT)])))
    weak, advice = found(pki().signer, Options(digest="sha1", unsigned={NESTED: [nested]}))
    assert weak.verdict is Verdict.WEAK_DIGEST
    assert weak.reason.startswith(
        "only SHA-1 protects the file; the signature that is nested in it is bad timestamp: the timestamp by "
    )
    assert advice.startswith(f"if you trust the root of the timestamp, {ADD}")
    assert found(pki().signer, Options(digest="sha1"))[1] == "sign it again with SHA-256"


def test_a_valid_file_needs_nothing() -> None:
    assert found(pki().signer, Options())[1] == ""
