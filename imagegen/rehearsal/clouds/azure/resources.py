"""What exists in the subscription: resources by id (ids compare without case), and the regions Azure has."""

from __future__ import annotations

import dataclasses
import uuid
from typing import Any

from imagegen.rehearsal.clouds.azure.errors import ArmError, not_found

Resource = dict[str, Any]

# Azure answers the target regions of a gallery version by their display names, whatever spelling was asked for.
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
    """The short name of a region, from any spelling; a region that Azure lacks is refused."""
    short = str(name).replace(" ", "").lower()
    if short not in REGIONS:
        raise ArmError(400, "LocationNotAvailableForResourceType", f"The provided location '{name}' is not available.")
    return short


@dataclasses.dataclass(frozen=True)
class GroupId:
    """A resource group's place; resource ids are made from it."""

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
        path = "/".join(f"{each}/{part}" for each, part in zip(types, names, strict=True))
        return f"{self}/providers/{namespace}/{path}"


class Resources:
    """A dictionary of resources that ignores the case of ids."""

    def __init__(self) -> None:
        self._kept: dict[str, Resource] = {}

    def find(self, resource_id: str) -> Resource | None:
        return self._kept.get(resource_id.lower())

    def get(self, resource_id: str) -> Resource:
        found = self.find(resource_id)
        if found is None:
            raise not_found(resource_id)
        return found

    def put(self, resource: Resource) -> Resource:
        self._kept[resource["id"].lower()] = resource
        return resource

    def remove(self, resource_id: str) -> bool:
        """Remove a resource and what is below it; whether it was there."""
        there = resource_id.lower() in self._kept
        below = f"{resource_id.lower()}/"
        self._kept = {
            key: value for key, value in self._kept.items() if key != resource_id.lower() and not key.startswith(below)
        }
        return there

    def children(self, collection_id: str) -> list[Resource]:
        """The resources directly in a collection, such as …/galleries/g/images."""
        prefix = f"{collection_id.lower()}/"
        return [value for key, value in self._kept.items() if key.startswith(prefix) and "/" not in key[len(prefix) :]]

    def below(self, resource_id: str) -> list[Resource]:
        """Everything whose id begins with this one."""
        return [value for key, value in self._kept.items() if key.startswith(f"{resource_id.lower()}/")]

    def of_type(self, kind: str) -> list[Resource]:
        return [value for value in self._kept.values() if value.get("type", "").lower() == kind.lower()]


def new_resource(
    group: GroupId, kind: str, name: str, location: str, properties: Resource, tags: Resource | None
) -> Resource:
    """A resource as Azure shows it after it was made."""
    return {
        "id": group.resource(kind, name),
        "name": name.rpartition("/")[2],
        "type": kind,
        "location": location,
        "tags": dict(tags or {}),
        "properties": {**properties, "provisioningState": "Succeeded", "uniqueId": str(uuid.uuid4())},
    }
