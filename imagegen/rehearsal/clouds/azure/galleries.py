"""Compute galleries and their image definitions: there before a build, or made by a PUT."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from imagegen.rehearsal.clouds.azure import groups
from imagegen.rehearsal.clouds.azure.errors import ArmError
from imagegen.rehearsal.clouds.azure.resources import GroupId, Resource, new_resource, region
from imagegen.rehearsal.network.messages import Response

if TYPE_CHECKING:
    from imagegen.rehearsal.clouds.azure.options import GalleryDefinition
    from imagegen.rehearsal.clouds.azure.world import Call, World

GALLERY = "Microsoft.Compute/galleries"
DEFINITION = "Microsoft.Compute/galleries/images"
_GALLERY_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.]{0,78}[A-Za-z0-9])?\Z")
_DEFINITION_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,78}[A-Za-z0-9])?\Z")


def prepare(world: World, wanted: GalleryDefinition) -> None:
    """Make a definition that exists from the start, with its group and gallery."""
    group = GroupId(world.application.subscription, wanted.resource_group)
    if world.resources.find(str(group)) is None:
        world.resources.put(groups.make(group, wanted.location))
    location = region(wanted.location)
    gallery = group.resource(GALLERY, wanted.gallery)
    if world.resources.find(gallery) is None:
        world.resources.put(new_resource(group, GALLERY, wanted.gallery, location, {}, None))
    features = [{"name": "SecurityType", "value": wanted.security_type}] if wanted.security_type else []
    properties: Resource = {
        "osType": wanted.os_type,
        "osState": wanted.os_state,
        "architecture": wanted.architecture,
        "hyperVGeneration": wanted.generation,
        "identifier": {"publisher": "rehearsal", "offer": wanted.gallery, "sku": wanted.image},
        "features": features,
    }
    name = f"{wanted.gallery}/{wanted.image}"
    world.resources.put(new_resource(group, DEFINITION, name, location, properties, None))


def put(world: World, call: Call) -> Response:
    body = call.request.json()
    world.group(call.group)
    name = call.names["gallery"]
    if not _GALLERY_NAME.match(name):
        raise ArmError(400, "InvalidParameter", f"The gallery name '{name}' is invalid.")
    made = new_resource(
        call.group, GALLERY, name, region(body.get("location")), body.get("properties", {}), body.get("tags")
    )
    old = world.resources.find(made["id"])
    return Response.of_json(200 if old else 201, world.resources.put(made))


def put_definition(world: World, call: Call) -> Response:
    body = call.request.json()
    world.resources.get(call.id(GALLERY, "gallery"))
    name, properties = call.names["image"], body.get("properties", {})
    if not _DEFINITION_NAME.match(name):
        raise ArmError(400, "InvalidParameter", f"The image definition name '{name}' is invalid.")
    for key in ("osType", "osState", "identifier"):
        if not properties.get(key):
            raise ArmError(400, "InvalidParameter", f"Required parameter '{key}' of the image definition is missing.")
    # Azure's defaults.
    properties = {"hyperVGeneration": "V1", "architecture": "x64", **properties}
    full = f"{call.names['gallery']}/{name}"
    made = new_resource(call.group, DEFINITION, full, region(body.get("location")), properties, body.get("tags"))
    old = world.resources.find(made["id"])
    for key in ("osState", "hyperVGeneration", "identifier", "osType", "architecture"):
        if old is not None and old["properties"].get(key) != properties[key]:
            raise ArmError(409, "PropertyChangeNotAllowed", f"Changing property 'galleryImage.{key}' is not allowed.")
    return Response.of_json(200 if old else 201, world.resources.put(made))


def get(world: World, call: Call) -> Response:
    return Response.of_json(200, world.resources.get(call.id(GALLERY, "gallery")))


def get_definition(world: World, call: Call) -> Response:
    return Response.of_json(200, world.resources.get(call.id(DEFINITION, "gallery", "image")))


def list_definitions(world: World, call: Call) -> Response:
    world.resources.get(call.id(GALLERY, "gallery"))
    return Response.of_json(200, {"value": world.resources.children(f"{call.id(GALLERY, 'gallery')}/images")})
