"""The roots and the CRLs of a config become trust; a CRL that cannot be read or is out of date is refused."""

from __future__ import annotations

import datetime
import hashlib
from typing import TYPE_CHECKING

import pytest

from imagegen.base.errors import ConfigError, ImagegenError, VerificationError
from imagegen.trust.sources import ROOTS_VARIABLE, TrustSources, make_trust, with_roots_of
from tests.authenticode.pki import LATER, NOW, START, make_crl, pki

if TYPE_CHECKING:
    from pathlib import Path

URL = "https://ca.example.com/signing.crl"


def crl(until: datetime.datetime | None = None) -> bytes:
    return make_crl(pki().ca, [(pki().signer, START, None)], until=until or LATER)


def never(url: str) -> bytes:
    raise AssertionError(url)


def test_own_roots_and_lists_are_read_and_downloaded() -> None:
    asked = []

    def download(url: str) -> bytes:
        asked.append(url)
        return crl()

    sources = TrustSources(roots=pki().root.pem, crl_files={"own.crl": crl()}, crl_urls=(URL,))
    trust = make_trust(sources, NOW, download)
    assert asked == [URL]
    assert [one.issuer for one in trust.revocation_lists] == [pki().ca.read.subject.encoded] * 2
    assert pki().root.read in trust.roots_by_certificate
    assert trust.now == NOW


def test_without_roots_those_of_microsofts_programme_count() -> None:
    trust = make_trust(TrustSources(), NOW, never)
    assert pki().root.read not in trust.roots_by_certificate
    assert len(trust.roots) > 100


@pytest.mark.parametrize(
    ("sources", "error", "says"),
    [
        (
            TrustSources(crl_files={"own.crl": crl(NOW - datetime.timedelta(days=1))}),
            VerificationError,
            "the CRL own.crl is out of date: its successor was due at 2026-05-31 00:00 UTC",
        ),
        (
            TrustSources(crl_files={"own.crl": b"nothing"}),
            VerificationError,
            "own.crl is not a list of revoked certificates: the CRL cannot be read",
        ),
        (
            TrustSources(crl_urls=(URL,)),
            VerificationError,
            f"{URL} is not a list of revoked certificates: the CRL cannot be read",
        ),
        (TrustSources(roots=b"nothing"), ConfigError, "the roots of signatures cannot be used: "),
    ],
)
def test_what_cannot_be_used_is_refused(sources: TrustSources, error: type[ImagegenError], says: str) -> None:
    with pytest.raises(error) as raised:
        make_trust(sources, NOW, lambda _: b"<html>")
    assert raised.value.message.startswith(says)


def test_the_environment_may_name_other_roots(tmp_path: Path) -> None:
    file, said = tmp_path / "roots.pem", list[str]()
    file.write_bytes(b"other roots")
    sources = TrustSources(roots=b"the config's", crl_urls=(URL,))
    assert with_roots_of({}, sources, said.append) is sources
    assert said == []
    found = with_roots_of({ROOTS_VARIABLE: str(file)}, sources, said.append)
    assert (found.roots, found.crl_urls) == (b"other roots", (URL,))
    assert said == [f"signatures are judged by the roots in {file}, which {ROOTS_VARIABLE} names, and by no others"]
    with pytest.raises(ConfigError, match="which does not exist"):
        with_roots_of({ROOTS_VARIABLE: str(tmp_path / "none.pem")}, sources, said.append)


def test_the_thumbprints_of_the_own_roots() -> None:
    identities = (pki().root, pki().clock_root)
    digests = frozenset(hashlib.sha256(one.der).hexdigest() for one in identities)
    pem = b"# a comment\n" + b"\n".join(one.pem for one in identities)
    assert TrustSources(roots=pem).root_thumbprints == digests
    assert TrustSources(roots=pki().root.der).root_thumbprints == frozenset(
        {hashlib.sha256(pki().root.der).hexdigest()}
    )
    assert TrustSources().root_thumbprints is None
