"""What a config adds to a node beside Kubernetes and its runtime."""

from __future__ import annotations

from typing import Annotated, Literal

import pydantic

from imagegen.config.words import Duration, HttpsUrl, RelativePath, Version
from imagegen.resources.model import Name, Sha256, Strict, WindowsPath


class Wins(Strict):
    """wins.exe, which ran privileged work before there were HostProcess containers."""

    version: Annotated[Version, pydantic.Field(description="The wins version, quoted.", examples=["0.4.11"])]
    policy: Annotated[
        RelativePath | None,
        pydantic.Field(
            description="Its policy of pipes and processes, beside the config; a narrow one when left out.",
            examples=["wins-policy.yaml"],
        ),
    ] = None


class CsiProxy(Strict):
    """csi-proxy, by which storage drivers reach the machine's disks."""

    version: Annotated[
        Version | None, pydantic.Field(description="The version; the catalogue's when left out.", examples=["1.2.1"])
    ] = None


class Gmsa(Strict):
    """Group managed service accounts: the plugin that reads their credentials from Azure's key vault."""

    version: Annotated[
        Version | None, pydantic.Field(description="The version; the catalogue's when left out.", examples=["1.1.4"])
    ] = None


class CredentialProvider(Strict):
    """A program that kubelet asks for a registry's credentials."""

    name: Annotated[Name, pydantic.Field(description="The program's name.", examples=["ecr-credential-provider"])]
    url: Annotated[
        HttpsUrl,
        pydantic.Field(
            description="Where it comes from.", examples=["https://artifacts.example.com/ecr-credential-provider.exe"]
        ),
    ]
    sha256: Annotated[
        Sha256 | None, pydantic.Field(description="What its bytes must be, in lower-case hex.", examples=["0" * 64])
    ] = None
    match_images: Annotated[
        list[Annotated[str, pydantic.StringConstraints(pattern=r"^[A-Za-z0-9.*:/_-]+$")]],
        pydantic.Field(
            description="The images it is asked for.", min_length=1, examples=[["*.dkr.ecr.*.amazonaws.com"]]
        ),
    ]
    cache: Annotated[Duration, pydantic.Field(description="How long its answer is kept.", examples=["1h"])] = "12h"


class Executable(Strict):
    """A program of the operator's own."""

    url: Annotated[
        HttpsUrl,
        pydantic.Field(description="Where it comes from.", examples=["https://artifacts.example.com/tool.exe"]),
    ]
    sha256: Annotated[
        Sha256 | None, pydantic.Field(description="What its bytes must be, in lower-case hex.", examples=["0" * 64])
    ] = None
    path: Annotated[
        WindowsPath, pydantic.Field(description="Where it lies on the machine.", examples=["C:\\tools\\tool.exe"])
    ]


class KubeadmScripts(Strict):
    """Scripts that lie on the image for user data to call, in this order."""

    pre: Annotated[
        list[RelativePath],
        pydantic.Field(description="Before kubeadm joins; PowerShell files beside the config.", examples=[["pre.ps1"]]),
    ] = []
    post: Annotated[
        list[RelativePath],
        pydantic.Field(
            description="After kubeadm joined; PowerShell files beside the config.", examples=[["post.ps1"]]
        ),
    ] = []


class Ansible(Strict):
    """Roles of the operator's own, where Ansible delivers the steps."""

    before: Annotated[
        list[RelativePath], pydantic.Field(description="Roles before the steps.", examples=[["roles/hardening"]])
    ] = []
    after: Annotated[
        list[RelativePath], pydantic.Field(description="Roles after the steps.", examples=[["roles/agents"]])
    ] = []
    variables: Annotated[
        dict[Annotated[str, pydantic.StringConstraints(pattern=r"^[a-z_][a-z0-9_]*$")], str | int | bool],
        pydantic.Field(description="Variables of these roles.", examples=[{"agent_version": "7"}]),
    ] = {}


Provisioner = Literal["powershell", "ansible"]
