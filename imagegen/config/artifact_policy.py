"""The part of the config about downloads: overrides, hosts, credentials and signatures. Part of ImageConfig."""

import dataclasses
from typing import TYPE_CHECKING, Annotated, Final, Literal, Self

import pydantic

from imagegen.authenticode.signer import SignerRule, parse_signer
from imagegen.base.errors import InvalidValue
from imagegen.base.hosts import HostPolicy, plain_host
from imagegen.config.problems import quoted, type_of
from imagegen.config.value_types import HostAndPort, HttpsUrl, Line, Registry, RelativePath, UrlPath
from imagegen.providers.registry import PROVIDERS
from imagegen.providers.settings import EnvName, one_variable
from imagegen.steps.resource import Fault, PastedSha256, Strict

if TYPE_CHECKING:
    Cloud = str
else:
    Cloud = Literal[*PROVIDERS]


# As long as the longest name in a lock. What it may hold is said by the check of the whole signer: names have letters
# of every alphabet.
SignerText = Annotated[str, pydantic.StringConstraints(max_length=1024)]


class Signer(Strict):
    """Who may have signed a program. If several keys are given, all of them must match."""

    subject: SignerText | None = pydantic.Field(
        default=None,
        description="Parts of the subject of the signer's certificate. All of them must match.",
        examples=["CN=Example Corporation, O=Example Corporation"],
    )
    issuer: SignerText | None = pydantic.Field(
        default=None,
        description="Parts of the subject of a certificate authority above the signer. All of them must match.",
        examples=["CN=Example Code Signing CA"],
    )
    thumbprint: Line | None = pydantic.Field(
        default=None,
        description="The thumbprint of the signer's certificate: SHA-1, as Windows shows it, or SHA-256.",
        examples=["0123456789abcdef0123456789abcdef01234567"],
    )

    def given(self) -> dict[str, str]:
        """The keys that were given."""
        return self.model_dump(exclude_none=True)


def _check_form(value: object) -> object:
    if isinstance(value, (str, dict, Signer)):
        return value
    meant = value[0] if isinstance(value, list) and len(value) == 1 else None
    hint = f"write {quoted(meant)}" if isinstance(meant, str) else 'write "CN=…, O=…", or {subject: "CN=…"}'
    raise InvalidValue(f"must be a string or a map, not {type_of(value)}", hint)


@dataclasses.dataclass(frozen=True)
class AllowedSigner:
    """A signer as the config has it, and the rule that it stands for."""

    given: str | Signer
    rule: SignerRule


def _read_signer(signer: str | Signer) -> AllowedSigner:
    given = signer if isinstance(signer, str) else signer.given()
    texts = [given] if isinstance(given, str) else given.values()
    if unseen := next((letter for text in texts for letter in text if not letter.isprintable()), ""):
        raise InvalidValue(
            f"the signer has the character U+{ord(unseen):04X}, which is invisible", "remove it, or use a thumbprint"
        )
    try:
        return AllowedSigner(signer, parse_signer(given))
    except ValueError as error:
        raise InvalidValue(
            str(error), "`imagegen artifacts inspect FILE` shows who signed a file, in the form to write here"
        ) from None


def _as_given(signer: AllowedSigner, info: pydantic.SerializationInfo) -> object:
    given = signer.given
    return given if isinstance(given, str) else given.model_dump(exclude_none=info.exclude_none)


# Discriminated unions, so that error messages are about the form that was used.
if TYPE_CHECKING:
    AskedSigner = AllowedSigner
else:
    AskedSigner = Annotated[
        Annotated[
            Annotated[SignerText, pydantic.Tag("(text)")] | Annotated[Signer, pydantic.Tag("(signer)")],
            pydantic.Discriminator(lambda given: "(text)" if isinstance(given, str) else "(signer)"),
        ],
        pydantic.BeforeValidator(_check_form),
        pydantic.AfterValidator(_read_signer),
        pydantic.PlainSerializer(_as_given),
    ]


class PinnedUrl(Strict):
    """Another source of an artifact, with its sha256 and signer."""

    url: HttpsUrl = pydantic.Field(
        description="The https URL of the artifact; a base URL is a folder, a template with `{name}`, or an archive.",
        examples=["https://artifacts.example.com/signed/containerd.tar.gz"],
    )
    sha256: PastedSha256 | None = pydantic.Field(
        default=None, description="The sha256 that the file must have, in hexadecimal.", examples=["0" * 64]
    )
    signer: AskedSigner | None = pydantic.Field(
        default=None,
        description="The Authenticode signer that must have signed every program in the artifact, in the forms of "
        "artifacts.signatures.signers.",
        examples=["CN=Example Corporation"],
    )

    @property
    def rule(self) -> SignerRule | None:
        """Who must have signed it, as it is judged."""
        return self.signer.rule if self.signer else None


