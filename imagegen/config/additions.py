"""The sections of a config for additional programs, scripts and Ansible roles."""

from typing import Annotated

import pydantic

from imagegen.config.value_types import Duration, HttpsUrl, ImageGlob, RelativePath, Version
from imagegen.resources.model import Name, PastedSha256, Strict, WindowsPath


class Wins(Strict):
    """wins.exe, which runs privileged work for pods on nodes without HostProcess containers."""

    version: Version = pydantic.Field(description="The version of wins, in quotes.", examples=["0.4.11"])
    policy: RelativePath | None = pydantic.Field(
        default=None,
        description="A file in the folder of the config: the pipes and processes that wins allows. Default: a "
        "narrow policy.",
        examples=["wins-policy.yaml"],
    )


class CsiProxy(Strict):
    """csi-proxy, which gives storage drivers access to the machine's disks."""

    version: Version | None = pydantic.Field(
        default=None, description="The version. Default: the catalogue's version.", examples=["1.2.1"]
    )


class Gmsa(Strict):
    """Group managed service accounts (gMSA): the plugin that reads their credentials from a key vault."""

    version: Version | None = pydantic.Field(
        default=None, description="The version. Default: the catalogue's version.", examples=["1.1.4"]
    )


class CredentialProvider(Strict):
    """A program from which kubelet gets the credentials of a registry."""

    name: Name = pydantic.Field(description="The program's name.", examples=["registry-credential-provider"])
    url: HttpsUrl = pydantic.Field(
        description="The https URL of the program.",
        examples=["https://artifacts.example.com/registry-credential-provider.exe"],
    )
    sha256: PastedSha256 | None = pydantic.Field(
        default=None, description="The sha256 that the file must have, in hexadecimal.", examples=["0" * 64]
    )
    match_images: list[ImageGlob] = pydantic.Field(
        description="The images for which kubelet uses this program.", min_length=1, examples=[["*.registry.internal"]]
    )
    cache: Duration = pydantic.Field(
        default="12h", description="How long kubelet keeps the credentials.", examples=["1h"]
    )


class Executable(Strict):
    """A program of your own."""

    url: HttpsUrl = pydantic.Field(
        description="The https URL of the program.", examples=["https://artifacts.example.com/tool.exe"]
    )
    sha256: PastedSha256 | None = pydantic.Field(
        default=None, description="The sha256 that the file must have, in hexadecimal.", examples=["0" * 64]
    )
    path: WindowsPath = pydantic.Field(
        description="The path of the program on the machine.", examples=["C:\\tools\\tool.exe"]
    )


class KubeadmScripts(Strict):
    """Scripts on the image that user data can call, in this order."""

    pre: list[RelativePath] = pydantic.Field(
        default=[],
        description="Scripts to run before `kubeadm join`: PowerShell files in the folder of the config.",
        examples=[["pre.ps1"]],
    )
    post: list[RelativePath] = pydantic.Field(
        default=[],
        description="Scripts to run after `kubeadm join`: PowerShell files in the folder of the config.",
        examples=[["post.ps1"]],
    )


class Ansible(Strict):
    """Your own roles, if Ansible runs the steps."""

    before: list[RelativePath] = pydantic.Field(
        default=[], description="Roles to run before the steps.", examples=[["roles/hardening"]]
    )
    after: list[RelativePath] = pydantic.Field(
        default=[], description="Roles to run after the steps.", examples=[["roles/agents"]]
    )
    variables: dict[Annotated[str, pydantic.StringConstraints(pattern=r"^[a-z_][a-z0-9_]*$")], str | int | bool] = (
        pydantic.Field(default={}, description="Variables for these roles.", examples=[{"agent_version": "7"}])
    )
