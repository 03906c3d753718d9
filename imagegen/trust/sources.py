"""Which roots are trusted and which certificates are revoked: the files of a config and downloaded CRLs in, trust out.

CRLs at URLs are downloaded each time: a list that is kept would miss what is revoked later."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from imagegen.authenticode.certificates import read_certificate, read_pem
from imagegen.authenticode.chains import LARGEST_LIST, find_forged, is_about, read_revocation_lists
from imagegen.authenticode.model import MalformedData, SignerStrength
from imagegen.authenticode.trust import load_trust
from imagegen.base.errors import ConfigError, InvalidValue, Problem, VerificationError
from imagegen.base.files import read_file
from imagegen.config.artifact_policy import is_url
from imagegen.config.own_files import GivenCertificate, OwnFile
from imagegen.config.yaml import dotted
from imagegen.fetch.download import Download
from imagegen.fetch.http import Web

if TYPE_CHECKING:
    from imagegen.authenticode.model import Certificate, RevocationList, Trust
    from imagegen.base.console import Console
    from imagegen.base.hosts import HostPolicy
    from imagegen.config.yaml import Document, YamlPath
    from imagegen.settle.spec import Spec

    Chain = Sequence[Certificate]

CRLS_KEY: Final = "artifacts.signatures.crls"
ROOTS_KEY: Final = "artifacts.signatures.roots"
# A PEM file whose roots replace all others on this machine, as SSL_CERT_FILE does for servers. What the nodes trust
# stays as it is.
ROOTS_VARIABLE: Final = "IMAGEGEN_SIGNING_ROOTS"
_LARGEST_ROOTS: Final = 16 * 2**20
_MOST_ROOTS: Final = 100
_TIME: Final = "%Y-%m-%d %H:%M UTC"
_PRIVATE_KEY: Final = re.compile(rb"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----")


@dataclasses.dataclass(frozen=True)
class TrustSources:
    """Where the roots and the CRLs of a config come from. Without roots, those of Microsoft's programme count."""

    roots: bytes | None = None
    crl_files: Mapping[str, bytes] = dataclasses.field(default_factory=dict)
    """By their names in the config."""
    crl_urls: tuple[str, ...] = ()
    strength: SignerStrength = dataclasses.field(default_factory=SignerStrength)

    @property
    def root_thumbprints(self) -> frozenset[str] | None:
        """The sha256 of the config's roots. None: it has none, and those of Microsoft's programme count."""
        if self.roots is None:
            return None
        try:
            return frozenset(hashlib.sha256(one).hexdigest() for one in read_pem(self.roots))
        except MalformedData:
            # Whoever reads the certificates rejects it.
            return frozenset()


def trust_sources(spec: Spec) -> TrustSources:
    """The roots and the CRLs of a config."""
    policy, files = spec.config.artifacts.signatures, spec.own_files
    if policy is None:
        return TrustSources()
    roots = files.get(ROOTS_KEY)
    crls = {crl: files.get(f"{CRLS_KEY}[{at}]") for at, crl in enumerate(policy.crls)}
    return TrustSources(
        roots=roots.data if roots else None,
        crl_files={name: file.data for name, file in crls.items() if file},
        crl_urls=tuple(name for name in crls if is_url(name)),
        strength=SignerStrength(policy.least_rsa_bits, policy.sha1_certificates),
    )


def with_roots_of(environ: Mapping[str, str], sources: TrustSources, warn: Callable[[str], object]) -> TrustSources:
    """The sources with the roots that the environment names, if it does."""
    name = environ.get(ROOTS_VARIABLE)
    if not name:
        return sources
    warn(f"signatures are judged by the roots in {name}, which {ROOTS_VARIABLE} names, and by no others")
    try:
        return dataclasses.replace(sources, roots=read_file(Path(name), limit=_LARGEST_ROOTS))
    except FileNotFoundError:
        raise ConfigError(
            f"{ROOTS_VARIABLE} names {name}, which does not exist", hint="correct it or unset it"
        ) from None


