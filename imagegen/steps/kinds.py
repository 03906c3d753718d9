"""The kinds of resource: closed models. Their fields are the parameters of the kind's script (docs/guest.md).

The first field of a kind tells its resources apart."""

import re
from pathlib import PureWindowsPath
from typing import Annotated, ClassVar, Final, Literal, Self

import pydantic

from imagegen.steps.resource import ArtifactForm, ImageDigest, Name, Resource, Sha256, Strict, WindowsPath

POWERSHELL: Final = r"C:\Windows\System32\WindowsPowerShell\v1.0\powershell.exe"
Text = Annotated[str, pydantic.StringConstraints(min_length=1)]
ENGINE_MODULE: Final = "common.psm1"
"""The module of the engine that scripts on a node can use too. Every bundle has it."""
BundledFile = Annotated[str, pydantic.StringConstraints(pattern=r"^(common\.psm1|files/[a-z0-9-]+/[A-Za-z0-9._-]+)$")]


class WantedKb(Strict):
    """An update by its number. A cumulative update brings a revision of Windows, which later ones replace."""

    kb: Annotated[str, pydantic.StringConstraints(pattern=r"^KB[0-9]{6,8}$")]
    ubr: Annotated[int, pydantic.Field(ge=0)] | None = None


class UpdateCode(Strict):
    """What a code of Windows Update means."""

    code: Annotated[str, pydantic.StringConstraints(pattern=r"^0x[0-9a-f]{8}$")]
    means: Text


_Guid = Annotated[str, pydantic.StringConstraints(pattern=r"^[0-9A-F]{8}(-[0-9A-F]{4}){3}-[0-9A-F]{12}$")]
# What is in quotes on netsh's command line.
_Quoted = Annotated[str, pydantic.StringConstraints(pattern=r"^[!#-~]*$")]


class Update(Resource):
    """Windows updates, installed by Windows Update in as many rounds as the step has, with a restart after each."""

    outlives_sealing: ClassVar[bool] = False
    name: Name
    source: BundledFile
    sha256: Sha256
    rounds: Annotated[int, pydantic.Field(ge=1, le=10)]
    categories: list[_Guid] = []
    kbs: list[WantedKb] = []
    exclude: list[Annotated[str, pydantic.StringConstraints(pattern=r"^KB[0-9]{6,8}$")]] = []
    proxy: Annotated[_Quoted, pydantic.StringConstraints(min_length=1)] | None = None
    """As netsh takes it for WinHTTP. Set for the time of a round."""
    bypass: _Quoted = ""
    codes: list[UpdateCode] = []
    """What codes of Windows Update mean, for the message of a failure."""

    @pydantic.model_validator(mode="after")
    def _wants_something(self) -> Self:
        if not self.categories and not self.kbs:
            raise ValueError("must have categories or kbs")
        return self

    @property
    def may_restart(self) -> bool:
        return True

    def needs(self) -> tuple[str, ...]:
        return (POWERSHELL,)


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


def _check_ports(text: str) -> str:
    first, last = (int(port) for port in text.split("-"))
    if not 1 <= first < last <= 65535:
        raise ValueError("must be two ports from 1 to 65535, the smaller one first")
    return text


# A discriminated union, so that an error message is about the form that was used.
Ports = Annotated[
    Annotated[int, pydantic.Field(ge=1, le=65535), pydantic.Tag("(port)")]
    | Annotated[
        str,
        pydantic.StringConstraints(pattern=r"^[1-9][0-9]{0,4}-[1-9][0-9]{0,4}$"),
        pydantic.AfterValidator(_check_ports),
        pydantic.Tag("(range)"),
    ],
    pydantic.Discriminator(lambda given: "(range)" if isinstance(given, str) else "(port)"),
]


class Firewall(Resource):
    """A firewall rule for one port, or for several in a row (30000-32767), in every profile."""

    name: Name
    display_name: Text
    direction: Literal["in", "out"]
    action: Literal["allow", "block"]
    protocol: Literal["TCP", "UDP"]
    port: Ports


RESTART_NEEDED: Final = 3010
"""The exit code of a program that succeeded, and needs a restart of Windows."""
ENVIRONMENT: Final = r"HKLM:\SYSTEM\CurrentControlSet\Control\Session Manager\Environment"
"""The registry key with the variables of the machine."""
Seconds = Annotated[int, pydantic.Field(ge=1, le=7 * 86400)]
# XML keeps no control characters, and Windows no blanks around it.
CommandLine = Annotated[
    str, pydantic.StringConstraints(pattern=r"^[^\x00-\x20\x7f]([^\x00-\x1f\x7f]*[^\x00-\x20\x7f])?$")
]


