"""The settings of a target on Azure, and the place of its builds."""

import re
from typing import Annotated, Final, Literal, Self

import pydantic

from imagegen.base.errors import InvalidValue
from imagegen.catalog.facts import limit_of
from imagegen.providers.settings import Cidr, Days, EnvName, Price, TagValue, TargetSettings, unacknowledged
from imagegen.steps.resource import Fault, Strict

TITLE: Final = "Azure"
LOCATION: Final = r"^[a-z0-9]+$"
RESOURCE_NAME: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,79}$"
Location = Annotated[str, pydantic.StringConstraints(pattern=LOCATION, max_length=60)]
ResourceGroup = Annotated[str, pydantic.StringConstraints(pattern=r"^[A-Za-z0-9._()-]{0,89}[A-Za-z0-9_()-]$")]
VmSize = Annotated[str, pydantic.StringConstraints(pattern=r"^[A-Za-z0-9]+(_[A-Za-z0-9-]+)+$", max_length=60)]
Guid = Annotated[str, pydantic.StringConstraints(pattern=r"^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$")]
TagName = Annotated[str, pydantic.StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._:=+@-]{0,126}$")]
ResourceName = Annotated[str, pydantic.StringConstraints(pattern=RESOURCE_NAME)]
# The names that Windows allows for an account, as far as they are ASCII and need no quoting.
AccountName = Annotated[str, pydantic.StringConstraints(pattern=r"^[A-Za-z0-9_]([A-Za-z0-9_. -]{0,18}[A-Za-z0-9_-])?$")]
# Azure ignores upper and lower case in an id, and people copy ids from several places.
EncryptionSetId = Annotated[
    str,
    pydantic.StringConstraints(
        pattern=r"^/subscriptions/[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"
        r"/[Rr]esource[Gg]roups/[A-Za-z0-9._()-]{1,90}"
        r"/providers/[Mm]icrosoft\.[Cc]ompute/[Dd]isk[Ee]ncryption[Ss]ets/[A-Za-z0-9_-]{1,80}$",
        max_length=1024,
    ),
]

# Names become parts of a URL path.
_UrlPart = Annotated[str, pydantic.Field(pattern=r"^[\w().-]{1,128}$")]


class Spot(Strict):
    """Build on spare capacity. The cloud can take it away at any time."""

    max_price: Price | None = pydantic.Field(
        default=None,
        description="The highest price in US dollars per hour. Default: the ordinary price.",
        examples=["0.25"],
    )


class Network(Strict):
    """The network of the builder, and who can reach its WinRM port during the build."""

    virtual_network: ResourceName | None = pydantic.Field(
        default=None, description="Your own virtual network. Default: a temporary one.", examples=["images"]
    )
    subnet: ResourceName | None = pydantic.Field(
        default=None,
        description="The subnet; requires `resource_group`. Default: the network's only subnet.",
        examples=["builders"],
    )
    resource_group: ResourceGroup | None = pydantic.Field(
        default=None,
        description="The resource group of the network; requires `subnet`. Default: Packer looks it up.",
        examples=["cluster-network"],
    )
    public_address: bool = pydantic.Field(
        default=False,
        description="In your own network: Packer reaches the builder at a public IP address.",
        examples=[True],
    )
    allowed_cidrs: list[Cidr] = pydantic.Field(
        default=[],
        description="The networks from which a temporary network admits WinRM. Empty: the whole internet.",
        examples=[["198.51.100.0/24"]],
    )

    @pydantic.model_validator(mode="after")
    def _is_named(self) -> Self:
        own = {name: getattr(self, name) for name in ("subnet", "resource_group", "public_address")}
        pairs = (("subnet", "resource_group"), ("resource_group", "subnet"))
        return self.without(
            *(
                Fault(
                    value and not self.virtual_network,
                    (key,),
                    f"{key} applies only to a virtual_network, and the builder gets a temporary network",
                    f"set virtual_network, or leave {key} out",
                )
                for key, value in own.items()
            ),
            *(
                Fault(
                    self.virtual_network and own[key] and not own[other],
                    (key,),
                    f"Packer's plugin ignores {key} without {other}",
                    f"set {other} too, or leave both out",
                )
                for key, other in pairs
            ),
            Fault(
                self.virtual_network and self.allowed_cidrs,
                ("allowed_cidrs",),
                "the security groups of virtual_network decide who has access, and Packer's plugin rejects both "
                "together",
                "leave one of them out",
            ),
        )


