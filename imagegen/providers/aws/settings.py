"""What a config says about AWS."""

from __future__ import annotations

from typing import Annotated, Literal

import pydantic

from imagegen.providers.words import Cidr, Days, Price, TagName, TagValue
from imagegen.resources.model import Strict

Region = Annotated[str, pydantic.StringConstraints(pattern=r"^[a-z]{2}(-[a-z]+)+-[0-9]$")]
InstanceType = Annotated[str, pydantic.StringConstraints(pattern=r"^[a-z0-9-]+\.[a-z0-9-]+$")]
AccountId = Annotated[str, pydantic.StringConstraints(pattern=r"^[0-9]{12}$")]
Arn = Annotated[str, pydantic.StringConstraints(pattern=r"^arn:aws[a-z-]*:[!-~]+$", max_length=2048)]
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

    max_price: Annotated[
        Price | None,
        pydantic.Field(description="US dollars an hour; the on-demand price when left out.", examples=["0.25"]),
    ] = None


class Network(Strict):
    """Where the builder stands, and who reaches its WinRM port during the build."""

    vpc_id: Annotated[
        str | None,
        pydantic.Field(
            description="Its VPC; the region's default one when left out.",
            pattern=r"^vpc-[0-9a-f]{8,17}$",
            examples=["vpc-0123456789abcdef0"],
        ),
    ] = None
    subnet_id: Annotated[
        str | None,
        pydantic.Field(
            description="Its subnet; one of the VPC's when left out.",
            pattern=r"^subnet-[0-9a-f]{8,17}$",
            examples=["subnet-0123456789abcdef0"],
        ),
    ] = None
    security_group_ids: Annotated[
        list[Annotated[str, pydantic.StringConstraints(pattern=r"^sg-[0-9a-f]{8,17}$")]],
        pydantic.Field(
            description="Security groups of your own, instead of a temporary one that admits `allowed_cidrs`.",
            examples=[["sg-0123456789abcdef0"]],
        ),
    ] = []
    allowed_cidrs: Annotated[
        list[Cidr],
        pydantic.Field(
            description="Networks from which the temporary security group admits WinRM.", examples=[["198.51.100.0/24"]]
        ),
    ] = []
    public_address: Annotated[
        bool | None,
        pydantic.Field(
            description="Give the builder a public address; what the subnet says when left out.", examples=[False]
        ),
    ] = None
    reach_by: Annotated[
        Literal["public", "private"],
        pydantic.Field(
            description="The address by which Packer reaches the builder; its private one where it has no public one.",
            examples=["private"],
        ),
    ] = "public"


class BaseImage(Strict):
    """A base image instead of Amazon's newest of the release; it must be that release."""

    name: Annotated[
        str,
        pydantic.Field(
            description="Its name, or a pattern with * of which the newest is taken.",
            pattern=r"^[A-Za-z0-9()\[\]./'@_ *?-]{3,128}$",
            examples=["hardened-windows-2022-*"],
        ),
    ]
    owner: Annotated[
        str,
        pydantic.Field(
            description="Whose it is: an account, `self`, or `amazon`.",
            pattern=r"^([0-9]{12}|self|amazon)$",
            examples=["111122223333"],
        ),
    ] = "self"


class Disk(Strict):
    """The image's disk."""

    size_gb: Annotated[int, pydantic.Field(description="Its size.", ge=30, le=2048, examples=[100])] = 50
    type: Annotated[Literal["gp3", "gp2"], pydantic.Field(description="Its kind.", examples=["gp2"])] = "gp3"
    iops: Annotated[
        int | None,
        pydantic.Field(description="Of a gp3 disk; AWS' own when left out.", ge=3000, le=16000, examples=[4000]),
    ] = None
    throughput: Annotated[
        int | None,
        pydantic.Field(description="MiB/s of a gp3 disk; AWS' own when left out.", ge=125, le=1000, examples=[250]),
    ] = None


class Encryption(Strict):
    """The image's snapshots are encrypted."""

    kms_key: Annotated[
        KmsKey | None,
        pydantic.Field(
            description="The build region's key; the account's default one when left out.", examples=["alias/images"]
        ),
    ] = None
    region_kms_keys: Annotated[
        dict[Region, KmsKey],
        pydantic.Field(
            description="The keys of the regions that get a copy; each one's default key when left out.",
            examples=[{"us-west-2": "alias/images"}],
        ),
    ] = {}


class AssumeRole(Strict):
    """A role to take on, after the usual chain of credentials."""

    role_arn: Annotated[
        Arn, pydantic.Field(description="The role.", examples=["arn:aws:iam::111122223333:role/images"])
    ]
    session_name: Annotated[
        str,
        pydantic.Field(
            description="The session's name in CloudTrail.", pattern=r"^[A-Za-z0-9+=,.@_-]{2,64}$", examples=["nightly"]
        ),
    ] = "imagegen"


class Auth(Strict):
    """Whose account it is. Credentials come from the usual chain; a config never holds one."""

    profile: Annotated[
        str | None,
        pydantic.Field(
            description="A profile of the AWS configuration files.",
            pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$",
            examples=["images"],
        ),
    ] = None
    assume_role: Annotated[AssumeRole | None, pydantic.Field(description="A role to take on; none when left out.")] = (
        None
    )