def _check_expression(text: str) -> str:
    """Accept what .NET and Python read in the same way."""
    if "(?P" in text:
        raise ValueError("must not have (?P, which .NET does not know")
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"is not a regular expression: {error}") from error
    return text


Expression = Annotated[Text, pydantic.AfterValidator(_check_expression)]
# A slash is a part of a name: Schannel has a key RC4 128/128.
RegistryKey = Annotated[str, pydantic.StringConstraints(pattern=r"^HKLM:(\\[^\\*?]+)+$")]
MemberPath = Annotated[
    str, pydantic.StringConstraints(pattern=r'^[^\\/:*?"<>|]*[^\\/:*?"<>| .](\\[^\\/:*?"<>|]*[^\\/:*?"<>| .])*$')
]
# tar.exe takes a member's name for a pattern or an option: these characters stand for themselves.
_PART: Final = r"[A-Za-z0-9_]([A-Za-z0-9 ._+~=,()@-]*[A-Za-z0-9_+~=,()@-])?"
EXTRACTABLE: Final = rf"^{_PART}(/{_PART})*$"
MemberName = Annotated[str, pydantic.StringConstraints(pattern=EXTRACTABLE)]
Sid = Annotated[str, pydantic.StringConstraints(pattern=r"^S-1-[0-9]+(-[0-9]+)+$")]


class Directory(Resource):
    """A folder, and the folders above it."""

    path: WindowsPath
    open: Text | None = None
    """Why every account of the node may change what is in it. None: an acl closes it, or one of a folder above it."""

    def makes(self) -> tuple[str, ...]:
        return (self.path, *(str(parent) for parent in PureWindowsPath(self.path).parents))


class File(Resource):
    """A file with exactly these bytes, from the bundle, from an artifact or from an archive."""

    path: WindowsPath
    sha256: Sha256
    source: BundledFile | None = None
    artifact: Name | None = None
    member: MemberName | None = None
    """The file of the artifact, which is then an archive."""

    @pydantic.model_validator(mode="after")
    def _one_origin(self) -> Self:
        if (self.source is None) == (self.artifact is None):
            raise ValueError("must have either source or artifact")
        if self.member is not None and self.artifact is None:
            raise ValueError("must have artifact, of which member is a file")
        return self

    def makes(self) -> tuple[str, ...]:
        return (self.path,)

    def needs(self) -> tuple[str, ...]:
        return (str(PureWindowsPath(self.path).parent),)


class Member(Strict):
    """A file of an archive."""

    path: MemberPath
    sha256: Sha256
    size: Annotated[int, pydantic.Field(ge=0)] | None = None
    """In bytes."""


class Archive(Resource):
    """The files of an archive, unpacked into a folder."""

    artifact_form: ClassVar[ArtifactForm] = "archive"
    artifact: Name
    into: WindowsPath
    strip: Annotated[int, pydantic.Field(ge=0, le=8)] = 0
    members: Annotated[list[Member], pydantic.Field(min_length=1)]

    def makes(self) -> tuple[str, ...]:
        return tuple(f"{self.into}\\{member.path}" for member in self.members)

    def needs(self) -> tuple[str, ...]:
        return (self.into,)


class Extract(Resource):
    """One file of an archive, at its own path. The other files of the archive are not put on the machine. A plan has it
    as a file with a member."""

    artifact_form: ClassVar[ArtifactForm] = "archive"
    path: WindowsPath
    sha256: Sha256
    artifact: Name
    member: MemberName

    def planned(self) -> Resource:
        return File(path=self.path, sha256=self.sha256, artifact=self.artifact, member=self.member)

    def makes(self) -> tuple[str, ...]:
        return (self.path,)

    def needs(self) -> tuple[str, ...]:
        return (str(PureWindowsPath(self.path).parent),)


class Package(Resource):
    """An installed MSI package, with its files and services."""

    artifact_form: ClassVar[ArtifactForm] = "package"
    artifact: Name
    product: Text
    version: Text
    arguments: list[Annotated[str, pydantic.StringConstraints(pattern=r"^[A-Z][A-Z0-9_]*=[^\"]*$")]] = []
    files: list[WindowsPath] = []
    services: list[Name] = []

    def makes(self) -> tuple[str, ...]:
        return (*self.files, *sorted({str(parent) for path in self.files for parent in PureWindowsPath(path).parents}))


