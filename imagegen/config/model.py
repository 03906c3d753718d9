"""ImageConfig: what an operator asks for. Closed, typed and frozen; the one truth for defaults and descriptions.

Each section has its module. Every field says what it is and shows an example: the schema, the reference and the tests
are made of these.
"""

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
from imagegen.config.addresses import ImageRef
from imagegen.config.first_boot import CloudbaseInit, Ssh
from imagegen.config.kubernetes import Kubernetes
from imagegen.config.network import Cni, HostNames, KubeProxy, Proxy
from imagegen.config.runtime import Runtime
from imagegen.config.sources import ArtifactPolicy, AskedOverride
from imagegen.config.targets import Targets
from imagegen.config.windows import Windows
from imagegen.config.words import Minutes, RelativePath, StepOption
from imagegen.resources.model import Name, Strict


class Timeouts(Strict):
    """How long what may take, in minutes; a build that takes longer fails."""

    steps: dict[str, Minutes] = pydantic.Field(
        default={},
        description="Minutes for a step by its name, instead of what the step itself says. A phase may take its "
        "steps' time and ten minutes more.",
        examples=[{"system": 90}],
    )
    winrm: Minutes = pydantic.Field(default=30, description="Minutes until the new machine answers.", examples=[45])
    restart: Minutes = pydantic.Field(default=30, description="Minutes for a restart of the machine.", examples=[60])
    generalise: Minutes = pydantic.Field(default=45, description="Minutes for sysprep.", examples=[60])


class ImageConfig(Strict):
    """One image."""

    name: str = pydantic.Field(
        description="The image's name: 3 to 63 lower-case letters, digits and dashes, a letter first.",
        pattern=r"^[a-z][a-z0-9-]{2,62}$",
        examples=["windows-2022-containerd"],
    )
    windows: Windows = pydantic.Field(description="The Windows release.")
    kubernetes: Kubernetes = pydantic.Field(description="The node components.")
    runtime: Runtime = pydantic.Field(description="The container runtime: containerd or docker.")
    cni: Cni = pydantic.Field(description="The pods' network.", default_factory=Cni.model_construct)
    kube_proxy: KubeProxy = pydantic.Field(
        default="hostprocess",
        description="How kube-proxy runs: in HostProcess pods, by wins, or as a service of the image; `none`: "
        "the pods' network does its work.",
        examples=["none"],
    )
    cloudbase_init: CloudbaseInit = pydantic.Field(
        description="First boot.", default_factory=CloudbaseInit.model_construct
    )
    host_names: HostNames = pydantic.Field(description="Machines' names.", default_factory=HostNames.model_construct)
    ssh: Ssh | None = pydantic.Field(default=None, description="An OpenSSH server; none when left out.")
    wins: Wins | None = pydantic.Field(default=None, description="wins.exe; none when left out.")
    csi_proxy: CsiProxy | None = pydantic.Field(default=None, description="csi-proxy; none when left out.")
    gmsa: Gmsa | None = pydantic.Field(default=None, description="gMSA's key vault plugin; none when left out.")
    credential_providers: list[CredentialProvider] = pydantic.Field(
        default=[], description="kubelet's credential providers."
    )
    images: list[ImageRef] = pydantic.Field(
        default=[], description="Container images to have on the image.", examples=[["registry.example.com/a:1"]]
    )
    executables: list[Executable] = pydantic.Field(default=[], description="Programs of your own.")
    scripts: list[RelativePath] = pydantic.Field(
        default=[],
        description="PowerShell files beside the config that run on the machine at the end of the build.",
        examples=[["harden.ps1"]],
    )
    kubeadm_scripts: KubeadmScripts = pydantic.Field(
        description="Scripts for user data to call.", default_factory=KubeadmScripts.model_construct
    )
    proxy: Proxy | None = pydantic.Field(default=None, description="The machines' proxy; none when left out.")
    provisioner: Provisioner = pydantic.Field(
        default="powershell", description="What carries the steps to the machine.", examples=["ansible"]
    )
    ansible: Ansible | None = pydantic.Field(
        default=None, description="Your own roles, where Ansible carries the steps."
    )
    steps_path: RelativePath | None = pydantic.Field(
        default=None,
        description="A folder of steps of your own, beside the file that names it; each folder in it is a step.",
        examples=["steps"],
    )
    step_options: dict[Name, dict[StepOption, str | int | bool | list[str]]] = pydantic.Field(
        default={},
        description="Options of your own steps, by the step's name, as its meta/step.yml declares them.",
        examples=[{"agent": {"server": "agents.example.com"}}],
    )
    overrides: dict[str, AskedOverride] = pydantic.Field(
        default={},
        description="Signed or mirrored artifacts instead of the public ones, by the names of "
        "`imagegen catalog overrides`: `containerd_url: https://…`, or `{url, sha256, signer}`.",
        examples=[{"containerd_url": "https://artifacts.example.com/containerd.tar.gz"}],
    )
    artifacts: ArtifactPolicy = pydantic.Field(
        description="What holds for everything that is downloaded.", default_factory=ArtifactPolicy.model_construct
    )
    timeouts: Timeouts = pydantic.Field(
        description="How long what may take, in minutes.", default_factory=Timeouts.model_construct
    )
    allow_eol: bool = pydantic.Field(
        default=False,
        description="Build with releases whose support has ended; recorded in the manifest.",
        examples=[True],
    )
    targets: Targets = pydantic.Field(
        description="Where the image is built and published, by names. A target that is not named after its cloud says "
        "`provider`: two accounts are two targets."
    )


class ConfigFile(ImageConfig):
    """A config as it is written: an image, or what differs from the configs that it extends."""

    extends: str | list[str] = pydantic.Field(
        default=[],
        description="Configs of this repository that this one builds on: maps merge, lists and values replace.",
        examples=["base.yaml"],
    )
