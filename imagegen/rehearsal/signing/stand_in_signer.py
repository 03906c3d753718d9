"""Signs the stand-ins of a config's artifacts as its policy requires, with throw-away certificates."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final

from imagegen.rehearsal.signing.authority import SigningAuthority
from imagegen.rehearsal.signing.sign import sign

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from imagegen.authenticode.signer import SignerCondition
    from imagegen.trust.policy import SignatureRequest

Attributes = tuple[tuple[str, str], ...]
_ANY_SIGNER: Final[Attributes] = (("CN", "Rehearsal"),)
_ANY_ROOT: Final[Attributes] = (("CN", "Rehearsal Root"),)


def find_names(request: SignatureRequest) -> tuple[Attributes, Attributes] | None:
    """The subjects of a signer that may sign the artifact, and of its root. None: no new certificate may, because the
    config requires certain ones by their thumbprints."""
    if not request.signers:
        return _ANY_SIGNER, _ANY_ROOT
    conditions = (condition for rule in request.signers for condition in rule.conditions)
    return next((_names(condition) for condition in conditions if _can_be_made(condition)), None)


def _can_be_made(condition: SignerCondition) -> bool:
    return not condition.signer.thumbprint and not (condition.issuer and condition.issuer.thumbprint)


def _names(condition: SignerCondition) -> tuple[Attributes, Attributes]:
    root = condition.issuer.attributes if condition.issuer else ()
    return condition.signer.attributes or _ANY_SIGNER, root or _ANY_ROOT


class StandInSigner:
    """The signers for the artifacts of a config. Those with the same names share a certificate."""

    def __init__(self, requests: Mapping[str, SignatureRequest]) -> None:
        self._names = {name: names for name, request in requests.items() if (names := find_names(request))}
        self._authority = functools.cache(SigningAuthority)
        self._certify = functools.cache(lambda signer, root: self._authority(root).certify(signer))

    @property
    def roots(self) -> bytes:
        """The certificates of all roots, in PEM."""
        return b"".join(authority.pem for authority in self._authorities())

    @property
    def revocation_lists(self) -> bytes:
        """The CRLs of all roots, in PEM. They revoke nothing."""
        return b"".join(authority.revocation_list() for authority in self._authorities())

    def sign(self, artifact: str, path: str, data: bytes) -> bytes:
        """A file of an artifact, with a signature if it is a program and must have one."""
        names = self._names.get(artifact)
        return data if names is None else sign(path, data, self._certify(*names))

    def _authorities(self) -> Iterable[SigningAuthority]:
        return (self._authority(root) for root in dict.fromkeys(root for _, root in self._names.values()))