class BaseImage(Strict):
    """A marketplace image instead of Microsoft's newest one. It must have the same Windows release."""

    publisher: ResourceName = pydantic.Field(
        default="MicrosoftWindowsServer", description="The publisher of the image.", examples=["MicrosoftWindowsServer"]
    )
    offer: ResourceName = pydantic.Field(description="The offer of the image.", examples=["windowsserver2022"])
    sku: ResourceName = pydantic.Field(
        description="The SKU of the image.", examples=["2022-datacenter-azure-edition-core"]
    )
    version: str | None = pydantic.Field(
        default=None,
        description="The exact version. Default: the newest version.",
        pattern=r"^(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)$",
        examples=["20348.5499.260809"],
    )


class Auth(Strict):
    """How to sign in to the subscription. Secrets come from environment variables: a config has only their names."""

    method: Literal["environment", "cli"] = pydantic.Field(
        default="environment",
        description="`environment`: the variables `AZURE_*` or `ARM_*`, or without a secret the machine's "
        "identity; `cli`: `az login`.",
        examples=["cli"],
    )
    subscription_id: Guid | None = pydantic.Field(
        default=None,
        description="The id of the subscription. Default: AZURE_SUBSCRIPTION_ID or ARM_SUBSCRIPTION_ID.",
        examples=["00000000-0000-0000-0000-000000000001"],
    )
    client_secret_env: EnvName | None = pydantic.Field(
        default=None,
        description="The environment variable with the client secret. Default: AZURE_CLIENT_SECRET or "
        "ARM_CLIENT_SECRET.",
        examples=["IMAGES_CLIENT_SECRET"],
    )

    @pydantic.model_validator(mode="after")
    def _reads_the_secret(self) -> Self:
        return self.without(
            Fault(
                self.client_secret_env and self.method == "cli",
                ("client_secret_env",),
                "method: cli uses `az login` and reads no secret",
                "leave it out, or write method: environment",
            )
        )


def _check_name(limit_name: str) -> pydantic.AfterValidator:
    """The check of a name in a gallery."""

    def check(name: str) -> str:
        limit = limit_of(limit_name)
        if not re.search(limit["pattern"], name):
            raise InvalidValue(f"{name} is not a valid name: {limit['reason']}", "write its name in Azure")
        if len(name) > limit["max"]:
            raise InvalidValue(
                f"it has {len(name)} characters, more than the {limit['max']} that Azure allows",
                "choose a shorter name",
            )
        return name

    return pydantic.AfterValidator(check)


GalleryName = Annotated[str, _check_name("gallery")]
DefinitionName = Annotated[str, _check_name("gallery_definition")]


class Gallery(Strict):
    """The Compute Gallery of the images. The gallery and the image definition must exist."""

    resource_group: ResourceGroup = pydantic.Field(
        description="The resource group of the gallery.", examples=["cluster-api-gallery"]
    )
    name: GalleryName = pydantic.Field(
        description="The name of the gallery: letters, digits, dots and underscores.",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$",
        examples=["clusterapi"],
    )
    definition: DefinitionName = pydantic.Field(
        description="The name of the image definition.",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$",
        examples=["capi-win-2022-containerd"],
    )
    version: str = pydantic.Field(
        default="date",
        description="`date`: YEAR.MONTHDAY.TIME of the build; `kubernetes`: the Kubernetes version; or your "
        "own number, such as 1.0.0.",
        pattern=r"^(date|kubernetes|[0-9A-Za-z.+-]{1,40})$",
        examples=["kubernetes", "1.0.0"],
    )
    storage: Literal["Standard_LRS", "Standard_ZRS", "Premium_LRS"] = pydantic.Field(
        default="Standard_LRS", description="The storage type of a gallery version.", examples=["Standard_ZRS"]
    )


