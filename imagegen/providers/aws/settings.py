"""The settings of a target on AWS, and the place of its builds as a journal records it."""

from collections.abc import Iterator
from typing import Annotated, Final, Literal, Self

import pydantic

from imagegen.catalog.facts import table
from imagegen.providers.settings import Cidr, Days, Price, TagValue, TargetSettings, unacknowledged
from imagegen.steps.resource import Fault, Strict

TITLE: Final = "AWS"
REGION: Final = r"^[a-z]{2,4}(-[a-z]+)+-[0-9]$"
IMDS_V2: Final = "v2.0"
OWNER: Final = r"^([0-9]{12}|self|amazon)$"
Region = Annotated[str, pydantic.StringConstraints(pattern=REGION)]
# With slashes: CAPA and EKS use tags such as kubernetes.io/cluster/prod.
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
# https://docs.aws.amazon.com/ebs/latest/userguide/general-purpose.html
_GP3_IOPS: Final = 3000
_GP3_IOPS_PER_GIB: Final = 500
_GP3_IOPS_PER_MIB: Final = 4
_KEY_ID = r"(mrk-)?[0-9a-f-]{32,36}"
_KEY_ALIAS = r"alias/[A-Za-z0-9/_-]+"
# The id, the alias or the ARN of a key.
KmsKey = Annotated[
    str,
    pydantic.StringConstraints(
        pattern=rf"^({_KEY_ID}|{_KEY_ALIAS}|arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{{12}}:(key/{_KEY_ID}|{_KEY_ALIAS}))$",
        max_length=2048,
    ),
]


class Spot(Strict):
    """Build on spare capacity. The cloud can take it away at any time."""

    max_price: Price | None = pydantic.Field(
        default=None,
        description="The highest price in US dollars per hour. Default: the on-demand price.",
        examples=["0.25"],
    )


class Network(Strict):
    """The network of the builder, and who can reach its WinRM port during the build."""

    vpc_id: str | None = pydantic.Field(
        default=None,
        description="The VPC of the builder. Default: the region's default VPC.",
        pattern=r"^vpc-[0-9a-f]{8,17}$",
        examples=["vpc-0123456789abcdef0"],
    )
    subnet_id: str | None = pydantic.Field(
        default=None,
        description="The subnet of the builder. Default: one of the VPC's subnets.",
        pattern=r"^subnet-[0-9a-f]{8,17}$",
        examples=["subnet-0123456789abcdef0"],
    )
    security_group_ids: list[Annotated[str, pydantic.StringConstraints(pattern=r"^sg-[0-9a-f]{8,17}$")]] = (
        pydantic.Field(
            default=[],
            description="Your own security groups, instead of a temporary one that admits `allowed_cidrs`.",
            examples=[["sg-0123456789abcdef0"]],
        )
    )
    allowed_cidrs: list[Cidr] = pydantic.Field(
        default=[],
        description="The networks from which the temporary security group admits WinRM.",
        examples=[["198.51.100.0/24"]],
    )
    public_address: bool | None = pydantic.Field(
        default=None,
        description="Give the builder a public IP address. Default: the setting of the subnet.",
        examples=[False],
    )
    reach_by: Literal["public", "private"] = pydantic.Field(
        default="public",
        description="Which IP address of the builder Packer connects to. Without a public address, Packer "
        "uses the private one.",
        examples=["private"],
    )

    @pydantic.model_validator(mode="after")
    def _is_reached(self) -> Self:
        return self.without(
            Fault(
                self.allowed_cidrs and self.security_group_ids,
                ("allowed_cidrs",),
                "with security_group_ids, these networks have no effect",
                "leave one of them out",
            ),
            Fault(
                self.public_address is False and self.reach_by == "public",
                ("public_address",),
                "Packer connects to the public address of the builder (reach_by), but the builder gets none",
                "write reach_by: private, or leave public_address out",
            ),
            Fault(
                self.vpc_id and not self.subnet_id and self.public_address is None,
                ("vpc_id",),
                "without subnet_id or public_address, Packer's plugin uses a subnet of the default VPC instead",
                "set subnet_id or public_address",
            ),
        )


