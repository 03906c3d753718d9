"""ImageConfig: what an operator asks for. Closed, typed and frozen; the one truth for defaults and descriptions.

Each section has its module. Every field says what it is and shows an example: the schema, the reference and the tests
are made of these.
"""

from __future__ import annotations

from typing import Annotated

import pydantic

from imagegen.config.additions import (
    Ansible,
    CredentialProvider,
    CsiProxy,
    Executable,
    Gmsa,
    KubeadmScripts,
    Provisioner,
    Wins,
)
from imagegen.config.first_boot import CloudbaseInit, Ssh
from imagegen.config.kubernetes import Kubernetes
from imagegen.config.network import Cni, HostNames, KubeProxy, Proxy
from imagegen.config.runtime import Runtime
from imagegen.config.sources import ArtifactPolicy, AskedOverride
from imagegen.config.windows import Windows
from imagegen.config.words import ImageRef, Minutes, RelativePath
from imagegen.providers.aws.settings import Settings as AwsSettings
from imagegen.providers.azure.settings import Settings as AzureSettings
from imagegen.resources.model import Strict


class Targets(Strict):
    """The clouds that the image is built for."""

    aws: Annotated[AwsSettings | None, pydantic.Field(description="Build and publish on AWS.")] = None
    azure: Annotated[AzureSettings | None, pydantic.Field(description="Build and publish on Azure.")] = None

    @pydantic.model_validator(mode="after")
    def _at_least_one(self) -> Targets:
        if self.aws is None and self.azure is None:
            raise ValueError("name at least one target: aws or azure")
        return self

    def named(self) -> dict[str, AwsSettings | AzureSettings]:
        """The targets that are asked for, by name."""
        both = {"aws": self.aws, "azure": self.azure}
        return {name: settings for name, settings in both.items() if settings is not None}


class PhaseMinutes(Strict):
    """How long a phase of the guest may take, instead of what its steps say."""

    base: Annotated[Minutes | None, pydantic.Field(description="Windows itself.", examples=[90])] = None
    node: Annotated[Minutes | None, pydantic.Field(description="What makes it a node.", examples=[60])] = None


class Timeouts(Strict):
    """How long what may take, in minutes; a build that takes longer fails."""

    phases: Annotated[PhaseMinutes, pydantic.Field(description="The guest's phases.", default_factory=PhaseMinutes)]
    winrm: Annotated[Minutes, pydantic.Field(description="Until the new machine answers.", examples=[45])] = 30
    restart: Annotated[Minutes, pydantic.Field(description="A restart of the machine.", examples=[60])] = 30
    generalise: Annotated[Minutes, pydantic.Field(description="Sysprep.", examples=[60])] = 45


class ImageConfig(Strict):
    """One image."""

    name: Annotated[
        str,
        pydantic.Field(
            description="The image's name: lower-case words with dashes.",
            pattern=r"^[a-z][a-z0-9-]{2,62}$",
            examples=["windows-2022-containerd"],
        ),
    ]
    windows: Annotated[Windows, pydantic.Field(description="The Windows release.")]
    kubernetes: Annotated[Kubernetes, pydantic.Field(description="The node components.")]
    runtime: Annotated[Runtime, pydantic.Field(description="The container runtime: containerd or docker.")]
    cni: Annotated[Cni, pydantic.Field(description="The pods' network.", default_factory=Cni)]
    kube_proxy: Annotated[
        KubeProxy,
        pydantic.Field(
            description="How kube-proxy runs: in HostProcess pods, by wins, or as a service of the image; `none`: "
            "the pods' network does its work.",
            examples=["none"],
        ),
    ] = "hostprocess"
    cloudbase_init: Annotated[CloudbaseInit, pydantic.Field(description="First boot.", default_factory=CloudbaseInit)]
    host_names: Annotated[HostNames, pydantic.Field(description="Machines' names.", default_factory=HostNames)]
    ssh: Annotated[Ssh | None, pydantic.Field(description="An OpenSSH server; none when left out.")] = None
    wins: Annotated[Wins | None, pydantic.Field(description="wins.exe; none when left out.")] = None
    csi_proxy: Annotated[CsiProxy | None, pydantic.Field(description="csi-proxy; none when left out.")] = None
    gmsa: Annotated[Gmsa | None, pydantic.Field(description="gMSA's key vault plugin; none when left out.")] = None
    credential_providers: Annotated[
        list[CredentialProvider], pydantic.Field(description="kubelet's credential providers.")
    ] = []
    images: Annotated[
        list[ImageRef],
        pydantic.Field(description="Container images to have on the image.", examples=[["registry.example.com/a:1"]]),
    ] = []
    executables: Annotated[list[Executable], pydantic.Field(description="Programs of your own.")] = []
    scripts: Annotated[
        list[RelativePath],
        pydantic.Field(
            description="PowerShell files beside the config that run on the machine at the end of the build.",
            examples=[["harden.ps1"]],
        ),
    ] = []
    kubeadm_scripts: Annotated[
        KubeadmScripts, pydantic.Field(description="Scripts for user data to call.", default_factory=KubeadmScripts)
    ]
    proxy: Annotated[Proxy | None, pydantic.Field(description="The machines' proxy; none when left out.")] = None
    provisioner: Annotated[
        Provisioner, pydantic.Field(description="What carries the steps to the machine.", examples=["ansible"])
    ] = "powershell"
    ansible: Annotated[
        Ansible | None, pydantic.Field(description="Your own roles, where Ansible carries the steps.")
    ] = None
    overrides: Annotated[
        dict[str, AskedOverride],
        pydantic.Field(
            description="Signed or mirrored artifacts instead of the public ones, by the names of "
            "`imagegen catalog overrides`: `containerd_url: https://…`, or `{url, sha256, signer}`.",
            examples=[{"containerd_url": "https://artifacts.example.com/containerd.tar.gz"}],
        ),
    ] = {}
    artifacts: Annotated[
        ArtifactPolicy,
        pydantic.Field(description="What holds for everything that is downloaded.", default_factory=ArtifactPolicy),
    ]
    timeouts: Annotated[Timeouts, pydantic.Field(description="How long what may take.", default_factory=Timeouts)]
    allow_eol: Annotated[
        bool,
        pydantic.Field(
            description="Build with releases whose support has ended; recorded in the manifest.", examples=[True]
        ),
    ] = False
    targets: Annotated[Targets, pydantic.Field(description="Where the image is built and published.")]


class ConfigFile(ImageConfig):
    """A config as it is written: an image, or what differs from the configs that it extends."""

    extends: Annotated[
        str | list[str],
        pydantic.Field(
            description="Configs of this repository that this one builds on: maps merge, lists and values replace.",
            examples=["base.yaml"],
        ),
    ] = []