class Sharing(Strict):
    """Who else can use the images of the gallery."""

    community: bool = pydantic.Field(default=False, description="Share with everybody.", examples=[True])
    subscriptions: list[Guid] = pydantic.Field(
        default=[], description="Share with these subscriptions.", examples=[["00000000-0000-0000-0000-000000000001"]]
    )
    tenants: list[Guid] = pydantic.Field(
        default=[], description="Share with these tenants.", examples=[["00000000-0000-0000-0000-000000000001"]]
    )
    licence_acknowledged: bool = pydantic.Field(
        default=False,
        description="You confirm that you have read the rules of the Windows licence for sharing images and "
        "comply with them.",
        examples=[True],
    )

    @pydantic.model_validator(mode="after")
    def _somebody(self) -> Self:
        if not (self.community or self.subscriptions or self.tenants):
            raise ValueError("name subscriptions or tenants, or say community: true")
        return self.without(
            unacknowledged(self.licence_acknowledged),
            Fault(
                self.community and (self.subscriptions or self.tenants),
                ("community",),
                "Azure shares a gallery either with the community or directly",
                "choose one, and use another gallery for the other",
            ),
        )


class Publish(Strict):
    """Where finished images are published, and how long they are kept."""

    regions: list[Location] = pydantic.Field(
        default=[], description="Regions that get a replica, in addition to the build region.", examples=[["westus3"]]
    )
    replicas: int = pydantic.Field(
        default=1,
        description="The minimum number of replicas in each region. One replica serves about twenty machines "
        "at a time.",
        ge=1,
        le=100,
        examples=[3],
    )
    sharing: Sharing | None = pydantic.Field(default=None, description="Who else can use the images. Default: nobody.")
    end_of_life_after_days: Days | None = pydantic.Field(
        default=None, description="Azure marks a gallery version as outdated after this number of days.", examples=[180]
    )
    keep_newest: int | None = pydantic.Field(
        default=None,
        description="Keep this number of versions with this name, and delete older ones. Default: delete none.",
        ge=1,
        le=1000,
        examples=[10],
    )

    @pydantic.model_validator(mode="after")
    def _has_few_replicas(self) -> Self:
        most = limit_of("gallery_replicas")["max"]
        return self.without(
            Fault(
                self.replicas * (len(self.regions) + 1) > most,
                ("replicas",),
                f"all regions together have more than the {most} replicas that Azure allows for a version",
                "write fewer replicas or fewer regions",
            )
        )


