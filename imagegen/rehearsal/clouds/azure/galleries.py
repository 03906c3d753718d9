"""Compute galleries and their image definitions, created before a build or by a PUT request."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from imagegen.rehearsal.clouds.azure import groups
from imagegen.rehearsal.clouds.azure.errors import ArmError
from imagegen.rehearsal.clouds.azure.resources import GroupId, Resource, new_resource, region
from imagegen.rehearsal.network.messages import Response

if TYPE_CHECKING:
    from imagegen.rehearsal.clouds.azure.options import GalleryDefinition
    from imagegen.rehearsal.clouds.azure.state import AzureState, Call

GALLERY = "Microsoft.Compute/galleries"
DEFINITION = "Microsoft.Compute/galleries/images"
_GALLERY_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.]{0,78}[A-Za-z0-9])?\Z")
_DEFINITION_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,78}[A-Za-z0-9])?\Z")


def create_definition(state: AzureState, definition: GalleryDefinition) -> None:
    """Create an image definition before a build, with its group and gallery."""
    group = GroupId(state.application.subscription, definition.resource_group)
    if state.resources.find(str(group)) is None:
        state.resources.put(groups.make(group, definition.location))
    location = region(definition.location)
    gallery = group.resource(GALLERY, definition.gallery)
    if state.resources.find(gallery) is None:
        state.resources.put(new_resource(group, GALLERY, definition.gallery, location, {}, None))
    features = [{"name": "SecurityType", "value": definition.security_type}] if definition.security_type else []
    properties: Resource = {
        "osType": definition.os_type,
        "osState": definition.os_state,
        "architecture": definition.architecture,
        "hyperVGeneration": definition.generation,
        "identifier": {"publisher": "rehearsal", "offer": definition.gallery, "sku": definition.image},
        "features": features,
    }
    name = f"{definition.gallery}/{definition.image}"
    state.resources.put(new_resource(group, DEFINITION, name, location, properties, None))


def put(state: AzureState, call: Call) -> Response:
    body = call.request.json()
    state.group(call.group)
    name = call.names["gallery"]
    if not _GALLERY_NAME.match(name):
        raise ArmError(400, "InvalidParameter", f"The gallery name '{name}' is invalid.")
    gallery = new_resource(
        call.group, GALLERY, name, region(body.get("location")), body.get("properties", {}), body.get("tags")
    )
    old = state.resources.find(gallery["id"])
    return Response.of_json(200 if old else 201, state.resources.put(gallery))


def put_definition(state: AzureState, call: Call) -> Response:
    body = call.request.json()
    state.resources.get(call.id(GALLERY, "gallery"))
    name, properties = call.names["image"], body.get("properties", {})
    if not _DEFINITION_NAME.match(name):
        raise ArmError(400, "InvalidParameter", f"The image definition name '{name}' is invalid.")
    for key in ("osType", "osState", "identifier"):
        if not properties.get(key):
            raise ArmError(400, "InvalidParameter", f"Required parameter '{key}' of the image definition is missing.")
    # Azure's defaults.
    properties = {"hyperVGeneration": "V1", "architecture": "x64", **properties}
    full_name = f"{call.names['gallery']}/{name}"
    definition = new_resource(
        call.group, DEFINITION, full_name, region(body.get("location")), properties, body.get("tags")
    )
    old = state.resources.find(definition["id"])
    for key in ("osState", "hyperVGeneration", "identifier", "osType", "architecture"):
        if old is not None and old["properties"].get(key) != properties[key]:
            raise ArmError(409, "PropertyChangeNotAllowed", f"Changing property 'galleryImage.{key}' is not allowed.")
    return Response.of_json(200 if old else 201, state.resources.put(definition))


def get(state: AzureState, call: Call) -> Response:
    return Response.of_json(200, state.resources.get(call.id(GALLERY, "gallery")))


def get_definition(state: AzureState, call: Call) -> Response:
    return Response.of_json(200, state.resources.get(call.id(DEFINITION, "gallery", "image")))


def list_definitions(state: AzureState, call: Call) -> Response:
    state.resources.get(call.id(GALLERY, "gallery"))
    return Response.of_json(200, {"value": state.resources.children(f"{call.id(GALLERY, 'gallery')}/images")})
