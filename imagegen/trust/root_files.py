"""Reads the root certificates of a config: the bytes of its files -> certificates, or problems. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from imagegen.authenticode.certificates import read_certificate, read_pem
from imagegen.authenticode.model import MalformedData
from imagegen.base.errors import InvalidValue, Problem
from imagegen.config.own_files import GivenCertificate, OwnFile
from imagegen.config.yaml import dotted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from imagegen.authenticode.model import Certificate
    from imagegen.config.yaml import Document, YamlPath

_PRIVATE_KEY: Final = re.compile(rb"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----")
_MOST: Final = 100


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
            found |= {one.thumbprint: one for one in map(given_certificate, _read(file))}
        except (InvalidValue, MalformedData) as error:
            hint = error.hint if isinstance(error, InvalidValue) else "give a root certificate as PEM or DER"
            problems.append(document.problem(path, f"{file.name}: {error}", hint))
    return tuple(found.values()), problems


def given_certificate(certificate: Certificate) -> GivenCertificate:
    """A certificate as a file for the machine."""
    return GivenCertificate(str(certificate.subject), certificate.sha1, OwnFile("certificate.cer", certificate.der))


def _read(file: OwnFile) -> Iterator[Certificate]:
    if _PRIVATE_KEY.search(file.data):
        raise InvalidValue("it has a private key, which no machine may have", "leave only the certificate in the file")
    encoded = read_pem(file.data)
    if not encoded:
        raise InvalidValue("it has no certificate", "give a root certificate as PEM or DER")
    if len(encoded) > _MOST:
        raise InvalidValue(f"it has {len(encoded)} certificates, at most {_MOST} are allowed", "leave out the others")
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
