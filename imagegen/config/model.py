"""ImageConfig, the model of a config: closed, typed and frozen. Defaults and descriptions are defined only here.

Every field has a description and an example. The schema, the reference and the tests are generated from them. The
sections for the node, its first boot and the targets are in the modules beside this one.
"""

from typing import Annotated, Final, Literal

import pydantic

from imagegen.base.errors import InvalidValue
from imagegen.config.artifact_policy import ArtifactPolicy, AskedOverride, is_url
from imagegen.config.first_boot import CloudbaseInit, Ssh
from imagegen.config.node import Cni, HostNames, ImageTarball, Kubernetes, Proxy, RegistryCredentials, Runtime, Windows
from imagegen.config.targets import Targets
from imagegen.config.value_types import (
    Duration,
    HttpsUrl,
    ImageGlob,
    ImageRef,
    Line,
    Minutes,
    ProgramName,
    ProgramPath,
    RelativePath,
    ScriptFile,
    StepOption,
    Version,
)
from imagegen.config.yaml import YamlPath
from imagegen.steps.resource import Fault, Name, PastedSha256, Strict, refuse

# Their names on the machine begin with two digits.
_MOST_SCRIPTS: Final = 99


class Wins(Strict):
    """wins.exe, which runs privileged work for pods on nodes without HostProcess containers."""

    version: Version = pydantic.Field(description="The version of wins, in quotes.", examples=["0.4.11"])
    policy: RelativePath | None = pydantic.Field(
        default=None,
        description="A file in the folder of the config: the configuration of wins, with the list of the programs "
        "that pods may start. Default: kube-proxy and flannel, as far as the config uses them.",
        examples=["wins-policy.yaml"],
    )


class CsiProxy(Strict):
    """csi-proxy, which gives storage drivers access to the machine's disks."""

    version: Version | None = pydantic.Field(
        default=None,
        description="The version. Default: the catalogue's version. Most versions have no public archive: they need "
        "overrides.csi_proxy_url or artifacts.mirror.",
        examples=["1.2.1"],
    )


class Gmsa(Strict):
    """Group managed service accounts (gMSA): the plugin that reads their credentials from a key vault."""

    version: Version | None = pydantic.Field(
        default=None, description="The version. Default: the catalogue's version.", examples=["1.1.4"]
    )


