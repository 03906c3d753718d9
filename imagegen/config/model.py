"""ImageConfig, the model of a config: closed, typed and frozen. Defaults and descriptions are defined only here.

Every field has a description and an example. The schema, the reference and the tests are generated from them. Sections
are in the modules beside this one.
"""

from typing import Literal

import pydantic

from imagegen.config.additions import (
    Ansible,
    CredentialProvider,
    CsiProxy,
    Executable,
    Gmsa,
    KubeadmScripts,
    Wins,
)
from imagegen.config.first_boot import CloudbaseInit, Ssh
from imagegen.config.node import Cni, HostNames, Kubernetes, Proxy, Runtime, Windows
from imagegen.config.sources import ArtifactPolicy, AskedOverride
from imagegen.config.targets import Targets
from imagegen.config.value_types import ImageRef, Minutes, RelativePath, StepOption
from imagegen.resources.model import Name, Strict


class Timeouts(Strict):
    """Time limits in minutes. A build that exceeds one fails."""

    steps: dict[str, Minutes] = pydantic.Field(
        default={},
        description="Minutes for each step, by its name, instead of the step's own limit. The limit of a phase is the "
        "sum of its steps' limits plus ten minutes.",
        examples=[{"system": 90}],
    )
    winrm: Minutes = pydantic.Field(
        default=30, description="Minutes until the new machine answers over WinRM.", examples=[45]
    )
    restart: Minutes = pydantic.Field(default=30, description="Minutes for a restart of the machine.", examples=[60])
    generalise: Minutes = pydantic.Field(default=45, description="Minutes for sysprep.", examples=[60])


class ImageConfig(Strict):
    """One image."""

    name: str = pydantic.Field(
        description="The name of the image: 3 to 63 lower-case letters, digits and dashes; the first is a letter.",
        pattern=r"^[a-z][a-z0-9-]{2,62}$",
        examples=["windows-2022-containerd"],
    )
    windows: Windows = pydantic.Field(description="The Windows release.")
    kubernetes: Kubernetes = pydantic.Field(description="The node components.")
    runtime: Runtime = pydantic.Field(description="The container runtime: containerd or docker.")
    cni: Cni = pydantic.Field(description="The pod network.", default_factory=Cni.model_construct)
    kube_proxy: Literal["hostprocess", "wins", "service", "none"] = pydantic.Field(
        default="hostprocess",
        description="How kube-proxy runs: in HostProcess pods, with wins, or as a service of the image. `none`: "
        "the pod network replaces kube-proxy.",
        examples=["none"],
    )
    cloudbase_init: CloudbaseInit = pydantic.Field(
        description="cloudbase-init, which sets up the machine at its first boot.",
        default_factory=CloudbaseInit.model_construct,
    )
    host_names: HostNames = pydantic.Field(
        description="The names of the machines.", default_factory=HostNames.model_construct
    )
    ssh: Ssh | None = pydantic.Field(default=None, description="An OpenSSH server. Default: none.")
    wins: Wins | None = pydantic.Field(default=None, description="wins.exe. Default: none.")
    csi_proxy: CsiProxy | None = pydantic.Field(default=None, description="csi-proxy. Default: none.")
    gmsa: Gmsa | None = pydantic.Field(default=None, description="The key vault plugin for gMSA. Default: none.")
    credential_providers: list[CredentialProvider] = pydantic.Field(
        default=[], description="The credential providers of kubelet."
    )
    images: list[ImageRef] = pydantic.Field(
        default=[], description="Container images to pull onto the image.", examples=[["registry.example.com/a:1"]]
    )
    executables: list[Executable] = pydantic.Field(default=[], description="Programs of your own.")
    scripts: list[RelativePath] = pydantic.Field(
        default=[],
        description="PowerShell files in the folder of the config. They run on the machine at the end of the build.",
        examples=[["harden.ps1"]],
    )
    kubeadm_scripts: KubeadmScripts = pydantic.Field(
        description="Scripts that user data can call.", default_factory=KubeadmScripts.model_construct
    )
    proxy: Proxy | None = pydantic.Field(default=None, description="The proxy of the machines. Default: none.")
    provisioner: Literal["powershell", "ansible"] = pydantic.Field(
        default="powershell", description="The tool that runs the steps on the machine.", examples=["ansible"]
    )
    ansible: Ansible | None = pydantic.Field(default=None, description="Your own roles, if Ansible runs the steps.")
    steps_path: RelativePath | None = pydantic.Field(
        default=None,
        description="A folder with your own steps, in the folder of the file that has this key. Each folder "
        "in it is a step.",
        examples=["steps"],
    )
    step_options: dict[Name, dict[StepOption, str | int | bool | list[str]]] = pydantic.Field(
        default={},
        description="Options of your own steps, by the name of the step. The step's meta/step.yml declares them.",
        examples=[{"agent": {"server": "agents.example.com"}}],
    )
    overrides: dict[str, AskedOverride] = pydantic.Field(
        default={},
        description="Signed or mirrored artifacts that replace the public ones, by the names in "
        "`imagegen catalog overrides`: `containerd_url: https://…`, or `{url, sha256, signer}`.",
        examples=[{"containerd_url": "https://artifacts.example.com/containerd.tar.gz"}],
    )
    artifacts: ArtifactPolicy = pydantic.Field(
        description="Rules for all downloads.", default_factory=ArtifactPolicy.model_construct
    )
    timeouts: Timeouts = pydantic.Field(description="Time limits in minutes.", default_factory=Timeouts.model_construct)
    allow_eol: bool = pydantic.Field(
        default=False,
        description="Allow releases that are no longer supported. The manifest records it.",
        examples=[True],
    )
    targets: Targets = pydantic.Field(
        description="Where the image is built and published: targets by name. A target that is not named "
        "after its cloud has the key "
        "`provider`. Two accounts are two targets."
    )


class ConfigFile(ImageConfig):
    """A config file: a complete config, or the differences from the configs that it extends."""

    extends: str | list[str] = pydantic.Field(
        default=[],
        description="Configs in the same repository that this config extends. Maps merge; lists and values replace.",
        examples=["base.yaml"],
    )
