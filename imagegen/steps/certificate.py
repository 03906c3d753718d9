"""The kind of certificates in the stores of the machine."""

from typing import Annotated, Literal

import pydantic

from imagegen.steps.resource import Resource, Sha256
from imagegen.steps.update import BundledFile, Text

Thumbprint = Annotated[str, pydantic.StringConstraints(pattern=r"^[0-9A-F]{40}$")]


class Certificate(Resource):
    """A certificate in a store of the machine: of a root that Windows trusts, or of a publisher whose scripts run."""

    store: Literal["Root", "TrustedPublisher"]
    thumbprint: Thumbprint
    """The SHA-1 of the certificate, by which Windows finds it."""
    subject: Text
    """For people: the thumbprint decides."""
    sha256: Sha256
    """Of the certificate, which is the whole file."""
    source: BundledFile
    """The certificate as DER."""

    @property
    def label(self) -> str:
        return rf"{self.store}\{self.thumbprint}"