class Settings(TargetSettings):
    """Settings for building and publishing on Azure."""

    provider: Literal["azure"] = pydantic.Field(
        default="azure",
        description="The cloud of the target. Default: the name of the target.",
        examples=["azure"],
    )
    location: Location = pydantic.Field(description="The region in which the image is built.", examples=["eastus2"])
    vm_sizes: list[VmSize] = pydantic.Field(
        default=["Standard_D4s_v5"],
        description="The VM sizes for the builder. If one is not available, the next one is tried.",
        min_length=1,
        max_length=10,
        examples=[["Standard_D4s_v5", "Standard_D4as_v5"]],
    )
    generation: Literal[1, 2] = pydantic.Field(
        default=2,
        description="The generation of the virtual machine. The image definition must have the same.",
        examples=[1],
    )
    security_type: Literal["Standard", "TrustedLaunch", "ConfidentialVM"] = pydantic.Field(
        default="Standard",
        description="The security type of the builder. The image definition must allow it.",
        examples=["TrustedLaunch"],
    )
    spot: Spot | None = pydantic.Field(
        default=None, description="Build on spare capacity. Default: on ordinary capacity."
    )
    network: Network = pydantic.Field(description="The builder's network.", default_factory=Network.model_construct)
    build_resource_group: ResourceGroup | None = pydantic.Field(
        default=None,
        description="The resource group of the builder; it must be in `location`. Default: a temporary one.",
        examples=["image-builds"],
    )
    key_vault: str | None = pydantic.Field(
        default=None,
        description="The key vault for the builder's certificate, in `build_resource_group`. Default: a temporary one.",
        pattern=r"^[A-Za-z][A-Za-z0-9-]{1,22}[A-Za-z0-9]$",
        examples=["image-builds"],
    )
    base_image: BaseImage | None = pydantic.Field(
        default=None, description="Another base image. Default: Microsoft's newest image."
    )
    disk_size_gb: int | None = pydantic.Field(
        default=None,
        description="The size of the image's disk in GB. Default: the size of the base image.",
        ge=30,
        le=2048,
        examples=[80],
    )
    disk_encryption_set: EncryptionSetId | None = pydantic.Field(
        default=None,
        description="The disk encryption set of the builder and of the version in the build region. Default: "
        "the platform's key.",
        examples=[
            "/subscriptions/00000000-0000-0000-0000-000000000001/resourceGroups/keys"
            "/providers/Microsoft.Compute/diskEncryptionSets/images"
        ],
    )
    auth: Auth = pydantic.Field(description="How to sign in to the subscription.", default_factory=Auth.model_construct)
    licence_type: Literal["Windows_Server"] | None = pydantic.Field(
        default=None,
        description="Use your own Windows licence for the builder (Azure Hybrid Benefit). Default: Azure's licence.",
        examples=["Windows_Server"],
    )
    wire_server_users: list[AccountName] = pydantic.Field(
        default=[],
        description="The local accounts of a node that can use Azure's wireserver, in addition to SYSTEM. A name has "
        "at most 20 letters, digits, dots, dashes, underscores and spaces.",
        examples=[["monitoring"]],
    )
    tags: dict[TagName, TagValue] = pydantic.Field(
        default={}, description="Additional tags of the image and the builder.", examples=[{"team": "platform"}]
    )
    gallery: Gallery = pydantic.Field(description="The Compute Gallery of the images.")
    publish: Publish = pydantic.Field(
        description="Where finished images are published.", default_factory=Publish.model_construct
    )

    @property
    def restricted_address_users(self) -> list[str]:
        return self.wire_server_users

    @pydantic.model_validator(mode="after")
    def _fits_together(self) -> Self:
        return self.without(
            Fault(
                self.security_type != "Standard" and self.generation != 2,
                ("security_type",),
                f"{self.security_type} requires UEFI, which machines of generation {self.generation} do not have",
                "write generation: 2",
            ),
            Fault(
                self.key_vault and not self.build_resource_group,
                ("key_vault",),
                "Packer looks for the vault in the build's resource group, which is a temporary one",
                "set build_resource_group to the vault's, or leave key_vault out",
            ),
        )

    def build_json(self) -> dict[str, object]:
        """Without the base image, which the lock pins, what is in the image, and the number of the gallery version."""
        apart = {"base_image", "generation", "wire_server_users", "gallery", "publish"}
        build = self.model_dump(mode="json", exclude=apart)
        return {
            **build,
            "allowed_cidrs": build["network"].pop("allowed_cidrs"),
            "gallery": self.gallery.name,
            **self.gallery.model_dump(mode="json", include={"resource_group", "definition", "storage"}),
        }

    def publish_json(self) -> dict[str, object]:
        """The regions, the replicas in each, and how the gallery version is numbered."""
        return {**self.publish.model_dump(include={"regions", "replicas"}), "version": self.gallery.version}


class PlaceAuth(Auth):
    """The sign-in, with its subscription."""

    subscription_id: _UrlPart


class Place(Strict):
    """Where builds create resources, as a journal records it: the subscription, their resource group, the gallery."""

    auth: PlaceAuth
    location: _UrlPart
    build_resource_group: _UrlPart | None
    resource_group: _UrlPart
    gallery: _UrlPart
    definition: _UrlPart
    key_vault: _UrlPart | None = None
    """None in journals of earlier versions."""