AskedOverride = Annotated[
    Annotated[HttpsUrl, pydantic.Tag("(url)")] | Annotated[PinnedUrl, pydantic.Tag("(pinned)")],
    pydantic.Discriminator(lambda given: "(url)" if isinstance(given, str) else "(pinned)"),
]


def is_url(crl: object) -> bool:
    """Whether a list of revoked certificates is a URL, and not a file. A file cannot have such a name."""
    return "://" in str(crl)


AskedCrl = Annotated[
    Annotated[HttpsUrl, pydantic.Tag("(url)")] | Annotated[RelativePath, pydantic.Tag("(file)")],
    pydantic.Discriminator(lambda given: "(url)" if is_url(given) else "(file)"),
]


def _check_is_list(value: object) -> object:
    if isinstance(value, str):
        raise InvalidValue("must be a list, not a string", f"write [{quoted(value)}]")
    return value


def _check_own_scripts(value: object) -> object:
    if isinstance(value, bool):
        raise InvalidValue(
            "must be a section with the folder of the signed scripts, not true or false",
            "write {from: DIR}; `imagegen sign-list` lists the scripts to sign",
        )
    if isinstance(value, str):
        raise InvalidValue("must be a map, not a string", f"write {{from: {quoted(value)}}}")
    if isinstance(value, dict) and set(value) != {"from"}:
        unknown = next((f"unknown key {quoted(key)}" for key in value if key != "from"), "")
        raise InvalidValue(
            unknown or 'the key "from" is required', "write {from: DIR}, the folder with your signed scripts"
        )
    return value


class Signatures(Strict):
    """Authenticode signatures, which are checked before the build and again on the machine."""

    signers: Annotated[list[AskedSigner], pydantic.BeforeValidator(_check_is_list)] = pydantic.Field(
        default=[],
        description="The allowed signers: parts of the subject, a thumbprint, `microsoft` or `kubernetes`, or a "
        "section. Empty: every signer with a trusted root.",
        examples=[["CN=Example Corporation"]],
    )
    roots: RelativePath | None = pydantic.Field(
        default=None,
        description="A PEM file in the folder of the config: the only roots to which a signature may lead. "
        "Default: the roots of Microsoft's programme that may sign code.",
        examples=["roots.pem"],
    )
    crls: list[AskedCrl] = pydantic.Field(
        default=[],
        description="Lists of revoked certificates (CRL): https URLs, or files in the folder of the config. "
        "Empty: revocation is not checked.",
        examples=[["https://artifacts.example.com/signing.crl"]],
    )
    least_rsa_bits: Annotated[int, pydantic.Field(ge=1024, le=16384)] | None = pydantic.Field(
        default=None,
        description="The least size of a signer's RSA key, in bits. Default: 1024, as for Windows.",
        examples=[3072],
    )
    sha1_certificates: bool = pydantic.Field(
        default=True,
        description="Accept signers whose certificates are signed with SHA-1, as old public ones are.",
        examples=[False],
    )
    own_scripts: Annotated[
        Annotated[dict[Literal["from"], RelativePath], pydantic.Field(min_length=1)] | None,
        pydantic.BeforeValidator(_check_own_scripts),
    ] = pydantic.Field(
        default=None,
        description="The folder with your signed copies of imagegen's scripts, in the folder of the config: "
        "`{from: DIR}`. Then PowerShell runs under the execution policy AllSigned, during the build and on the nodes.",
        examples=[{"from": "signed-scripts"}],
    )


_WAYS: Final = "token_env, username_env with password_env, query_env or sign_in"


