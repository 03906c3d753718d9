"""What a config says about AWS."""

from typing import Annotated, Final, Literal, Self

import pydantic

from imagegen.providers.settings import Cidr, Days, Price, TagValue, TargetSettings
from imagegen.resources.model import Strict

TITLE: Final = "AWS"
REGION: Final = r"^[a-z]{2,4}(-[a-z]+)+-[0-9]$"
OWNER: Final = r"^([0-9]{12}|self|amazon)$"
Region = Annotated[str, pydantic.StringConstraints(pattern=REGION)]
# CAPA and EKS know nodes by tags as kubernetes.io/cluster/prod.
AwsTagName = Annotated[str, pydantic.StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._:/=+@-]{0,126}$")]
InstanceType = Annotated[str, pydantic.StringConstraints(pattern=r"^[a-z0-9-]+\.[a-z0-9-]+$")]
AccountId = Annotated[str, pydantic.StringConstraints(pattern=r"^[0-9]{12}$")]
# https://docs.aws.amazon.com/service-authorization/latest/reference/list_awsidentityandaccessmanagementiam.html
RoleArn = Annotated[
    str,
    pydantic.StringConstraints(
        pattern=r"^arn:aws[a-z-]*:iam::[0-9]{12}:role/([!-.0-~]{1,510}/)*[A-Za-z0-9+=,.@_-]{1,64}$", max_length=2048
    ),
]
# https://docs.aws.amazon.com/service-authorization/latest/reference/list_awsorganizations.html
OrganizationArn = Annotated[
    str,
    pydantic.StringConstraints(
        pattern=r"^arn:aws[a-z-]*:organizations::[0-9]{12}:(organization/o-[a-z0-9]{10,32}"
        r"|ou/o-[a-z0-9]{10,32}/ou-[a-z0-9]{4,32}-[a-z0-9]{8,32})$",
        max_length=2048,
    ),
]
_KEY_ID = r"(mrk-)?[0-9a-f-]{32,36}"
_KEY_ALIAS = r"alias/[A-Za-z0-9/_-]+"
# An id, an alias or an ARN of a key.
KmsKey = Annotated[
    str,
    pydantic.StringConstraints(
        pattern=rf"^({_KEY_ID}|{_KEY_ALIAS}|arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{{12}}:(key/{_KEY_ID}|{_KEY_ALIAS}))$",
        max_length=2048,
    ),
]


class Spot(Strict):
    """Build on spare capacity, which may be taken away."""

    max_price: Price | None = pydantic.Field(
        default=None, description="US dollars an hour; the on-demand price when left out.", examples=["0.25"]
    )


class Network(Strict):
    """Where the builder stands, and who reaches its WinRM port during the build."""

    vpc_id: str | None = pydantic.Field(
        default=None,
        description="Its VPC; the region's default one when left out.",
        pattern=r"^vpc-[0-9a-f]{8,17}$",
        examples=["vpc-0123456789abcdef0"],
    )
    subnet_id: str | None = pydantic.Field(
        default=None,
        description="Its subnet; one of the VPC's when left out.",
        pattern=r"^subnet-[0-9a-f]{8,17}$",
        examples=["subnet-0123456789abcdef0"],
    )
    security_group_ids: list[Annotated[str, pydantic.StringConstraints(pattern=r"^sg-[0-9a-f]{8,17}$")]] = (
        pydantic.Field(
            default=[],
            description="Security groups of your own, instead of a temporary one that admits `allowed_cidrs`.",
            examples=[["sg-0123456789abcdef0"]],
        )
    )
    allowed_cidrs: list[Cidr] = pydantic.Field(
        default=[],
        description="Networks from which the temporary security group admits WinRM.",
        examples=[["198.51.100.0/24"]],
    )
    public_address: bool | None = pydantic.Field(
        default=None,
        description="Give the builder a public address; what the subnet says when left out.",
        examples=[False],
    )
    reach_by: Literal["public", "private"] = pydantic.Field(
        default="public",
        description="The address by which Packer reaches the builder; its private one where it has no public one.",
        examples=["private"],
    )