class Sharing(Strict):
    """Who beyond the account may use the image."""

    accounts: Annotated[list[AccountId], pydantic.Field(description="Accounts.", examples=[["111122223333"]])] = []
    organizations: Annotated[
        list[Arn],
        pydantic.Field(
            description="Organizations or organizational units.",
            examples=[["arn:aws:organizations::111122223333:organization/o-example123"]],
        ),
    ] = []
    public: Annotated[bool, pydantic.Field(description="Everybody.", examples=[True])] = False
    licence_acknowledged: Annotated[
        bool,
        pydantic.Field(
            description="You have read what Windows' licence asks of whoever shares an image, and answer for it.",
            examples=[True],
        ),
    ] = False

    @pydantic.model_validator(mode="after")
    def _somebody(self) -> Sharing:
        if not (self.accounts or self.organizations or self.public):
            raise ValueError("name accounts or organizations, or say public: true")
        return self


class FastLaunch(Strict):
    """Instances of the image start faster, from snapshots that are made before."""

    snapshots: Annotated[int, pydantic.Field(description="How many are kept ready.", ge=1, le=1000, examples=[10])] = 5
    parallel_launches: Annotated[
        int, pydantic.Field(description="How many are made at a time.", ge=6, le=100, examples=[8])
    ] = 6


class Publish(Strict):
    """Where finished images go, and what becomes of them."""

    regions: Annotated[
        list[Region],
        pydantic.Field(description="Regions that get a copy, beside the build region.", examples=[["us-west-2"]]),
    ] = []
    sharing: Annotated[
        Sharing | None, pydantic.Field(description="Who beyond the account may use it; nobody when left out.")
    ] = None
    ssm_parameter: Annotated[
        str | None,
        pydantic.Field(
            description="The SSM parameter that points to the newest image.",
            pattern=r"^/[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*$",
            max_length=1011,
            examples=["/images/windows-2022/latest/image_id"],
        ),
    ] = None
    deprecate_after_days: Annotated[
        Days | None, pydantic.Field(description="When AWS begins to call it deprecated.", examples=[180])
    ] = None
    deregistration_protection: Annotated[
        bool, pydantic.Field(description="Nobody deletes it by mistake.", examples=[True])
    ] = False
    fast_launch: Annotated[FastLaunch | None, pydantic.Field(description="Faster starts; none when left out.")] = None
    keep_newest: Annotated[
        int | None,
        pydantic.Field(
            description="Delete older images of this name beyond so many; none is deleted when left out.",
            ge=1,
            le=1000,
            examples=[10],
        ),
    ] = None


class Settings(Strict):
    """Build and publishing on AWS."""

    region: Annotated[
        Region, pydantic.Field(description="The region in which the image is built.", examples=["us-east-1"])
    ]
    instance_types: Annotated[
        list[InstanceType],
        pydantic.Field(
            description="The builder's instance type; where it cannot be had, the next one is tried.",
            min_length=1,
            max_length=10,
            examples=[["m6i.large", "m5.large"]],
        ),
    ] = ["m6i.large"]
    spot: Annotated[Spot | None, pydantic.Field(description="Build on spare capacity; not when left out.")] = None
    network: Annotated[Network, pydantic.Field(description="The builder's network.", default_factory=Network)]
    iam_instance_profile: Annotated[
        str | None,
        pydantic.Field(
            description="The builder's instance profile; none when left out.",
            pattern=r"^[A-Za-z0-9+=,.@_-]{1,128}$",
            examples=["image-builder"],
        ),
    ] = None
    base_image: Annotated[
        BaseImage | None, pydantic.Field(description="A base image of your own; Amazon's newest when left out.")
    ] = None
    disk: Annotated[Disk, pydantic.Field(description="The image's disk.", default_factory=Disk)]
    encryption: Annotated[
        Encryption | None, pydantic.Field(description="Encrypted snapshots; as the account says when left out.")
    ] = None
    require_imds_tokens: Annotated[
        bool,
        pydantic.Field(
            description="Nodes answer no metadata request without a session token (imds_support v2.0).",
            examples=[True],
        ),
    ] = False
    auth: Annotated[Auth, pydantic.Field(description="Whose account it is.", default_factory=Auth)]
    name_prefix: Annotated[
        str,
        pydantic.Field(
            description="What AMI names begin with: `<prefix>-windows-<release>-v<kubernetes>-<time>`.",
            pattern=r"^[A-Za-z0-9][A-Za-z0-9()./_-]{0,127}$",
            examples=["platform-ami"],
        ),
    ] = "capa-ami"
    tags: Annotated[
        dict[TagName, TagValue],
        pydantic.Field(
            description="Tags of image, snapshots and builder, beside imagegen's own.", examples=[{"team": "platform"}]
        ),
    ] = {}
    publish: Annotated[Publish, pydantic.Field(description="Where finished images go.", default_factory=Publish)]