class BaseImage(Strict):
    """A base image instead of Amazon's newest one. It must have the same Windows release."""

    name: str = pydantic.Field(
        description="The name of the image, or a pattern with *: the newest match is used.",
        pattern=r"^[A-Za-z0-9()\[\]./'@_ *?-]{3,128}$",
        examples=["hardened-windows-2022-*"],
    )
    owner: str = pydantic.Field(
        default="self",
        description="The owner of the image: an account id, `self`, or `amazon`.",
        pattern=OWNER,
        examples=["111122223333"],
    )


class Disk(Strict):
    """The image's disk."""

    size_gb: int = pydantic.Field(default=50, description="The size of the disk in GB.", ge=30, le=2048, examples=[100])
    type: Literal["gp3", "gp2"] = pydantic.Field(default="gp3", description="The volume type.", examples=["gp2"])
    iops: int | None = pydantic.Field(
        default=None, description="The IOPS of a gp3 disk. Default: AWS' own.", ge=3000, le=16000, examples=[4000]
    )
    throughput: int | None = pydantic.Field(
        default=None,
        description="The throughput of a gp3 disk in MiB/s. Default: AWS' own.",
        ge=125,
        le=1000,
        examples=[250],
    )

    @pydantic.model_validator(mode="after")
    def _fits_together(self) -> Self:
        iops, most = self.iops or _GP3_IOPS, self.size_gb * _GP3_IOPS_PER_GIB
        throughput, is_gp3 = self.throughput or 0, self.type == "gp3"
        unavailable = (
            "AWS rejects this setting for a gp2 disk, whose speed depends on its size",
            "leave it out, or write type: gp3",
        )
        return self.without(
            Fault(not is_gp3 and self.iops is not None, ("iops",), *unavailable),
            Fault(not is_gp3 and self.throughput is not None, ("throughput",), *unavailable),
            Fault(
                is_gp3 and (self.iops or 0) > most,
                ("iops",),
                f"AWS gives a gp3 disk at most {_GP3_IOPS_PER_GIB} IOPS for each GiB: {self.size_gb} GiB are too few",
                f"write at most {most}",
            ),
            Fault(
                is_gp3 and throughput * _GP3_IOPS_PER_MIB > iops,
                ("throughput",),
                f"{throughput} MiB/s is too much: AWS allows 0.25 MiB/s for each IOPS of a gp3 disk, which has {iops}",
                f"write at most {iops // _GP3_IOPS_PER_MIB}, or iops of at least {throughput * _GP3_IOPS_PER_MIB}",
            ),
        )


class Encryption(Strict):
    """Encryption of the image's snapshots."""

    kms_key: KmsKey | None = pydantic.Field(
        default=None,
        description="The key in the build region. Default: the account's default key.",
        examples=["alias/images"],
    )
    region_kms_keys: dict[Region, KmsKey] = pydantic.Field(
        default={},
        description="The keys of the regions that get a copy. Default: each region's default key.",
        examples=[{"us-west-2": "alias/images"}],
    )


class AssumeRole(Strict):
    """A role to assume with the credentials of the usual chain."""

    role_arn: RoleArn = pydantic.Field(
        description="The ARN of the role.", examples=["arn:aws:iam::111122223333:role/images"]
    )
    session_name: str = pydantic.Field(
        default="imagegen",
        description="The name of the session in CloudTrail.",
        pattern=r"^[A-Za-z0-9+=,.@_-]{2,64}$",
        examples=["nightly"],
    )


class Auth(Strict):
    """How to sign in to the account. Credentials come from the usual chain, never from a config."""

    profile: str | None = pydantic.Field(
        default=None,
        description="A profile of the AWS configuration files.",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$",
        examples=["images"],
    )
    assume_role: AssumeRole | None = pydantic.Field(default=None, description="A role to assume. Default: none.")