class BaseImage(Strict):
    """A base image instead of Amazon's newest of the release; it must be that release."""

    name: str = pydantic.Field(
        description="Its name, or a pattern with * of which the newest is taken.",
        pattern=r"^[A-Za-z0-9()\[\]./'@_ *?-]{3,128}$",
        examples=["hardened-windows-2022-*"],
    )
    owner: str = pydantic.Field(
        default="self",
        description="Whose it is: an account, `self`, or `amazon`.",
        pattern=OWNER,
        examples=["111122223333"],
    )


class Disk(Strict):
    """The image's disk."""

    size_gb: int = pydantic.Field(default=50, description="Its size in GB.", ge=30, le=2048, examples=[100])
    type: Literal["gp3", "gp2"] = pydantic.Field(default="gp3", description="Its kind.", examples=["gp2"])
    iops: int | None = pydantic.Field(
        default=None, description="Of a gp3 disk; AWS' own when left out.", ge=3000, le=16000, examples=[4000]
    )
    throughput: int | None = pydantic.Field(
        default=None,
        description="Speed of a gp3 disk in MiB/s; AWS' own when left out.",
        ge=125,
        le=1000,
        examples=[250],
    )


class Encryption(Strict):
    """The image's snapshots are encrypted."""

    kms_key: KmsKey | None = pydantic.Field(
        default=None,
        description="The build region's key; the account's default one when left out.",
        examples=["alias/images"],
    )
    region_kms_keys: dict[Region, KmsKey] = pydantic.Field(
        default={},
        description="The keys of the regions that get a copy; each one's default key when left out.",
        examples=[{"us-west-2": "alias/images"}],
    )


class AssumeRole(Strict):
    """A role to take on, after the usual chain of credentials."""

    role_arn: RoleArn = pydantic.Field(description="The role.", examples=["arn:aws:iam::111122223333:role/images"])
    session_name: str = pydantic.Field(
        default="imagegen",
        description="The session's name in CloudTrail.",
        pattern=r"^[A-Za-z0-9+=,.@_-]{2,64}$",
        examples=["nightly"],
    )


class Auth(Strict):
    """Whose account it is. Credentials come from the usual chain; a config never holds one."""

    profile: str | None = pydantic.Field(
        default=None,
        description="A profile of the AWS configuration files.",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$",
        examples=["images"],
    )
    assume_role: AssumeRole | None = pydantic.Field(default=None, description="A role to take on; none when left out.")


class Sharing(Strict):
    """Who beyond the account may use the image."""

    accounts: list[AccountId] = pydantic.Field(default=[], description="Accounts.", examples=[["111122223333"]])
    organizations: list[OrganizationArn] = pydantic.Field(
        default=[],
        description="Organizations or organizational units.",
        examples=[["arn:aws:organizations::111122223333:organization/o-example123"]],
    )
    public: bool = pydantic.Field(default=False, description="Everybody.", examples=[True])
    licence_acknowledged: bool = pydantic.Field(
        default=False,
        description="You have read what Windows' licence asks of whoever shares an image, and answer for it.",
        examples=[True],
    )

    @pydantic.model_validator(mode="after")
    def _somebody(self) -> Self:
        if not (self.accounts or self.organizations or self.public):
            raise ValueError("name accounts or organizations, or say public: true")
        return self


class FastLaunch(Strict):
    """Instances of the image start faster, from snapshots that are made before."""

    snapshots: int = pydantic.Field(default=5, description="How many are kept ready.", ge=1, le=1000, examples=[10])
    parallel_launches: int = pydantic.Field(
        default=6, description="How many are made at a time.", ge=6, le=100, examples=[8]
    )


