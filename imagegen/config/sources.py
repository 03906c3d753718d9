"""What a config says about where bytes come from and what they must be."""

from typing import Annotated

import pydantic

from imagegen.config.addresses import HostAndPort, HttpsUrl
from imagegen.config.words import Line
from imagegen.resources.model import PastedSha256, Strict


class PinnedUrl(Strict):
    """Where an artifact comes from instead, and what its bytes must be."""

    url: HttpsUrl = pydantic.Field(
        description="https URL; for a base URL the folder that holds the files.",
        examples=["https://artifacts.example.com/signed/containerd.tar.gz"],
    )
    sha256: PastedSha256 | None = pydantic.Field(
        default=None, description="What the bytes must be, in hexadecimal.", examples=["0" * 64]
    )
    signer: Line | None = pydantic.Field(
        default=None,
        description="The Authenticode signer whose signature every program of it must carry.",
        examples=["CN=Example Corporation"],
    )


def _form_of_override(asked: object) -> str:
    return "(url)" if isinstance(asked, str) else "(pinned)"


# Told apart by form, so that complaints are about the form that was meant.
AskedOverride = Annotated[
    Annotated[HttpsUrl, pydantic.Tag("(url)")] | Annotated[PinnedUrl, pydantic.Tag("(pinned)")],
    pydantic.Discriminator(_form_of_override),
]


class Signatures(Strict):
    """Authenticode, checked before the build and again in the guest."""

    own_scripts: bool = pydantic.Field(
        default=False,
        description="imagegen's scripts are signed by you, and run under the policy AllSigned.",
        examples=[True],
    )
    signers: list[Line] = pydantic.Field(
        default=[],
        description="Who may have signed; anybody that the machine trusts when empty.",
        examples=[["CN=Example Corporation"]],
    )


class ArtifactPolicy(Strict):
    """What holds for everything that is downloaded."""

    mirror: HttpsUrl | None = pydantic.Field(
        default=None,
        description="A mirror of the public addresses: `https://dl.k8s.io/x` becomes `<mirror>/dl.k8s.io/x`.",
        examples=["https://artifacts.example.com/mirror"],
    )
    allowed_hosts: list[HostAndPort] = pydantic.Field(
        default=[],
        description="The only hosts that anything is downloaded from; any when empty.",
        examples=[["artifacts.example.com"]],
    )
    require_sha256: bool = pydantic.Field(
        default=False,
        description="Refuse an override, a program or a credential provider that does not say its sha256.",
        examples=[True],
    )
    signatures: Signatures | None = pydantic.Field(
        default=None, description="Refuse programs without a good signature; not asked for when left out."
    )


def plain_host(host: str) -> str:
    """A host as it is compared: in lower case, without the port that https has anyway."""
    return host.lower().removesuffix(":443")
