"""The resources in the subscription by id, without regard to case, and the regions of Azure."""

from __future__ import annotations

import dataclasses
import uuid
from typing import Any

from imagegen.rehearsal.clouds.azure.errors import ArmError, not_found

Resource = dict[str, Any]

# Azure returns the display names of the target regions of a gallery version, whatever spelling the request has.
REGIONS = {
    "australiaeast": "Australia East",
    "brazilsouth": "Brazil South",
    "canadacentral": "Canada Central",
    "centralindia": "Central India",
    "centralus": "Central US",
    "eastasia": "East Asia",
    "eastus": "East US",
    "eastus2": "East US 2",
    "francecentral": "France Central",
    "germanywestcentral": "Germany West Central",
    "japaneast": "Japan East",
    "koreacentral": "Korea Central",
    "northcentralus": "North Central US",
    "northeurope": "North Europe",
    "norwayeast": "Norway East",
    "southafricanorth": "South Africa North",
    "southcentralus": "South Central US",
    "southeastasia": "Southeast Asia",
    "swedencentral": "Sweden Central",
    "switzerlandnorth": "Switzerland North",
    "uaenorth": "UAE North",
    "uksouth": "UK South",
    "westcentralus": "West Central US",
    "westeurope": "West Europe",
    "westus": "West US",
    "westus2": "West US 2",
    "westus3": "West US 3",
}


def region(name: object) -> str:
    """The short name of a region, from any spelling. Rejects unknown regions."""
    short = str(name).replace(" ", "").lower()
    if short not in REGIONS:
        raise ArmError(400, "LocationNotAvailableForResourceType", f"The provided location '{name}' is not available.")
    return short


@dataclasses.dataclass(frozen=True)
class GroupId:
    """The id of a resource group, from which resource ids are made."""

    subscription: str
    name: str

    def __str__(self) -> str:
        return f"/subscriptions/{self.subscription}/resourceGroups/{self.name}"

    def resource(self, kind: str, name: str) -> str:
        """The id of a resource of a type such as A.B/cs/ds with a name such as c/d."""
        namespace, *types = kind.strip("/").split("/")
        names = name.split("/")
        if len(types) != len(names):
            raise ArmError(400, "InvalidTemplate", f"The name '{name}' does not fit the type '{kind}'.")
        path = "/".join(f"{part_type}/{part}" for part_type, part in zip(types, names, strict=True))
        return f"{self}/providers/{namespace}/{path}"


class Resources:
    """A dictionary of resources that ignores the case of ids."""

    def __init__(self) -> None:
        self._by_id: dict[str, Resource] = {}

    def find(self, resource_id: str) -> Resource | None:
        return self._by_id.get(resource_id.lower())

    def get(self, resource_id: str) -> Resource:
        resource = self.find(resource_id)
        if resource is None:
            raise not_found(resource_id)
        return resource

    def put(self, resource: Resource) -> Resource:
        self._by_id[resource["id"].lower()] = resource
        return resource

    def remove(self, resource_id: str) -> bool:
        """Remove a resource with all resources below it. Returns whether it existed."""
        existed = resource_id.lower() in self._by_id
        below = f"{resource_id.lower()}/"
        self._by_id = {
            key: value for key, value in self._by_id.items() if key != resource_id.lower() and not key.startswith(below)
        }
        return existed

    def children(self, collection_id: str) -> list[Resource]:
        """The resources in a collection such as …/galleries/g/images, without those below them."""
        prefix = f"{collection_id.lower()}/"
        return [value for key, value in self._by_id.items() if key.startswith(prefix) and "/" not in key[len(prefix) :]]

    def below(self, resource_id: str) -> list[Resource]:
        """All resources below this id."""
        return [value for key, value in self._by_id.items() if key.startswith(f"{resource_id.lower()}/")]

    def of_type(self, kind: str) -> list[Resource]:
        return [value for value in self._by_id.values() if value.get("type", "").lower() == kind.lower()]


def new_resource(
    group: GroupId, kind: str, name: str, location: str, properties: Resource, tags: Resource | None
) -> Resource:
    """Make a resource in the form of ARM."""
    return {
        "id": group.resource(kind, name),
        "name": name.rpartition("/")[2],
        "type": kind,
        "location": location,
        "tags": dict(tags or {}),
        "properties": {**properties, "provisioningState": "Succeeded", "uniqueId": str(uuid.uuid4())},
    }
