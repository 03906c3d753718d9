"""Finds the publishers of scripts that downloads bring: what must be signed, and the lock -> certificates. Pure.

Where only signed scripts run, Windows asks for the publisher of each: its certificate must be in TrustedPublisher, and
every script that it ever signed runs there. So the config must name it: a CA above it is not enough."""

from __future__ import annotations

import base64
import dataclasses
from typing import TYPE_CHECKING

from imagegen.authenticode.certificates import read_certificate
from imagegen.authenticode.model import MalformedData
from imagegen.authenticode.signer import CertificatePattern
from imagegen.trust.block import is_script
from imagegen.trust.found_signature import find_rule
from imagegen.trust.signature_request import SignatureError, SignatureProblem, issuers_of, place

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from imagegen.authenticode.model import Certificate
    from imagegen.fetch.lock import LockedArtifact, LockedSignature
    from imagegen.trust.signature_request import LockedCertificate, SignatureRequest


@dataclasses.dataclass(frozen=True)
class LockedDownloads:
    """What must be signed in the downloads, and what the lock says about them, by their names."""

    requests: Mapping[str, SignatureRequest]
    artifacts: Mapping[str, LockedArtifact]

    def find_publishers(self, known: Collection[Certificate]) -> dict[str, Certificate]:
        """The certificates that signed the scripts, by their SHA-1, with the known publishers. One error has all
        scripts that the nodes would not run."""
        found, problems = {one.sha1: one for one in known}, []
        for request, member, signature in self._scripts():
            judged = _find_publisher(request, member, signature, known)
            if isinstance(judged, SignatureProblem):
                problems.append(judged)
            else:
                found[judged.sha1] = judged
        if problems:
            raise SignatureError(problems)
        return found

    def _scripts(self) -> Iterator[tuple[SignatureRequest, str, LockedSignature | None]]:
        for name in sorted(self.requests.keys() & self.artifacts.keys()):
            request, entry = self.requests[name], self.artifacts[name]
            for member, names in sorted(request.used.select(entry.members).items()):
                if any(is_script(one) for one in names):
                    yield request, member, (entry.signed or {}).get(member)


def _find_publisher(
    request: SignatureRequest, member: str, signature: LockedSignature | None, known: Collection[Certificate]
) -> Certificate | SignatureProblem:
    where, again = place(request.artifact, member), f"run `imagegen lock CONFIG --upgrade {request.artifact}`"
    if signature is None:
        return SignatureProblem(f"{where} has no signature in the lock, and the nodes run only signed scripts", again)
    if signature.by != "own":
        how = "a catalogue" if signature.by == "catalogue" else "a nested signature"
        message = f"{where} is signed only by {how}, which PowerShell does not see on the nodes"
        return SignatureProblem(message, f"set {request.override} to a copy whose scripts have signatures of their own")
    try:
        publisher = read_certificate(base64.b64decode(signature.certificate or ""))
    except MalformedData:
        return SignatureProblem(f"the lock does not have the certificate that signed {where}", again)
    issuers = _issuers(signature)
    if publisher in known or _is_named(request, publisher, issuers):
        return publisher
    return _unnamed(request, where, publisher, find_rule(publisher, issuers))


def _issuers(signature: LockedSignature) -> tuple[LockedCertificate, ...]:
    try:
        return issuers_of(signature)
    except ValueError:
        # A certificate may have no name. Then no rule about a CA matches.
        return ()


def _is_named(request: SignatureRequest, publisher: Certificate, issuers: Sequence[LockedCertificate]) -> bool:
    """Whether a rule is about this signer, and not only about a CA above it."""
    return any(
        condition.signer != CertificatePattern() and not condition.differences(publisher, issuers)
        for rule in request.signers
        for condition in rule.conditions
    )


def _unnamed(request: SignatureRequest, where: str, publisher: Certificate, rule: str) -> SignatureProblem:
    in_yaml = "'" + rule.replace("'", "''") + "'"
    # The signer of an override is one, those of the section are a list.
    if request.key.endswith(".signer"):
        advice = f"set {request.key} to {in_yaml}"
    elif request.signers:
        advice = f"add {in_yaml} to {request.key}"
    else:
        # Without a list everybody may sign. With one, nobody else.
        advice = f"list {in_yaml} and everybody else who may sign in {request.key}"
    return SignatureProblem(
        f"{where} is signed by {publisher.subject}, whom {request.key} does not name: "
        "with artifacts.signatures.own_scripts, every script that this publisher ever signed would run on the nodes",
        f"if they may, {advice}; if not, set {request.override} to a copy that your own signer signed",
    )