class Registry(Resource):
    """A value under a registry key."""

    key: RegistryKey
    name: Text
    type: Literal["String", "ExpandString", "DWord", "QWord", "MultiString"]
    data: str | int | list[str]

    @pydantic.model_validator(mode="after")
    def _data_fits_type(self) -> Self:
        wanted = {"String": str, "ExpandString": str, "DWord": int, "QWord": int, "MultiString": list}[self.type]
        if not isinstance(self.data, wanted):
            raise ValueError(f"data of type {self.type} must be {wanted.__name__}, not {type(self.data).__name__}")
        limit = {"DWord": 2**32, "QWord": 2**63}.get(self.type)
        if limit is not None and isinstance(self.data, int) and not 0 <= self.data < limit:
            raise ValueError(f"data of type {self.type} must be between 0 and {limit - 1}")
        return self

    @property
    def label(self) -> str:
        return f"{self.key}\\{self.name}"


class Recovery(Strict):
    """How Windows restarts a service that died."""

    restart_after_s: Seconds
    reset_after_s: Seconds


class Service(Resource):
    """A Windows service. A field that is null is not checked and not changed."""

    name: Name
    display_name: Text | None = None
    command: Text | None = None
    start: Literal["automatic", "delayed", "manual", "disabled"]
    state: Literal["running", "stopped"] | None = None
    depends_on: list[Name] | None = None
    recovery: Recovery | None = None

    @pydantic.field_validator("command")
    @classmethod
    def _command_names_a_program(cls, command: str | None) -> str | None:
        if command is not None and _program(command) is None:
            raise ValueError('must begin with the full path of a program, in "quotes" if the path has a space')
        return command

    def needs(self) -> tuple[str, ...]:
        program = _program(self.command) if self.command else None
        return (program,) if program else ()


def _program(command: str) -> str | None:
    match = re.match(r'^"([A-Z]:\\[^"]+\.exe)"(?: |$)', command) or re.match(r'^([A-Z]:\\[^" ]+\.exe)(?: |$)', command)
    return match.group(1) if match else None


class Feature(Resource):
    """A Windows Server feature. Its installation may need a restart."""

    name: Name

    @property
    def may_restart(self) -> bool:
        return True


class Entry(Strict):
    """The rights of one account."""

    sid: Sid
    rights: Literal["full", "modify", "read", "create"]
    """`create`: to make files and folders in a folder."""


class Acl(Resource):
    """The access rights of a file or folder: exactly these entries, none inherited."""

    path: WindowsPath
    entries: Annotated[list[Entry], pydantic.Field(min_length=1)]

    def needs(self) -> tuple[str, ...]:
        return (self.path,)