class Sharing(Strict):
    """Who else can use the image."""

    accounts: list[AccountId] = pydantic.Field(
        default=[], description="Share with these accounts.", examples=[["111122223333"]]
    )
    organizations: list[OrganizationArn] = pydantic.Field(
        default=[],
        description="Share with these organizations or organizational units.",
        examples=[["arn:aws:organizations::111122223333:organization/o-example123"]],
    )
    public: bool = pydantic.Field(default=False, description="Share with everybody.", examples=[True])
    licence_acknowledged: bool = pydantic.Field(
        default=False,
        description="You confirm that you have read the rules of the Windows licence for sharing images and "
        "comply with them.",
        examples=[True],
    )

    @pydantic.model_validator(mode="after")
    def _somebody(self) -> Self:
        if not (self.accounts or self.organizations or self.public):
            raise ValueError("name accounts or organizations, or say public: true")
        return self.without(unacknowledged(self.licence_acknowledged))


class FastLaunch(Strict):
    """Fast launch: instances of the image start faster, from snapshots that are prepared in advance."""

    snapshots: int = pydantic.Field(
        default=5, description="How many prepared snapshots are kept.", ge=1, le=1000, examples=[10]
    )
    parallel_launches: int = pydantic.Field(
        default=6, description="How many snapshots are prepared at a time.", ge=6, le=100, examples=[8]
    )


class Publish(Strict):
    """Where finished images are published, and how long they are kept."""

    regions: list[Region] = pydantic.Field(
        default=[], description="Regions that get a copy, in addition to the build region.", examples=[["us-west-2"]]
    )
    sharing: Sharing | None = pydantic.Field(default=None, description="Who else can use the image. Default: nobody.")
    ssm_parameter: str | None = pydantic.Field(
        default=None,
        description="The SSM parameter that is set to the id of the newest image.",
        pattern=r"^/[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*$",
        max_length=1011,
        examples=["/images/windows-2022/latest/image_id"],
    )
    deprecate_after_days: Days | None = pydantic.Field(
        default=None, description="AWS marks the image as deprecated after this number of days.", examples=[180]
    )
    deregistration_protection: bool = pydantic.Field(
        default=False, description="Protect the AMI from deregistration.", examples=[True]
    )
    fast_launch: FastLaunch | None = pydantic.Field(default=None, description="Fast launch of the image. Default: off.")
    keep_newest: int | None = pydantic.Field(
        default=None,
        description="Keep this number of images with this name, and delete older ones. Default: delete none.",
        ge=1,
        le=1000,
        examples=[10],
    )


def partition_of(region: str) -> str:
    """The AWS partition of a region."""
    return next(str(row["partition"]) for row in table("clouds")["aws_partitions"] if region.startswith(row["prefix"]))


