"""What a config adds to a node beside Kubernetes and its runtime."""

from typing import Annotated, Literal

import pydantic

from imagegen.config.addresses import HttpsUrl, ImageGlob
from imagegen.config.words import Duration, RelativePath, Version
from imagegen.resources.model import Name, PastedSha256, Strict, WindowsPath


class Wins(Strict):
    """wins.exe, which ran privileged work before there were HostProcess containers."""

    version: Version = pydantic.Field(description="The wins version, quoted.", examples=["0.4.11"])
    policy: RelativePath | None = pydantic.Field(
        default=None,
        description="Its policy of pipes and processes, beside the config; a narrow one when left out.",
        examples=["wins-policy.yaml"],
    )


class CsiProxy(Strict):
    """csi-proxy, by which storage drivers reach the machine's disks."""

    version: Version | None = pydantic.Field(
        default=None, description="The version; the catalogue's when left out.", examples=["1.2.1"]
    )


class Gmsa(Strict):
    """Group managed service accounts: the plugin that reads their credentials from a key vault."""

    version: Version | None = pydantic.Field(
        default=None, description="The version; the catalogue's when left out.", examples=["1.1.4"]
    )


class CredentialProvider(Strict):
    """A program that kubelet asks for a registry's credentials."""

    name: Name = pydantic.Field(description="The program's name.", examples=["registry-credential-provider"])
    url: HttpsUrl = pydantic.Field(
        description="Where it comes from.", examples=["https://artifacts.example.com/registry-credential-provider.exe"]
    )
    sha256: PastedSha256 | None = pydantic.Field(
        default=None, description="What its bytes must be, in hexadecimal.", examples=["0" * 64]
    )
    match_images: list[ImageGlob] = pydantic.Field(
        description="The images it is asked for.", min_length=1, examples=[["*.registry.internal"]]
    )
    cache: Duration = pydantic.Field(default="12h", description="How long its answer is kept.", examples=["1h"])


class Executable(Strict):
    """A program of the operator's own."""

    url: HttpsUrl = pydantic.Field(
        description="Where it comes from.", examples=["https://artifacts.example.com/tool.exe"]
    )
    sha256: PastedSha256 | None = pydantic.Field(
        default=None, description="What its bytes must be, in hexadecimal.", examples=["0" * 64]
    )
    path: WindowsPath = pydantic.Field(description="Where it lies on the machine.", examples=["C:\\tools\\tool.exe"])


class KubeadmScripts(Strict):
    """Scripts that lie on the image for user data to call, in this order."""

    pre: list[RelativePath] = pydantic.Field(
        default=[], description="Before kubeadm joins; PowerShell files beside the config.", examples=[["pre.ps1"]]
    )
    post: list[RelativePath] = pydantic.Field(
        default=[], description="After kubeadm joined; PowerShell files beside the config.", examples=[["post.ps1"]]
    )


class Ansible(Strict):
    """Roles of the operator's own, where Ansible delivers the steps."""

    before: list[RelativePath] = pydantic.Field(
        default=[], description="Roles before the steps.", examples=[["roles/hardening"]]
    )
    after: list[RelativePath] = pydantic.Field(
        default=[], description="Roles after the steps.", examples=[["roles/agents"]]
    )
    variables: dict[Annotated[str, pydantic.StringConstraints(pattern=r"^[a-z_][a-z0-9_]*$")], str | int | bool] = (
        pydantic.Field(default={}, description="Variables of these roles.", examples=[{"agent_version": "7"}])
    )


Provisioner = Literal["powershell", "ansible"]
