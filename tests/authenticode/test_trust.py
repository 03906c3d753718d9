"""What is trusted: Microsoft's list of roots, an operator's own, and what the list says against a root."""

from __future__ import annotations

import dataclasses
import datetime
from typing import TYPE_CHECKING, Any

import pytest

from imagegen.authenticode.model import CODE_SIGNING, TIME_STAMPING, MalformedData, Trust, TrustedRoot, Verdict
from imagegen.authenticode.signer import presets
from imagegen.authenticode.trust import load_trust, read_preset_roots, read_public_roots
from tests.authenticode.pki import END, LATER, NOW, STAMPED, START, make_authority, make_crl, make_signer, pki
from tests.authenticode.signing import Options, sign_pe
from tests.authenticode.support import fixture, judge

if TYPE_CHECKING:
    from collections.abc import Mapping

V = Verdict
DAY = datetime.timedelta(days=1)


def _public() -> Mapping[str, TrustedRoot]:
    return {root.certificate.sha1: root for root in read_public_roots()[0]}


def test_the_list_of_microsoft_is_read() -> None:
    roots, source = read_public_roots()
    assert source.startswith("Microsoft's list of trusted roots of 20")
    assert len(roots) > 300
    for root in roots:
        assert root.usages is None or root.usages & {CODE_SIGNING, TIME_STAMPING}
        assert root.certificate.is_self_issued
        assert root.source == source


def test_what_the_list_says_about_some_roots() -> None:
    """Facts of the list: https://learn.microsoft.com/security/trusted-root/release-notes."""
    found = _public()
    current = found["8F43288AD272F3103B6FB1428485EA3014C0BCFE"]
    assert current.certificate.subject.short == "Microsoft Root Certificate Authority 2011"
    assert (current.usages, current.disabled_since, current.issued_before) == (None, None, None)
    old = found["CDD4EEAE6000AC7F40C3802C171E30148030C072"]
    assert (old.disabled_since, old.issued_before) == (
        datetime.datetime(2021, 8, 1, tzinfo=datetime.UTC),
        datetime.datetime(2017, 4, 30, tzinfo=datetime.UTC),
    )
    thawte = found["BE36A4562FB2EE05DBB3D32323ADF445084ED656"]
    assert thawte.usages == frozenset({TIME_STAMPING})
    # A root of Microsoft for servers only.
    assert "73A5E64A3BFF8316FF0EDCCC618A906E4EAE4D74" not in found


def test_the_roots_of_presets_are_those_without_limits() -> None:
    assert [root.subject.short.rpartition(" ")[2] for root in read_preset_roots()] == ["2010", "2011", "2018"]


def test_the_presets_name_roots_of_the_list() -> None:
    trusted = {root.certificate.sha256 for root in read_public_roots()[0]}
    named = {found.issuer.thumbprint for found in presets()["microsoft"].conditions if found.issuer}
    assert len(named) == 4
    assert named <= trusted


def test_public_roots_are_trusted_without_own_ones() -> None:
    found = load_trust(now=NOW)
    assert found.roots == read_public_roots()[0]
    assert found.source == read_public_roots()[1]


def test_own_roots_replace_the_public_ones_but_not_for_timestamps() -> None:
    found = load_trust(now=NOW, roots=[pki().root.pem])
    own, *public = found.roots
    assert own.certificate == pki().root.read
    assert {root.usages for root in public} == {frozenset({TIME_STAMPING})}
    assert found.source == f"1 own root and {read_public_roots()[1]} for timestamps"


@pytest.mark.parametrize("public", [True, False])
def test_public_roots_can_be_added_or_left_out(public: bool) -> None:
    found = load_trust(now=NOW, roots=[pki().root.pem], public_roots=public)
    assert found.roots[0].source == "own roots"
    assert found.roots[1:] == (read_public_roots()[0] if public else ())


def test_files_hold_several_certificates_in_pem_or_der() -> None:
    both = pki().root.pem + b"a comment\n" + pki().clock_root.pem
    found = load_trust(
        now=NOW,
        roots=[both, pki().ca.der],
        crls=[make_crl(pki().ca)],
        public_roots=False,
    )
    assert [root.certificate.subject.short for root in found.roots] == [
        *("Example Root", "Example Clock Root", "Example Code CA"),
    ]
    assert len(found.revocation_lists) == 1
    assert (found.revocation_lists[0].this_update, found.revocation_lists[0].next_update) == (START, END)


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "an empty file": ({"roots": [b""]}, "the file holds no certificate"),
    "a text": ({"roots": [b"hello"]}, "a certificate cannot be read"),
    "a key": ({"roots": [pki().root.key_pem]}, "the file holds no certificate"),
    "a CRL as a root": ({"roots": [make_crl(pki().ca)]}, "the file holds no certificate"),
    "bad base64": (
        {"roots": [b"-----BEGIN CERTIFICATE-----\n*\n-----END CERTIFICATE-----"]},
        "a PEM block is not valid base64",
    ),
    "a cut certificate": ({"roots": [pki().root.der[:-1]]}, "a certificate cannot be read"),
    "too large a file": ({"roots": [bytes(16 * 1024 * 1024 + 1)]}, "at most 16777216 are allowed"),
    "too large a certificate": ({"roots": [b"0" * 65537]}, "a certificate has 65537 bytes, at most 65536 are allowed"),
    "a certificate as a CRL": ({"crls": [pki().root.pem]}, "the file holds no CRL"),
    "a text as a CRL": ({"crls": [b"hello"]}, "the CRL cannot be read"),
    "no CRL": ({"crls": [b""]}, "the file holds no CRL"),
}


