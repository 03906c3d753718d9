"""What a config says about Azure."""

from typing import Annotated, Final, Literal, Self

import pydantic

from imagegen.providers.settings import Cidr, Days, EnvName, Price, TagValue, TargetSettings
from imagegen.resources.model import Strict

TITLE: Final = "Azure"
LOCATION: Final = r"^[a-z0-9]+$"
RESOURCE_NAME: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,79}$"
Location = Annotated[str, pydantic.StringConstraints(pattern=LOCATION, max_length=60)]
ResourceGroup = Annotated[str, pydantic.StringConstraints(pattern=r"^[A-Za-z0-9._()-]{0,89}[A-Za-z0-9_()-]$")]
VmSize = Annotated[str, pydantic.StringConstraints(pattern=r"^[A-Za-z0-9]+(_[A-Za-z0-9-]+)+$", max_length=60)]
Guid = Annotated[str, pydantic.StringConstraints(pattern=r"^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$")]
TagName = Annotated[str, pydantic.StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._:=+@-]{0,126}$")]
ResourceName = Annotated[str, pydantic.StringConstraints(pattern=RESOURCE_NAME)]
# Azure takes its words in any spelling, and people copy them from several places.
EncryptionSetId = Annotated[
    str,
    pydantic.StringConstraints(
        pattern=r"^/subscriptions/[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"
        r"/[Rr]esource[Gg]roups/[A-Za-z0-9._()-]{1,90}"
        r"/providers/[Mm]icrosoft\.[Cc]ompute/[Dd]isk[Ee]ncryption[Ss]ets/[A-Za-z0-9_-]{1,80}$",
        max_length=1024,
    ),
]


class Spot(Strict):
    """Build on spare capacity, which may be taken away."""

    max_price: Price | None = pydantic.Field(
        default=None, description="US dollars an hour; up to the ordinary price when left out.", examples=["0.25"]
    )


class Network(Strict):
    """Where the builder stands, and who reaches its WinRM port during the build."""

    virtual_network: ResourceName | None = pydantic.Field(
        default=None, description="A network of your own; a temporary one when left out.", examples=["images"]
    )
    subnet: ResourceName | None = pydantic.Field(
        default=None,
        description="Its subnet, said together with `resource_group`; the only one when left out.",
        examples=["builders"],
    )
    resource_group: ResourceGroup | None = pydantic.Field(
        default=None,
        description="The network's resource group, said together with `subnet`; looked for when left out.",
        examples=["cluster-network"],
    )
    public_address: bool = pydantic.Field(
        default=False, description="In a network of your own: reach the builder by a public address.", examples=[True]
    )
    allowed_cidrs: list[Cidr] = pydantic.Field(
        default=[],
        description="Networks from which a temporary network admits WinRM; anywhere when empty.",
        examples=[["198.51.100.0/24"]],
    )


class BaseImage(Strict):
    """A marketplace image instead of Microsoft's newest of the release; it must be that release."""

    publisher: ResourceName = pydantic.Field(
        default="MicrosoftWindowsServer", description="Its publisher.", examples=["MicrosoftWindowsServer"]
    )
    offer: ResourceName = pydantic.Field(description="Its offer.", examples=["windowsserver2022"])
    sku: ResourceName = pydantic.Field(description="Its SKU.", examples=["2022-datacenter-azure-edition-core"])
    version: str | None = pydantic.Field(
        default=None,
        description="Exactly this version; the newest when left out.",
        pattern=r"^(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)$",
        examples=["20348.5499.260809"],
    )


class Auth(Strict):
    """Whose subscription it is. Secrets are read from environment variables; a config holds their names only."""

    method: Literal["environment", "cli"] = pydantic.Field(
        default="environment",
        description="The variables `AZURE_*` or `ARM_*`, without a secret the machine's identity; or `az login`.",
        examples=["cli"],
    )
    subscription_id: Guid | None = pydantic.Field(
        default=None,
        description="The subscription; AZURE_SUBSCRIPTION_ID or ARM_SUBSCRIPTION_ID when left out.",
        examples=["00000000-0000-0000-0000-000000000001"],
    )
    client_secret_env: EnvName | None = pydantic.Field(
        default=None,
        description="The variable that holds the client secret, instead of AZURE_ or ARM_CLIENT_SECRET.",
        examples=["IMAGES_CLIENT_SECRET"],
    )


class Gallery(Strict):
    """The Compute Gallery that holds the images; it and the definition must exist."""

    resource_group: ResourceGroup = pydantic.Field(
        description="Resource group of the gallery.", examples=["cluster-api-gallery"]
    )
    name: str = pydantic.Field(
        description="The gallery: letters, digits, dots, underscores.",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$",
        examples=["clusterapi"],
    )
    definition: str = pydantic.Field(
        description="The image definition.",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$",
        examples=["capi-win-2022-containerd"],
    )
    version: str = pydantic.Field(
        default="date",
        description="`date` is YEAR.MONTHDAY.TIME of the run, `kubernetes` its own version, or three numbers of yours.",
        pattern=r"^(date|kubernetes|[0-9A-Za-z.+-]{1,40})$",
        examples=["kubernetes", "1.0.0"],
    )
    storage: Literal["Standard_LRS", "Standard_ZRS", "Premium_LRS"] = pydantic.Field(
        default="Standard_LRS", description="How a version is stored.", examples=["Standard_ZRS"]
    )