@dataclasses.dataclass
class CrlUse:
    """The CRLs by their names in the config, as they were read for this run. Several threads may use them."""

    data: dict[str, bytes] = dataclasses.field(default_factory=dict)
    _lists: dict[str, list[RevocationList]] = dataclasses.field(default_factory=dict, repr=False)
    """Those that were read: a CRL may have many megabytes."""

    def add(self, crls: Mapping[str, bytes]) -> None:
        """Add the CRLs that count in this run."""
        self.data |= crls

    def reject_forged(self, chains: Iterable[Chain]) -> None:
        """Reject a CRL that a CA of these chains should have signed, and has not: it hides what that CA has revoked."""
        known = list(chains)
        for name, data in self.data.items() if known else ():
            if name not in self._lists:
                self._lists[name] = read_revocation_lists(data)
            for given in self._lists[name]:
                if any(is_about(given, chain) for chain in known):
                    continue
                if ca := next(filter(None, (find_forged(given, chain) for chain in known)), None):
                    raise VerificationError(
                        f"the CRL {name} of {CRLS_KEY} names {ca.subject} as its issuer, but that CA did not sign it",
                        hint="get the CRL from its CA again: this one is damaged or forged",
                    )


def download_crl(url: str, *, environ: Mapping[str, str], hosts: HostPolicy, console: Console) -> bytes:
    """A CRL from its URL, of a bounded size."""
    web = Web(environ=environ, console=console, hosts=hosts)
    download = Download(web=web, url=url, key=CRLS_KEY, limit=LARGEST_LIST)
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
            hint=f"correct the file of {ROOTS_KEY}, or the one that {ROOTS_VARIABLE} names",
        ) from error


def trust_without_downloads(spec: Spec, crls: CrlUse) -> Trust:
    """What the config trusts now. The CRLs in files count, and those that were downloaded for this run: a plan
    downloads nothing."""
    sources = trust_sources(spec)
    roots = [] if sources.roots is None else [sources.roots]
    crls.add(sources.crl_files)
    now = datetime.datetime.now(datetime.UTC)
    return load_trust(now=now, roots=roots, crls=crls.data.values(), strength=sources.strength)


def _check_crl(name: str, data: bytes, now: datetime.datetime) -> None:
    """Reject a list that cannot be read, or is out of date: what was revoked since then is not in it."""
    try:
        ends = [one.next_update for one in read_revocation_lists(data) if one.next_update is not None]
    except MalformedData as error:
        raise VerificationError(
            f"{name} is not a list of revoked certificates: {error}",
            hint=f"get the CRL from its CA, or correct {CRLS_KEY}",
        ) from error
    if out_of_date := next((end for end in ends if end < now), None):
        raise VerificationError(
            f"the CRL {name} is out of date: its successor was due at {out_of_date.strftime(_TIME)}",
            hint=f"get a newer one from its CA, or remove it from {CRLS_KEY}",
        )


def read_roots(
    document: Document, files: Mapping[str, OwnFile], key: YamlPath
) -> tuple[tuple[GivenCertificate, ...], list[Problem]]:
    """The certificates in the files of a key, each once, and a problem for each file that cannot be used. `files` are
    all files beside the config, by their key."""
    found: dict[str, GivenCertificate] = {}
    problems = []
    for path in (path for path in document.lines if path[:-1] == key and dotted(path) in files):
        file = files[dotted(path)]
        try:
            found |= {one.thumbprint: one for one in map(given_certificate, _read_roots(file))}
        except (InvalidValue, MalformedData) as error:
            hint = error.hint if isinstance(error, InvalidValue) else "give a root certificate as PEM or DER"
            problems.append(document.problem(path, f"{file.name}: {error}", hint))
    return tuple(found.values()), problems


def given_certificate(certificate: Certificate) -> GivenCertificate:
    """A certificate as a file for the machine."""
    return GivenCertificate(str(certificate.subject), certificate.sha1, OwnFile("certificate.cer", certificate.der))


def _read_roots(file: OwnFile) -> Iterator[Certificate]:
    if _PRIVATE_KEY.search(file.data):
        raise InvalidValue("it has a private key, which no machine may have", "leave only the certificate in the file")
    encoded = read_pem(file.data)
    if not encoded:
        raise InvalidValue("it has no certificate", "give a root certificate as PEM or DER")
    if len(encoded) > _MOST_ROOTS:
        message = f"it has {len(encoded)} certificates, at most {_MOST_ROOTS} are allowed"
        raise InvalidValue(message, "leave out the others")
    for one in encoded:
        certificate = read_certificate(one)
        if not certificate.is_self_issued:
            raise InvalidValue(
                f"{certificate.subject} is not a root: its issuer is {certificate.issuer}",
                "give the certificate of the root. A signature or a server brings the certificates below it",
            )
        if certificate.extensions.is_ca is False:
            raise InvalidValue(
                f"{certificate.subject} is not a certificate authority",
                "give the root to which the certificate of the signer or of the server leads",
            )
        yield certificate
