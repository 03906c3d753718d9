"""Catalogues: their own signature, and the files for which they sign."""

from __future__ import annotations

import hashlib
import io
from typing import TYPE_CHECKING

import pytest

from imagegen.authenticode.cms import PE_IMAGE
from imagegen.authenticode.files import PortableExecutable
from imagegen.authenticode.model import Catalogue, FileKind, Verdict
from imagegen.authenticode.msi import InstallerPackage
from imagegen.authenticode.verify import read_catalogue
from tests.authenticode.make_fixtures import FLAT, SCRIPT
from tests.authenticode.pki import LATER, NOW, Identity, make_root, make_signer, pki
from tests.authenticode.signing import Options, make_catalogue, sign_pe, signature_of
from tests.authenticode.support import changed, fixture, fixture_trust, judge, trust

if TYPE_CHECKING:
    import datetime
    from collections.abc import Callable

V = Verdict


def _catalogue(
    *members: tuple[str, str, bytes], signer: Identity | None = None, name: str = "x.cat", now: datetime.datetime = NOW
) -> Catalogue:
    data = make_catalogue(members, signer or pki().signer, Options())
    return read_catalogue(io.BytesIO(data), name, trust(now=now))


def _flat(data: bytes, algorithm: str = "sha256") -> tuple[str, str, bytes]:
    return FLAT, algorithm, hashlib.new(algorithm, data).digest()


def _program(data: bytes, algorithm: str = "sha256") -> tuple[str, str, bytes]:
    return PE_IMAGE, algorithm, PortableExecutable(io.BytesIO(data)).digest(algorithm)


def test_the_catalogue_of_osslsigncode_lists_its_members() -> None:
    found = read_catalogue(io.BytesIO(fixture("signed.cat")), "signed.cat", fixture_trust())
    assert found.verification.verdict is V.VALID
    assert {algorithm for algorithm, _ in found.members} == {"sha1", "sha256"}
    assert ("sha256", hashlib.sha256(SCRIPT).digest()) in found.members
    for name, data in (("program.exe", fixture("program.exe")), ("script.ps1", SCRIPT)):
        assert judge(data, name, fixture_trust(), [found]).verdict is V.VALID
    assert judge(b"old", "old.dll", fixture_trust(), [found]).verdict is V.WEAK_DIGEST
    assert judge(fixture("package.msi"), "package.msi", fixture_trust(), [found]).verdict is V.UNSIGNED


FILES: dict[str, tuple[bytes, Callable[[bytes], tuple[str, str, bytes]]]] = {
    "x.exe": (fixture("program.exe"), _program),
    "flat.exe": (fixture("program.exe"), _flat),
    # The file that a signature was taken from, or added to, has the digest of its form.
    "signed.exe": (fixture("program.exe"), lambda data: _program(sign_pe(data, pki().signer))),
    "x.msi": (
        fixture("package.msi"),
        lambda data: (InstallerPackage.form, "sha256", InstallerPackage(io.BytesIO(data)).digest("sha256")),
    ),
    "flat.msi": (fixture("package.msi"), _flat),
    "x.ps1": (SCRIPT, _flat),
    "x.txt": (b"anything", _flat),
    "empty.txt": (b"", _flat),
}


@pytest.mark.parametrize(("name", "data", "member"), [(name, *row) for name, row in FILES.items()], ids=FILES)
def test_a_catalogue_counts_for_the_files_that_it_lists(
    name: str, data: bytes, member: Callable[[bytes], tuple[str, str, bytes]]
) -> None:
    catalogue = _catalogue(member(data))
    found = judge(data, name, trust(), [catalogue])
    assert (found.verdict, found.catalogue) == (V.VALID, "x.cat"), found.reason
    assert found.reason == 'the catalogue x.cat lists the file: signed by "Example Inc", without a timestamp'
    assert found.signature is catalogue.verification.signature
    assert judge(data, name, trust()).verdict is V.UNSIGNED
    other = changed(data, len(data) // 2) if data else b"x"
    assert judge(other, name, trust(), [catalogue]).verdict is V.UNSIGNED


@pytest.mark.parametrize(
    ("catalogue", "verdict", "reason"),
    [
        (
            lambda: _catalogue(_flat(b"x"), signer=make_signer(make_root("O=Other, CN=Other Root"))),
            V.UNTRUSTED,
            "the catalogue x.cat lists the file: the certificate of",
        ),
        (lambda: _catalogue(_flat(b"x"), now=LATER), V.EXPIRED, "the catalogue x.cat lists the file: the certificate"),
        (
            lambda: _catalogue(_flat(b"x", "sha1")),
            V.WEAK_DIGEST,
            "the catalogue x.cat lists the file only by its SHA-1 digest",
        ),
        (lambda: _catalogue(_flat(b"x", "sha1"), _flat(b"x")), V.VALID, ""),
    ],
    ids=["unknown root", "expired", "SHA-1", "SHA-1 and SHA-256"],
)
def test_a_catalogue_is_worth_what_its_signature_is(
    catalogue: Callable[[], Catalogue], verdict: Verdict, reason: str
) -> None:
    found = judge(b"x", "x.dll", trust(), [catalogue()])
    assert (found.verdict, reason in found.reason) == (verdict, True), found.reason


def test_the_best_catalogue_counts() -> None:
    weak = _catalogue(_flat(b"x", "sha1"), name="weak.cat")
    good, other = _catalogue(_flat(b"x"), name="good.cat"), _catalogue(_flat(b"y"), name="other.cat")
    for catalogues in ([weak, good, other], [other, good, weak]):
        assert judge(b"x", "x.dll", trust(), catalogues).catalogue == "good.cat"


def test_a_signature_of_its_own_counts_before_a_catalogue() -> None:
    data = fixture("weak.exe")
    found = judge(data, "weak.exe", fixture_trust(), [_catalogue(_program(data))])
    assert (found.verdict, found.catalogue) == (V.WEAK_DIGEST, None)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "the signature cannot be read"),
        (b"not a catalogue", "the signature cannot be read"),
        (fixture("signed.cat") + b"\0", "the signature is followed by 1 byte"),
        (fixture("signed.cat")[:-1], "the signature cannot be read"),
        (fixture("signed.exe"), "the signature is followed by 4404 bytes"),
    ],
)
def test_a_damaged_catalogue_lists_nothing(data: bytes, reason: str) -> None:
    found = read_catalogue(io.BytesIO(data), "x.cat", fixture_trust())
    assert (found.verification.verdict, found.verification.reason) == (V.ALTERED, reason)
    assert found.members == frozenset()


def test_a_changed_list_is_told() -> None:
    data = fixture("signed.cat")
    found = read_catalogue(
        io.BytesIO(changed(data, data.index(hashlib.sha256(SCRIPT).digest()))), "x.cat", fixture_trust()
    )
    assert found.verification.verdict is V.ALTERED
    assert found.verification.reason == (
        "the signature is damaged: the signed content was changed: its digest is not the one that was signed"
    )
    # It lists what it lists, and its verdict goes with it.
    assert judge(changed(SCRIPT, 0), "x.ps1", fixture_trust(), [found]).verdict is V.UNSIGNED


def test_a_signature_of_a_file_is_no_catalogue() -> None:
    found = judge(signature_of(fixture("signed.exe")), "x.cat", fixture_trust())
    assert (found.kind, found.verdict) == (FileKind.CATALOGUE, V.ALTERED)
    assert found.reason == "the signature is damaged: it is not a catalogue"