class Environment(Resource):
    """A machine-wide environment variable. A plan has it as a registry value."""

    name: Annotated[str, pydantic.StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
    value: Text

    @pydantic.field_validator("name")
    @classmethod
    def _path_has_its_own_kind(cls, name: str) -> str:
        if name.lower() == "path":
            raise ValueError("PATH must be set with the kind 'path'")
        return name

    def planned(self) -> Resource:
        kind: Literal["ExpandString", "String"] = "ExpandString" if "%" in self.value else "String"
        return Registry(key=ENVIRONMENT, name=self.name, type=kind, data=self.value)


class Path(Resource):
    """A folder on the machine's PATH."""

    entry: WindowsPath

    def needs(self) -> tuple[str, ...]:
        return (self.entry,)


class Defender(Resource):
    """A program whose file access Defender does not scan, or a file or folder that it does not scan."""

    process: WindowsPath | None = None
    path: WindowsPath | None = None

    @pydantic.model_validator(mode="after")
    def _one_exclusion(self) -> Self:
        if (self.process is None) == (self.path is None):
            raise ValueError("must have either process or path")
        return self

    @property
    def label(self) -> str:
        return self.process or str(self.path)

    def needs(self) -> tuple[str, ...]:
        return (self.process,) if self.process else ()


class Unless(Strict):
    """Tells by a program's output whether a command has been carried out."""

    arguments: CommandLine
    matches: Annotated[list[Expression], pydantic.Field(min_length=1)]
    """Each must be found in the output."""


class Command(Resource):
    """A program that changes a setting of Windows, unless its own output says that the setting is as planned."""

    name: Name
    program: WindowsPath
    arguments: CommandLine
    unless: Unless
    good_exit_codes: Annotated[list[Annotated[int, pydantic.Field(ge=0, lt=2**31)]], pydantic.Field(min_length=1)] = [0]

    @property
    def may_restart(self) -> bool:
        return RESTART_NEEDED in self.good_exit_codes

    def needs(self) -> tuple[str, ...]:
        return (self.program,)


class Task(Resource):
    """A scheduled task that runs a program as SYSTEM again and again."""

    name: Name
    program: WindowsPath
    arguments: CommandLine
    every_s: Annotated[int, pydantic.Field(ge=60, le=86400)] | None = None
    """Windows accepts no shorter time than a minute. None: at each start of Windows."""
    limit_s: Seconds

    def needs(self) -> tuple[str, ...]:
        script = re.search(r'(?:^| )-File (?:"([^"]+)"|([^" ]+))', self.arguments)
        return (self.program, script[1] or script[2]) if script else (self.program,)


class Script(Resource):
    """A PowerShell script that runs once. A mark in the engine's folder says that it ran with these bytes."""

    outlives_sealing: ClassVar[bool] = False
    name: Annotated[str, pydantic.StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*\.[Pp][Ss]1$")]
    source: BundledFile
    sha256: Sha256
    arguments: list[Annotated[str, pydantic.StringConstraints(pattern=r"^[ -~]+$")]] = []
    good_exit_codes: Annotated[list[int], pydantic.Field(min_length=1)] = [0]
    timeout_s: Seconds = 600

    @property
    def may_restart(self) -> bool:
        return RESTART_NEEDED in self.good_exit_codes

    def needs(self) -> tuple[str, ...]:
        return (POWERSHELL,)


class Image(Resource):
    """A container image in the store of containerd or Docker, under the name by which pods look for it."""

    artifact_form: ClassVar[ArtifactForm] = "image"
    name: Annotated[str, pydantic.StringConstraints(pattern=r"^[a-z0-9.-]+(:[0-9]+)?/[^\s\"]+$", max_length=600)]
    """The whole name, with registry and with tag or digest: so containerd looks for the image of a pod."""
    reference: Annotated[
        str | None, pydantic.StringConstraints(pattern=r"^[a-z0-9.-]+(:[0-9]+)?/[^\s@\"]+@sha256:[0-9a-f]{64}$")
    ] = None
    """From where it is pulled: registry and repository with a digest. None if it comes from a tarball."""
    artifact: Name | None = None
    """The tarball."""
    digest: ImageDigest
    """Of what the name means to containerd; with Docker, the id of the image."""
    layers: ImageDigest
    """The name that containerd gives to the unpacked layers of this Windows build: it depends on their content."""
    size: Annotated[int, pydantic.Field(ge=0, lt=2**40)]
    """Of its compressed layers, in bytes."""
    pinned: bool = False
    """Whether kubelet must never delete it."""
    ctr: WindowsPath | None = None
    crictl: WindowsPath | None = None
    docker: WindowsPath | None = None

    @pydantic.model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.reference is None) == (self.artifact is None):
            raise ValueError("must have either reference or artifact")
        if (self.docker is None) == (self.ctr is None) or (self.ctr is None) != (self.crictl is None):
            raise ValueError("must have either docker, or ctr and crictl")
        if self.docker and self.pinned:
            raise ValueError("must not be pinned with docker, which pins no image")
        return self

    def needs(self) -> tuple[str, ...]:
        return tuple(path for path in (self.ctr, self.crictl, self.docker) if path)


class Volume(Resource):
    """A drive that uses all the space of its disk."""

    drive: Literal["C"]


KINDS: dict[str, type[Resource]] = {
    kind.__name__.lower(): kind
    for kind in (
        Acl, Archive, Certificate, Command, Defender, Directory, Environment, Extract, Feature, File, Firewall, Image,
        Package, Path, Registry, Script, Service, Task, Update, Volume,
    )
}  # fmt: skip
PLANNED_AS: Final = {"environment": "registry", "extract": "file"}
"""The kinds without a script, and the kind that a plan has instead: what `planned` returns."""
PLANNED_KINDS: Final = frozenset(KINDS.keys() - PLANNED_AS.keys())
"""The kinds that a plan has: each has a script."""