class Sharing(Strict):
    """Who beyond the subscription may use the gallery's images."""

    community: bool = pydantic.Field(default=False, description="Everybody.", examples=[True])
    subscriptions: list[Guid] = pydantic.Field(
        default=[], description="Subscriptions.", examples=[["00000000-0000-0000-0000-000000000001"]]
    )
    tenants: list[Guid] = pydantic.Field(
        default=[], description="Tenants.", examples=[["00000000-0000-0000-0000-000000000001"]]
    )
    licence_acknowledged: bool = pydantic.Field(
        default=False,
        description="You have read what Windows' licence asks of whoever shares an image, and answer for it.",
        examples=[True],
    )

    @pydantic.model_validator(mode="after")
    def _somebody(self) -> Self:
        if not (self.community or self.subscriptions or self.tenants):
            raise ValueError("name subscriptions or tenants, or say community: true")
        return self


class Publish(Strict):
    """Where finished images go, and what becomes of them."""

    regions: list[Location] = pydantic.Field(
        default=[], description="Regions that get a replica, beside the build region.", examples=[["westus3"]]
    )
    replicas: int = pydantic.Field(
        default=1,
        description="At least so many copies in each region: one serves some twenty machines at a time.",
        ge=1,
        le=100,
        examples=[3],
    )
    sharing: Sharing | None = pydantic.Field(
        default=None, description="Who beyond the subscription may use it; nobody when left out."
    )
    end_of_life_after_days: Days | None = pydantic.Field(
        default=None, description="When Azure begins to call a version outdated.", examples=[180]
    )
    keep_newest: int | None = pydantic.Field(
        default=None,
        description="Delete older versions of this name beyond so many; none is deleted when left out.",
        ge=1,
        le=1000,
        examples=[10],
    )


class Settings(TargetSettings):
    """Build and publishing on Azure."""

    provider: Literal["azure"] = pydantic.Field(
        default="azure",
        description="The cloud that the target is on; by default the target's own name.",
        examples=["azure"],
    )
    location: Location = pydantic.Field(description="The region in which the image is built.", examples=["eastus2"])
    vm_sizes: list[VmSize] = pydantic.Field(
        default=["Standard_D4s_v5"],
        description="The builder's size; where it cannot be had, the next one is tried.",
        min_length=1,
        max_length=10,
        examples=[["Standard_D4s_v5", "Standard_D4as_v5"]],
    )
    generation: Literal[1, 2] = pydantic.Field(
        default=2, description="The machine generation; the image definition must be of the same.", examples=[1]
    )
    security_type: Literal["Standard", "TrustedLaunch", "ConfidentialVM"] = pydantic.Field(
        default="Standard",
        description="The builder's security type; the image definition must allow it.",
        examples=["TrustedLaunch"],
    )
    spot: Spot | None = pydantic.Field(default=None, description="Build on spare capacity; not when left out.")
    network: Network = pydantic.Field(description="The builder's network.", default_factory=Network.model_construct)
    build_resource_group: ResourceGroup | None = pydantic.Field(
        default=None,
        description="Build in this resource group, which is in `location`; in a temporary one when left out.",
        examples=["image-builds"],
    )
    key_vault: str | None = pydantic.Field(
        default=None,
        description="The key vault in `build_resource_group` for the builder's certificate; else a temporary one.",
        pattern=r"^[A-Za-z][A-Za-z0-9-]{1,22}[A-Za-z0-9]$",
        examples=["image-builds"],
    )
    base_image: BaseImage | None = pydantic.Field(
        default=None, description="A base image of your own choice; Microsoft's when left out."
    )
    disk_size_gb: int | None = pydantic.Field(
        default=None,
        description="Size of the image's disk; the base image's when left out.",
        ge=30,
        le=2048,
        examples=[80],
    )
    disk_encryption_set: EncryptionSetId | None = pydantic.Field(
        default=None,
        description="The disk encryption set of builder and version in the build region; else the platform's key.",
        examples=[
            "/subscriptions/00000000-0000-0000-0000-000000000001/resourceGroups/keys"
            "/providers/Microsoft.Compute/diskEncryptionSets/images"
        ],
    )
    auth: Auth = pydantic.Field(description="Whose subscription it is.", default_factory=Auth.model_construct)
    licence_type: Literal["Windows_Server"] | None = pydantic.Field(
        default=None,
        description="Windows is licensed by you (Azure Hybrid Benefit) while building; by Azure when left out.",
        examples=["Windows_Server"],
    )
    tags: dict[TagName, TagValue] = pydantic.Field(
        default={}, description="Tags of image and builder, beside imagegen's own.", examples=[{"team": "platform"}]
    )
    gallery: Gallery = pydantic.Field(description="The Compute Gallery that holds the images.")
    publish: Publish = pydantic.Field(description="Where finished images go.", default_factory=Publish.model_construct)

    def build_json(self) -> dict[str, object]:
        """Not the base image, which is locked, nor the number of the gallery version."""
        build = self.model_dump(mode="json", exclude={"base_image", "generation", "gallery", "publish"})
        gallery = self.gallery
        return {
            **build,
            "allowed_cidrs": build["network"].pop("allowed_cidrs"),
            "resource_group": gallery.resource_group,
            "gallery": gallery.name,
            "definition": gallery.definition,
            "storage": gallery.storage,
        }

    def publish_json(self) -> dict[str, object]:
        """The regions, the copies in each, and the rule of the gallery version's number."""
        publish = self.publish
        return {"regions": publish.regions, "replicas": publish.replicas, "version": self.gallery.version}