class Settings(TargetSettings):
    """Settings for building and publishing on AWS."""

    provider: Literal["aws"] = pydantic.Field(
        default="aws",
        description="The cloud of the target. Default: the name of the target.",
        examples=["aws"],
    )
    region: Region = pydantic.Field(description="The region in which the image is built.", examples=["us-east-1"])
    instance_types: list[InstanceType] = pydantic.Field(
        default=["m6i.large"],
        description="The instance types for the builder. If one is not available, the next one is tried.",
        min_length=1,
        max_length=10,
        examples=[["m6i.large", "m5.large"]],
    )
    spot: Spot | None = pydantic.Field(
        default=None, description="Build on spare capacity. Default: on ordinary capacity."
    )
    network: Network = pydantic.Field(description="The builder's network.", default_factory=Network.model_construct)
    iam_instance_profile: str | None = pydantic.Field(
        default=None,
        description="The instance profile of the builder. Default: none.",
        pattern=r"^[A-Za-z0-9+=,.@_-]{1,128}$",
        examples=["image-builder"],
    )
    base_image: BaseImage | None = pydantic.Field(
        default=None, description="Your own base image. Default: Amazon's newest image."
    )
    disk: Disk = pydantic.Field(description="The image's disk.", default_factory=Disk.model_construct)
    encryption: Encryption | None = pydantic.Field(
        default=None, description="Encryption of the snapshots. Default: the setting of the account."
    )
    require_imds_tokens: bool = pydantic.Field(
        default=False,
        description="Machines of the image require session tokens for metadata requests (imds_support v2.0).",
        examples=[True],
    )
    auth: Auth = pydantic.Field(description="How to sign in to the account.", default_factory=Auth.model_construct)
    name_prefix: str = pydantic.Field(
        default="capa-ami",
        description="The prefix of AMI names: `<prefix>-windows-<release>-v<kubernetes>-<time>-<identity>-<random>`.",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9()./_-]{0,127}$",
        examples=["platform-ami"],
    )
    tags: dict[AwsTagName, TagValue] = pydantic.Field(
        default={},
        description="Additional tags of the image, its snapshots and the builder.",
        examples=[{"team": "platform"}],
    )
    publish: Publish = pydantic.Field(
        description="Where finished images are published.", default_factory=Publish.model_construct
    )

    @pydantic.model_validator(mode="after")
    def _fits_together(self) -> Self:
        copied, own = self.publish.regions, partition_of(self.region)
        region_keys = self.encryption.region_kms_keys if self.encryption else {}
        arns = [(path, region, key) for path, region, key in self.encryption_keys() if key.startswith("arn:")]
        return self.without(
            *(
                Fault(
                    region not in copied,
                    ("encryption", "region_kms_keys", region),
                    f"{region} gets no copy, so this key would encrypt nothing",
                    "write it to kms_key"
                    if region == self.region
                    else "add the region to publish.regions, or leave its key out",
                )
                for region in region_keys
            ),
            *(
                Fault(
                    key.split(":")[3] != region,
                    path,
                    f"the key is in {key.split(':')[3]}, and AWS encrypts only with keys in the same region",
                    f"choose a key in {region}",
                )
                for path, region, key in arns
            ),
            *(
                Fault(
                    partition != own,
                    path,
                    f"it is in the partition {partition}, but {self.region} is in {own}: no account spans both",
                    f"choose one in {own}, and use another config for {partition}",
                )
                for path, partition in self._partitions()
            ),
            Fault(
                self.publish.sharing and self.publish.sharing.public and self.encryption,
                ("publish", "sharing", "public"),
                "AWS cannot make an encrypted image public",
                "share it with accounts, or leave encryption out",
            ),
        )

    def encryption_keys(self) -> Iterator[tuple[tuple[str, ...], str, str]]:
        """The path, the region and the id or ARN of each key."""
        if self.encryption and self.encryption.kms_key:
            yield ("encryption", "kms_key"), self.region, self.encryption.kms_key
        for region, key in self.encryption.region_kms_keys.items() if self.encryption else ():
            yield ("encryption", "region_kms_keys", region), region, key

    def _partitions(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """The partition of each region and ARN."""
        for at, region in enumerate(self.publish.regions):
            yield ("publish", "regions", at), partition_of(region)
        arns: list[tuple[tuple[str | int, ...], str]] = [(path, key) for path, _, key in self.encryption_keys()]
        if self.auth.assume_role:
            arns.append((("auth", "assume_role", "role_arn"), self.auth.assume_role.role_arn))
        for at, arn in enumerate(self.publish.sharing.organizations if self.publish.sharing else ()):
            arns.append((("publish", "sharing", "organizations", at), arn))
        yield from ((path, arn.split(":")[1]) for path, arn in arns if arn.startswith("arn:"))

    def build_json(self) -> dict[str, object]:
        """Without the base image, which the lock pins, and without the keys of other regions, which are for copies."""
        return self.model_dump(
            mode="json", exclude={"publish": True, "base_image": True, "encryption": {"region_kms_keys": True}}
        )

    def publish_json(self) -> dict[str, object]:
        """The regions, and the keys of encrypted copies."""
        encryption = {"kms_keys": self.encryption.region_kms_keys} if self.encryption else None
        return {"regions": self.publish.regions, "encryption": encryption}


_RecordedRegion = Annotated[str, pydantic.Field(pattern=r"^[a-z0-9-]{1,32}$")]


class Place(Strict):
    """The build region of an account, the regions of its copies, and the sign-in."""

    region: _RecordedRegion
    # Empty in journals of earlier versions, and for builds without copies.
    copy_regions: list[_RecordedRegion] = []
    auth: Auth
    # Empty in journals of earlier versions.
    account: Annotated[str, pydantic.Field(pattern=r"^[0-9]{12}$")] = ""
