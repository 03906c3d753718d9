"""Which roots are trusted, and which certificates are revoked: the files of a config and downloaded CRLs in, trust out.

CRLs at URLs are downloaded each time: a list that is kept would miss what is revoked later."""

from __future__ import annotations

import datetime
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from imagegen.authenticode.chains import LARGEST_LIST, read_revocation_lists
from imagegen.authenticode.model import MalformedData
from imagegen.authenticode.trust import load_trust
from imagegen.base.errors import ConfigError, VerificationError
from imagegen.fetch.download import Download
from imagegen.trust.signature_request import ROOTS_VARIABLE

if TYPE_CHECKING:
    from imagegen.authenticode.model import Trust
    from imagegen.base.console import Console
    from imagegen.base.hosts import HostPolicy
    from imagegen.trust.crl_use import CrlUse
    from imagegen.trust.signature_request import TrustSources

CRLS_KEY: Final = "artifacts.signatures.crls"
_NAME: Final = "%Y-%m-%d %H:%M UTC"


def download_crl(url: str, *, environ: Mapping[str, str], hosts: HostPolicy, console: Console) -> bytes:
    """A CRL from its URL, of a bounded size."""
    download = Download(url=url, environ=environ, console=console, hosts=hosts, key=CRLS_KEY, limit=LARGEST_LIST)
    with tempfile.TemporaryFile() as file:
        download.fill(file)
        file.seek(0)
        return file.read()


def make_trust(
    sources: TrustSources, now: datetime.datetime, download: Callable[[str], bytes], use: CrlUse | None = None
) -> Trust:
    """The trust at this time. `download` gets a CRL from its URL. `use` learns the CRLs."""
    crls = {**sources.crl_files, **{url: download(url) for url in sources.crl_urls}}
    for name, data in crls.items():
        _check_crl(name, data, now)
    if use is not None:
        use.add(crls)
    try:
        roots = [sources.roots] if sources.roots is not None else []
        return load_trust(now=now, roots=roots, crls=crls.values(), strength=sources.strength)
    except MalformedData as error:
        raise ConfigError(
            f"the roots of signatures cannot be used: {error}",
            hint=f"correct the file of artifacts.signatures.roots, or the one that {ROOTS_VARIABLE} names",
        ) from error


def _check_crl(name: str, data: bytes, now: datetime.datetime) -> None:
    """Reject a list that cannot be read, or is out of date: what was revoked since then is not in it."""
    try:
        ends = [*_ends(data)]
    except MalformedData as error:
        raise VerificationError(
            f"{name} is not a list of revoked certificates: {error}",
            hint=f"get the CRL from its CA, or correct {CRLS_KEY}",
        ) from error
    if out_of_date := next((end for end in ends if end < now), None):
        raise VerificationError(
            f"the CRL {name} is out of date: its successor was due at {out_of_date.strftime(_NAME)}",
            hint=f"get a newer one from its CA, or remove it from {CRLS_KEY}",
        )


def _ends(data: bytes) -> Iterator[datetime.datetime]:
    return (found.next_update for found in read_revocation_lists(data) if found.next_update is not None)