@pytest.mark.parametrize(("options", "message"), BAD.values(), ids=BAD)
def test_a_file_that_cannot_be_read_is_told(options: dict[str, Any], message: str) -> None:
    with pytest.raises(MalformedData) as raised:
        load_trust(now=NOW, public_roots=False, **options)
    assert message in str(raised.value)


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="the time has no time zone"):
        load_trust(now=NOW.replace(tzinfo=None), public_roots=False)


def _trust(now: datetime.datetime = NOW, **limits: Any) -> Trust:  # noqa: ANN401 - those of TrustedRoot
    """The PKI's roots, with what a list says about the one for code."""
    root, clock = TrustedRoot(pki().root.read, **limits), TrustedRoot(pki().clock_root.read)
    return Trust(now=now, roots=(root, clock))


CODE_ONLY, STAMPS_ONLY = frozenset({CODE_SIGNING}), frozenset({TIME_STAMPING})
LIMITS: dict[str, tuple[dict[str, Any], Verdict, Verdict, str]] = {
    "all": ({}, V.VALID, V.VALID, ""),
    "for code": ({"usages": CODE_ONLY}, V.VALID, V.VALID, ""),
    "for timestamps": (
        {"usages": STAMPS_ONLY},
        V.UNTRUSTED,
        V.UNTRUSTED,
        'the root "Example Root" is not trusted for code signing',
    ),
    "disabled since the timestamp": (
        {"disabled_since": STAMPED + DAY},
        V.UNTRUSTED,
        V.VALID,
        'the root "Example Root" is not trusted any more since 2026-03-02',
    ),
    "disabled before the timestamp": ({"disabled_since": STAMPED - DAY}, V.UNTRUSTED, V.UNTRUSTED, "any more since"),
    "disabled for code": (
        {"disabled_since": STAMPED - DAY, "disabled_usages": CODE_ONLY},
        V.UNTRUSTED,
        V.UNTRUSTED,
        "any more since 2026-02-28",
    ),
    "disabled for timestamps": ({"disabled_since": STAMPED, "disabled_usages": STAMPS_ONLY}, V.VALID, V.VALID, ""),
    "for older certificates": (
        {"issued_before": START},
        V.UNTRUSTED,
        V.UNTRUSTED,
        'is trusted only for certificates from before 2025-01-01, but "Example Inc" is from 2025-01-01',
    ),
    "for certificates like this": ({"issued_before": START + DAY}, V.VALID, V.VALID, ""),
    "for older certificates of another usage": (
        {"issued_before": START, "issued_before_usages": STAMPS_ONLY},
        V.VALID,
        V.VALID,
        "",
    ),
}


@pytest.mark.parametrize(("limits", "plain", "stamped", "reason"), LIMITS.values(), ids=LIMITS)
def test_what_a_list_says_against_a_root(limits: dict[str, Any], plain: Verdict, stamped: Verdict, reason: str) -> None:
    found = judge(sign_pe(fixture("program.exe"), pki().signer), "x.exe", _trust(**limits))
    assert (found.verdict, reason in found.reason) == (plain, True), found.reason
    data = sign_pe(fixture("program.exe"), pki().signer, Options(timestamps=[pki().clock]))
    assert judge(data, "x.exe", _trust(**limits)).verdict is stamped


def test_what_is_said_against_the_root_of_a_timestamp_makes_it_bad() -> None:
    trust = dataclasses.replace(
        _trust(LATER), roots=(TrustedRoot(pki().root.read), TrustedRoot(pki().clock_root.read, disabled_since=STAMPED))
    )
    data = sign_pe(fixture("program.exe"), pki().signer, Options(timestamps=[pki().clock]))
    found = judge(data, "x.exe", trust)
    assert (found.verdict, "is not trusted any more since 2026-03-01" in found.reason) == (V.BAD_TIMESTAMP, True)


def test_one_root_can_be_for_both() -> None:
    signer, clock = make_signer(pki().root), make_authority(pki().root)
    trust = Trust(now=LATER, roots=(TrustedRoot(pki().root.read),))
    assert (
        judge(sign_pe(fixture("program.exe"), signer, Options(timestamps=[clock])), "x.exe", trust).verdict
        is Verdict.VALID
    )