class CredentialProvider(Strict):
    """A program from which kubelet gets the credentials of a registry."""

    name: ProgramName = pydantic.Field(
        description="The program's name, without .exe.", examples=["registry-credential-provider"]
    )
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
    args: list[Line] = pydantic.Field(
        default=[], description="The arguments of the program.", examples=[["C:\\k\\registry.json"]]
    )
    env: dict[Annotated[str, pydantic.StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")], Line] = pydantic.Field(
        default={},
        description="Environment variables of the program, in addition to those of the machine. They are on every "
        "node: write no secret here.",
        examples=[{"REGISTRY_REGION": "eu"}],
    )


class Executable(Strict):
    """A program of your own."""

    url: HttpsUrl = pydantic.Field(
        description="The https URL of the program.", examples=["https://artifacts.example.com/tool.exe"]
    )
    sha256: PastedSha256 | None = pydantic.Field(
        default=None, description="The sha256 that the file must have, in hexadecimal.", examples=["0" * 64]
    )
    path: ProgramPath = pydantic.Field(
        description="The path of the program on the machine.", examples=["C:\\tools\\tool.exe"]
    )


def _check_argument(text: str) -> str:
    if text.startswith("-") and text.endswith(":"):
        raise InvalidValue(f"PowerShell drops the argument {text}", f"write {text[:-1]}, and its value after it")
    return text


class Script(Strict):
    """A script of your own, with its arguments."""

    file: ScriptFile = pydantic.Field(
        description="A PowerShell file in the folder of the config.", examples=["harden.ps1"]
    )
    arguments: list[Annotated[Line, pydantic.AfterValidator(_check_argument)]] = pydantic.Field(
        default=[],
        description="The arguments of the script, as PowerShell's -File takes them. They are in the plan and the "
        "manifest: write no secret here.",
        examples=[["-Level", "2"]],
    )
    good_exit_codes: list[Annotated[int, pydantic.Field(ge=-(2**31), le=2**31 - 1)]] = pydantic.Field(
        default=[0],
        description="The exit codes that mean success. With 3010 in the list, a script that ends with it gets a "
        "restart of Windows.",
        min_length=1,
        examples=[[0, 3010]],
    )
    timeout_s: int = pydantic.Field(
        default=600,
        description="Seconds for the script. Then it is ended, and the build fails.",
        ge=1,
        le=14400,
        examples=[1800],
    )


# A discriminated union, so that error messages are about the form that was used.
AskedScript = Annotated[
    Annotated[ScriptFile, pydantic.Tag("(file)")] | Annotated[Script, pydantic.Tag("(section)")],
    pydantic.Discriminator(lambda given: "(file)" if isinstance(given, str) else "(section)"),
]


class KubeadmScripts(Strict):
    """Scripts on the image that user data can call, in this order."""

    pre: list[ScriptFile] = pydantic.Field(
        default=[],
        description="Scripts to run before `kubeadm join`: PowerShell files in the folder of the config. On the "
        "machine they are in the folder pre-kubeadm of the install path, where user data calls them.",
        max_length=_MOST_SCRIPTS,
        examples=[["pre.ps1"]],
    )
    post: list[ScriptFile] = pydantic.Field(
        default=[],
        description="Scripts to run after `kubeadm join`: PowerShell files in the folder of the config. On the "
        "machine they are in the folder post-kubeadm of the install path, where user data calls them.",
        max_length=_MOST_SCRIPTS,
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
    generalise: Minutes = pydantic.Field(
        default=150, description="Minutes for sealing, with the clean-up of Windows and sysprep.", examples=[180]
    )
    publish: Minutes = pydantic.Field(
        default=360,
        description="Minutes for each copy of the image to another region, or for the replication to all of them.",
        examples=[480],
    )


def _check_registries(items: list[RegistryCredentials]) -> list[RegistryCredentials]:
    names = [item.registry for item in items]
    repeated = [at for at, name in enumerate(names) if name in names[:at]]
    refuse(
        "list",
        [Fault(True, (at, "registry"), f"{names[at]} is listed above", "leave one of them out") for at in repeated],
    )
    return items


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
    kube_proxy_health_checks: bool = pydantic.Field(
        default=False,
        description="Open the ports at which load balancers ask kube-proxy about the node: TCP 10256, and the node "
        "ports, for services with `externalTrafficPolicy: Local`. With `kube_proxy: service` they are always open.",
        examples=[True],
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
    image_tarballs: list[ImageTarball] = pydantic.Field(
        default=[], description="Container images to import from tarballs, without a registry."
    )
    registry_credentials: Annotated[list[RegistryCredentials], pydantic.AfterValidator(_check_registries)] = (
        pydantic.Field(
            default=[],
            description="The registries whose images need credentials. `imagegen lock` and the builder use them; the "
            "image does not have them.",
        )
    )
    executables: list[Executable] = pydantic.Field(default=[], description="Programs of your own.")
    debug_tools: bool = pydantic.Field(
        default=False,
        description="Put scripts for problems of Windows nodes into C:\\k\\debug: Microsoft's for the network, and "
        "sig-windows' checks of a node. Default: none.",
        examples=[True],
    )
    scripts: list[AskedScript] = pydantic.Field(
        default=[],
        description="PowerShell files in the folder of the config: their paths, or sections with arguments. They run "
        "on the machine at the end of the build, after all steps and before sealing.",
        max_length=_MOST_SCRIPTS,
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

    @property
    def all_scripts(self) -> list[Script]:
        """The scripts of the end of the build, in the long form."""
        return [Script(file=script) if isinstance(script, str) else script for script in self.scripts]

    @property
    def requires_signatures(self) -> bool:
        """Whether downloads must be signed: all of them, or some overrides."""
        pinned = (override for override in self.overrides.values() if not isinstance(override, str))
        return self.artifacts.signatures is not None or any(override.signer is not None for override in pinned)

    def own_files(self) -> dict[YamlPath, str]:
        """The files beside the config that go to the machine, by the path of their key."""
        lists = {
            ("scripts",): [script.file for script in self.all_scripts],
            ("kubeadm_scripts", "pre"): self.kubeadm_scripts.pre,
            ("kubeadm_scripts", "post"): self.kubeadm_scripts.post,
            ("windows", "trusted_roots"): self.windows.trusted_roots,
        }
        named: dict[YamlPath, str] = {
            (*at, index): file for at, files in lists.items() for index, file in enumerate(files)
        }
        if self.wins and self.wins.policy:
            named["wins", "policy"] = self.wins.policy
        return named

    def trust_files(self) -> dict[YamlPath, str]:
        """The files beside the config with which signatures are judged, by the path of their key."""
        policy = self.artifacts.signatures
        if policy is None:
            return {}
        at: YamlPath = ("artifacts", "signatures")
        named = {(*at, "crls", index): crl for index, crl in enumerate(policy.crls) if not is_url(crl)}
        return {(*at, "roots"): policy.roots, **named} if policy.roots else named

    def ca_files(self) -> dict[YamlPath, str]:
        """The files beside the config with the authorities of downloads, by the path of their key."""
        return {("artifacts", "ca", index): file for index, file in enumerate(self.artifacts.ca)}


class ConfigFile(ImageConfig):
    """A config file: a complete config, or the differences from the configs that it extends."""

    extends: str | list[str] = pydantic.Field(
        default=[],
        description="Configs in the same repository that this config extends. Maps merge; lists and values replace.",
        examples=["base.yaml"],
    )