class ArtifactCredentials(Strict):
    """The credentials for the downloads from one host, in environment variables of imagegen: a config has only the
    names of these."""

    host: HostAndPort = pydantic.Field(
        description="The host, with its port if it is not 443.", examples=["artifacts.example.com"]
    )
    path: UrlPath | None = pydantic.Field(
        default=None,
        description="The file on the host, or the folder with all files below it, for which these are. Default: all "
        "files of the host for which no other entry is. So each file can have a presigned address of its own.",
        examples=["/signed/kubelet.exe"],
    )
    token_env: EnvName | None = pydantic.Field(
        default=None, description="The environment variable with a bearer token.", examples=["ARTIFACTS_TOKEN"]
    )
    username_env: EnvName | None = pydantic.Field(
        default=None,
        description="The environment variable with the user name of basic authentication.",
        examples=["ARTIFACTS_USERNAME"],
    )
    password_env: EnvName | None = pydantic.Field(
        default=None,
        description="The environment variable with the password of basic authentication.",
        examples=["ARTIFACTS_PASSWORD"],
    )
    query_env: EnvName | None = pydantic.Field(
        default=None,
        description="The environment variable with a query that is added to each URL, such as a SAS token, or with "
        "`path` the query of a presigned address.",
        examples=["ARTIFACTS_SAS"],
    )
    sign_in: Cloud | None = pydantic.Field(
        default=None,
        description="Sign in to the storage of this cloud as its own tools do. The machine gets addresses that are "
        "valid for the time of the build.",
        examples=[next(iter(PROVIDERS))],
    )

    @pydantic.model_validator(mode="after")
    def _one_way(self) -> Self:
        pair = {"username_env": self.username_env, "password_env": self.password_env}
        ways = [name for name in ("token_env", "query_env", "sign_in") if getattr(self, name)]
        ways += ["username_env with password_env"] if any(pair.values()) else []
        count = f"{len(ways)} ways to sign in: {', '.join(ways)}" if ways else "no way to sign in"
        missing = next((name for name, value in pair.items() if not value), None)
        return self.without(
            Fault(len(ways) != 1, (), f"{self.host} has {count}", f"write one of {_WAYS}"),
            Fault(
                len(ways) == 1 and any(pair.values()) and missing,
                (),
                f"{self.host} has no {missing}",
                f"add {missing}: basic authentication needs both",
            ),
            one_variable(self.username_env, self.password_env),
        )


class ArtifactPolicy(Strict):
    """Rules for all downloads."""

    mirror: HttpsUrl | None = pydantic.Field(
        default=None,
        description="A mirror of the public URLs: `https://dl.k8s.io/x` becomes `<mirror>/dl.k8s.io/x`. Container "
        "images come from it too, as `imagegen artifacts mirror` writes them.",
        examples=["https://artifacts.example.com/mirror"],
    )
    pull_from: list[Registry] = pydantic.Field(
        default=[],
        description="The registries in your network: their container images are pulled, and do not come from `mirror`.",
        examples=[["registry.example.com"]],
    )
    allowed_hosts: list[HostAndPort] = pydantic.Field(
        default=[],
        description="The only hosts from which imagegen downloads, after a redirect too. Empty: all hosts.",
        examples=[["artifacts.example.com"]],
    )
    denied_hosts: list[HostAndPort] = pydantic.Field(
        default=[],
        description="Hosts from which imagegen never downloads, not even after a redirect. A host without a port is "
        "denied on every port.",
        examples=[["mirror.example.com"]],
    )
    quarantine_days: int = pydantic.Field(
        default=0,
        ge=0,
        le=365,
        description="Reject artifacts that were published less than this number of days ago, or nobody knows when. An "
        "artifact with a sha256 in the config is accepted. 0: accept all.",
        examples=[7],
    )
    credentials: list[ArtifactCredentials] = pydantic.Field(
        default=[], description="The hosts whose downloads need credentials."
    )
    ca: Annotated[list[RelativePath], pydantic.BeforeValidator(_check_is_list)] = pydantic.Field(
        default=[],
        description="PEM or DER files in the folder of the config with the root certificates of your own authorities: "
        "imagegen trusts them for its downloads, beside the public ones. The machine trusts them if it downloads from "
        "a host that needs them.",
        examples=[["roots/example-ca.pem"]],
    )
    require_sha256: bool = pydantic.Field(
        default=False,
        description="Reject overrides, programs and credential providers without a sha256.",
        examples=[True],
    )
    signatures: Signatures | None = pydantic.Field(
        default=None, description="Reject programs without a valid signature. Default: signatures are not checked."
    )

    @pydantic.model_validator(mode="after")
    def _hosts_are_consistent(self) -> Self:
        policy = HostPolicy.of((), self.denied_hosts)
        places = [(plain_host(one.host), one.path) for one in self.credentials]
        return self.without(
            *(
                Fault(
                    policy.is_denied(host),
                    ("allowed_hosts", at),
                    f"{host} is in artifacts.denied_hosts too, so nothing is downloaded from it",
                    "remove it from one of the two lists",
                )
                for at, host in enumerate(self.allowed_hosts)
            ),
            *(
                Fault(
                    places[at] in places[:at],
                    ("credentials", at, "host"),
                    f"{one.host}{one.path or ''} is listed above",
                    "leave one of them out, or give each the path of its files",
                )
                for at, one in enumerate(self.credentials)
            ),
        )
