"""The sections of a config for downloads: their sources, digests and signatures."""

from typing import Annotated

import pydantic

from imagegen.config.value_types import HostAndPort, HttpsUrl, Line
from imagegen.resources.model import PastedSha256, Strict


class PinnedUrl(Strict):
    """Another source of an artifact, with its sha256 and signer."""

    url: HttpsUrl = pydantic.Field(
        description="The https URL of the artifact; for a base URL, the folder with the files.",
        examples=["https://artifacts.example.com/signed/containerd.tar.gz"],
    )
    sha256: PastedSha256 | None = pydantic.Field(
        default=None, description="The sha256 that the file must have, in hexadecimal.", examples=["0" * 64]
    )
    signer: Line | None = pydantic.Field(
        default=None,
        description="The Authenticode signer that must have signed every program in the artifact.",
        examples=["CN=Example Corporation"],
    )


# A discriminated union, so that error messages are about the form that was used.
AskedOverride = Annotated[
    Annotated[HttpsUrl, pydantic.Tag("(url)")] | Annotated[PinnedUrl, pydantic.Tag("(pinned)")],
    pydantic.Discriminator(lambda given: "(url)" if isinstance(given, str) else "(pinned)"),
]


class Signatures(Strict):
    """Authenticode signatures, which are checked before the build and again on the machine."""

    own_scripts: bool = pydantic.Field(
        default=False,
        description="You sign imagegen's scripts, and they run under the execution policy AllSigned.",
        examples=[True],
    )
    signers: list[Line] = pydantic.Field(
        default=[],
        description="The allowed signers. Empty: every signer that the machine trusts.",
        examples=[["CN=Example Corporation"]],
    )


class ArtifactPolicy(Strict):
    """Rules for all downloads."""

    mirror: HttpsUrl | None = pydantic.Field(
        default=None,
        description="A mirror of the public URLs: `https://dl.k8s.io/x` becomes `<mirror>/dl.k8s.io/x`.",
        examples=["https://artifacts.example.com/mirror"],
    )
    allowed_hosts: list[HostAndPort] = pydantic.Field(
        default=[],
        description="The only hosts from which imagegen downloads. Empty: all hosts.",
        examples=[["artifacts.example.com"]],
    )
    require_sha256: bool = pydantic.Field(
        default=False,
        description="Reject overrides, programs and credential providers without a sha256.",
        examples=[True],
    )
    signatures: Signatures | None = pydantic.Field(
        default=None, description="Reject programs without a valid signature. Default: signatures are not checked."
    )


def plain_host(host: str) -> str:
    """A host in the form for comparisons: in lower case, and without the default port of https."""
    return host.lower().removesuffix(":443")
