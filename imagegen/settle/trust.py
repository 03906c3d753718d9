"""What the image's Windows trusts: the roots of the config, and the publishers of signed scripts. Pure."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from imagegen.settle.facts import TrustedCertificate
from imagegen.settle.values import CatalogueValue, Origin, fact

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from imagegen.config.model import ImageConfig
    from imagegen.config.own_files import GivenCertificate
    from imagegen.config.yaml import Document, YamlPath
    from imagegen.settle.spec import Spec

ROOT: Final = "Root"
PUBLISHER: Final = "TrustedPublisher"
_ROOTS: Final = ("windows", "trusted_roots")
_OWN_SCRIPTS: Final = ("artifacts", "signatures", "own_scripts")
# Windows Server's own policy runs these scripts too, unless the base image has another one.
_ANY_SCRIPT: Final = "-ExecutionPolicy Bypass "


def settle_trust(
    config: ImageConfig, document: Document, roots: Sequence[GivenCertificate]
) -> Iterator[CatalogueValue]:
    """The facts about certificates and signed scripts."""
    signatures = config.artifacts.signatures
    all_signed = signatures is not None and signatures.own_scripts is not None
    yield fact("certificates", tuple(_trusted(ROOT, one) for one in roots), _origin(document, _ROOTS))
    yield fact("all_signed", all_signed, _origin(document, _OWN_SCRIPTS))
    yield fact("script_policy", "" if all_signed else _ANY_SCRIPT, _origin(document, _OWN_SCRIPTS))


def with_publishers(spec: Spec, publishers: Sequence[GivenCertificate]) -> Spec:
    """The spec of an image whose Windows runs only signed scripts: those of these publishers."""
    trusting = _with_certificates(spec, PUBLISHER, publishers)
    return dataclasses.replace(trusting, facts=dataclasses.replace(trusting.facts, all_signed=True, script_policy=""))


def with_authorities(spec: Spec) -> Spec:
    """The spec of an image whose machine downloads from hosts that need the certificates of artifacts.ca."""
    known = {one.thumbprint for one in spec.facts.certificates}
    return _with_certificates(spec, ROOT, [one for one in spec.authorities if one.thumbprint not in known])


def _with_certificates(spec: Spec, store: str, added: Sequence[GivenCertificate]) -> Spec:
    certificates = spec.facts.certificates
    facts = dataclasses.replace(spec.facts, certificates=(*certificates, *(_trusted(store, one) for one in added)))
    files = {certificate_key(number): one.file for number, one in enumerate(added, len(certificates))}
    return dataclasses.replace(spec, facts=facts, own_files={**spec.own_files, **files})


def certificate_key(number: int) -> str:
    """The key under which steps find the bytes of a certificate, by its place in `facts.certificates`."""
    return f"facts.certificates[{number}]"


def _trusted(store: str, certificate: GivenCertificate) -> TrustedCertificate:
    return TrustedCertificate(store, certificate.thumbprint, certificate.subject)


def _origin(document: Document, path: YamlPath) -> Origin:
    if path not in document.lines:
        return Origin("default")
    place = document.place(path)
    return Origin("file" if place.line else "set", str(place))