class Publish(Strict):
    """Where finished images go, and what becomes of them."""

    regions: list[Region] = pydantic.Field(
        default=[], description="Regions that get a copy, beside the build region.", examples=[["us-west-2"]]
    )
    sharing: Sharing | None = pydantic.Field(
        default=None, description="Who beyond the account may use it; nobody when left out."
    )
    ssm_parameter: str | None = pydantic.Field(
        default=None,
        description="The SSM parameter that points to the newest image.",
        pattern=r"^/[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*$",
        max_length=1011,
        examples=["/images/windows-2022/latest/image_id"],
    )
    deprecate_after_days: Days | None = pydantic.Field(
        default=None, description="When AWS begins to call it deprecated.", examples=[180]
    )
    deregistration_protection: bool = pydantic.Field(
        default=False, description="Protect the AMI from deregistration.", examples=[True]
    )
    fast_launch: FastLaunch | None = pydantic.Field(default=None, description="Faster starts; none when left out.")
    keep_newest: int | None = pydantic.Field(
        default=None,
        description="Delete older images of this name beyond so many; none is deleted when left out.",
        ge=1,
        le=1000,
        examples=[10],
    )


class Settings(TargetSettings):
    """Build and publishing on AWS."""

    provider: Literal["aws"] = pydantic.Field(
        default="aws",
        description="The cloud that the target is on; by default the target's own name.",
        examples=["aws"],
    )
    region: Region = pydantic.Field(description="The region in which the image is built.", examples=["us-east-1"])
    instance_types: list[InstanceType] = pydantic.Field(
        default=["m6i.large"],
        description="The builder's instance type; where it cannot be had, the next one is tried.",
        min_length=1,
        max_length=10,
        examples=[["m6i.large", "m5.large"]],
    )
    spot: Spot | None = pydantic.Field(default=None, description="Build on spare capacity; not when left out.")
    network: Network = pydantic.Field(description="The builder's network.", default_factory=Network.model_construct)
    iam_instance_profile: str | None = pydantic.Field(
        default=None,
        description="The builder's instance profile; none when left out.",
        pattern=r"^[A-Za-z0-9+=,.@_-]{1,128}$",
        examples=["image-builder"],
    )
    base_image: BaseImage | None = pydantic.Field(
        default=None, description="A base image of your own; Amazon's newest when left out."
    )
    disk: Disk = pydantic.Field(description="The image's disk.", default_factory=Disk.model_construct)
    encryption: Encryption | None = pydantic.Field(
        default=None, description="Encrypted snapshots; as the account says when left out."
    )
    require_imds_tokens: bool = pydantic.Field(
        default=False,
        description="Nodes answer no metadata request without a session token (imds_support v2.0).",
        examples=[True],
    )
    auth: Auth = pydantic.Field(description="Whose account it is.", default_factory=Auth.model_construct)
    name_prefix: str = pydantic.Field(
        default="capa-ami",
        description="What AMI names begin with: `<prefix>-windows-<release>-v<kubernetes>-<time>-<identity>-<random>`.",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9()./_-]{0,127}$",
        examples=["platform-ami"],
    )
    tags: dict[AwsTagName, TagValue] = pydantic.Field(
        default={},
        description="Tags of image, snapshots and builder, beside imagegen's own.",
        examples=[{"team": "platform"}],
    )
    publish: Publish = pydantic.Field(description="Where finished images go.", default_factory=Publish.model_construct)

    def build_json(self) -> dict[str, object]:
        """Not the base image, which is locked, nor the other regions' keys, which are for copies."""
        return self.model_dump(
            mode="json", exclude={"publish": True, "base_image": True, "encryption": {"region_kms_keys": True}}
        )

    def publish_json(self) -> dict[str, object]:
        """The regions, and with which keys their copies are encrypted, if they are."""
        encryption = {"kms_keys": self.encryption.region_kms_keys} if self.encryption else None
        return {"regions": self.publish.regions, "encryption": encryption}
