"""Gallery image versions: made from a generalised machine, then replicated and shown by updates of their profile."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from imagegen.rehearsal.network.azure.errors import ArmError, not_found
from imagegen.rehearsal.network.azure.galleries import DEFINITION
from imagegen.rehearsal.network.azure.resources import REGIONS, Resource, new_resource, region
from imagegen.rehearsal.network.messages import Response

if TYPE_CHECKING:
    from imagegen.rehearsal.network.azure.world import Call, World
    from imagegen.rehearsal.network.messages import Json

VERSION = "Microsoft.Compute/galleries/images/versions"
_NAME = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)\Z")
_LARGEST = 2**31 - 1
_TRUSTED = ("TrustedLaunch", "TrustedLaunchSupported", "TrustedLaunchAndConfidentialVmSupported")


def put(world: World, call: Call) -> Response:
    """Create a version, or update one: an update says the whole again, and cannot say another source."""
    body = call.request.json()
    definition = world.resources.get(call.id(DEFINITION, "gallery", "image"))
    _check_name(call.names["version"])
    location = region(body.get("location"))
    properties = body.get("properties", {})
    old = world.resources.find(_id(call))
    source = _source(properties.get("storageProfile", {}))
    if old is None:
        if not source:
            raise _bad("Required parameter 'galleryImageVersion.properties.storageProfile' is missing (null).")
        _check_source(world, definition, source, location)
    else:
        if location != old["location"]:
            raise ArmError(409, "PropertyChangeNotAllowed", "Changing property 'location' is not allowed.")
        if source and source.lower() != _source(old["properties"]["storageProfile"]).lower():
            raise ArmError(409, "PropertyChangeNotAllowed", "Changing property 'storageProfile' is not allowed.")
    profile = _profile(properties.get("publishingProfile", {}), location)
    storage = old["properties"]["storageProfile"] if old else properties["storageProfile"]
    return _store(
        world, call, old, location, {"storageProfile": storage, "publishingProfile": profile}, body.get("tags")
    )


def patch(world: World, call: Call) -> Response:
    """Change only what is said; tags are replaced when said."""
    old = world.resources.get(_id(call))
    body = call.request.json()
    said = body.get("properties", {}).get("publishingProfile", {})
    profile = _profile({**old["properties"]["publishingProfile"], **said}, old["location"])
    properties = {"storageProfile": old["properties"]["storageProfile"], "publishingProfile": profile}
    return _store(world, call, old, old["location"], properties, body.get("tags", old["tags"]))


def get(world: World, call: Call) -> Response:
    world.resources.get(_id(call))
    world.operations.touch(_id(call))
    found = world.resources.get(_id(call))
    if call.request.query.get("$expand", "").lower() != "replicationstatus":
        return Response.of_json(200, found)
    properties = {**found["properties"], "replicationStatus": _replication(world, found)}
    return Response.of_json(200, {**found, "properties": properties})


def list_all(world: World, call: Call) -> Response:
    definition = call.id(DEFINITION, "gallery", "image")
    world.resources.get(definition)
    return Response.of_json(200, {"value": world.resources.children(f"{definition}/versions")})


def delete(world: World, call: Call) -> Response:
    if not world.resources.remove(_id(call)):
        raise not_found(_id(call))
    world.replicated.pop(_id(call).lower(), None)
    return Response(200)


def _id(call: Call) -> str:
    return call.id(VERSION, "gallery", "image", "version")


def _bad(message: str) -> ArmError:
    return ArmError(400, "InvalidParameter", message)


def _check_name(name: str) -> None:
    match = _NAME.match(name)
    if match is None or any(int(part) > _LARGEST for part in match.groups()):
        raise _bad(f"The gallery image version name '{name}' is not three integers major.minor.patch.")


def _source(storage: Resource) -> str:
    source = storage.get("source") or {}
    return str(source.get("virtualMachineId") or source.get("id") or "")


def _check_source(world: World, definition: Resource, source: str, location: str) -> None:
    machine = world.resources.find(source)
    state = world.machines.get(source.lower())
    if machine is None or state is None:
        raise ArmError(404, "NotFound", f"The source '{source}' of the image version is not a virtual machine here.")
    if machine["location"] != location:
        raise _bad(f"The source machine is in {machine['location']}, the image version in {location}.")
    if state.power != "deallocated":
        raise ArmError(409, "OperationNotAllowed", f"The source machine '{machine['name']}' is not deallocated.")
    wanted: Resource = definition["properties"]
    if wanted["osState"] == "Generalized" and not state.generalized:
        raise ArmError(409, "OperationNotAllowed", f"The source machine '{machine['name']}' is not generalized.")
    if wanted["hyperVGeneration"] != state.generation:
        raise _bad(f"The machine is of generation {state.generation}, the definition of {wanted['hyperVGeneration']}.")
    security = {each["value"] for each in wanted.get("features", []) if each["name"] == "SecurityType"}
    if state.security_type == "TrustedLaunch" and not security & set(_TRUSTED):
        raise _bad("The machine's security type is TrustedLaunch, the image definition does not support it.")


def _profile(said: Resource, location: str) -> Resource:
    targets: list[Resource] = []
    for target in said.get("targetRegions") or [{"name": location}]:
        name = region(target.get("name"))
        if any(each["name"] == REGIONS[name] for each in targets):
            raise _bad(f"The target region '{REGIONS[name]}' is there twice.")
        targets.append(
            {"regionalReplicaCount": 1, "storageAccountType": "Standard_LRS", **target, "name": REGIONS[name]}
        )
    if all(each["name"] != REGIONS[location] for each in targets):
        raise _bad(f"The region of the image version, '{REGIONS[location]}', must be among its target regions.")
    defaults: Resource = {"replicaCount": 1, "excludeFromLatest": False, "storageAccountType": "Standard_LRS"}
    return {**defaults, **said, "targetRegions": targets}


def _store(world: World, call: Call, old: Resource | None, location: str, properties: Resource, tags: Json) -> Response:
    name = "/".join(call.names[key] for key in ("gallery", "image", "version"))
    made = new_resource(call.group, VERSION, name, location, properties, tags)
    made["properties"]["provisioningState"] = "Updating" if old else "Creating"
    world.resources.put(made)

    def finish() -> None:
        # A later PUT took its place: that one's operation says when it is done.
        if world.resources.find(made["id"]) is made:
            made["properties"]["provisioningState"] = "Succeeded"
            world.replicated[made["id"].lower()] = frozenset(each["name"] for each in _targets(made))

    headers = world.operations.start(made["id"], location, world.options.looks, finish)
    return Response.of_json(200 if old else 201, made, headers=headers)


def _targets(version: Resource) -> list[Resource]:
    targets: list[Resource] = version["properties"]["publishingProfile"]["targetRegions"]
    return targets


def _replication(world: World, version: Resource) -> Resource:
    done = world.replicated.get(version["id"].lower(), frozenset())
    summary = []
    for target in _targets(version):
        there = target["name"] in done
        state = "Completed" if there else "Replicating"
        summary.append({"region": target["name"], "state": state, "details": "", "progress": 100 if there else 50})
    complete = all(each["state"] == "Completed" for each in summary)
    return {"aggregatedState": "Completed" if complete else "InProgress", "summary": summary}
