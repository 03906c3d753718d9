"""Gallery image versions: made from a generalised machine, then replicated and shown by updates of their profile."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from imagegen.rehearsal.clouds.azure.errors import ArmError, not_found
from imagegen.rehearsal.clouds.azure.galleries import DEFINITION
from imagegen.rehearsal.clouds.azure.resources import REGIONS, Resource, new_resource, region
from imagegen.rehearsal.network.messages import Response

if TYPE_CHECKING:
    from imagegen.rehearsal.clouds.azure.world import Call, World
    from imagegen.rehearsal.network.messages import Json

VERSION = "Microsoft.Compute/galleries/images/versions"
_NAME = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)\Z")
_LARGEST = 2**31 - 1
_STANDARD = "Standard"
_SUPPORTED = "Supported"


def put(world: World, call: Call) -> Response:
    """Create a version, or update one: an update says the whole again, and cannot say another source."""
    body = call.request.json()
    definition = world.resources.get(call.id(DEFINITION, "gallery", "image"))
    _check_name(call.names["version"])
    location = region(body.get("location"))
    properties = body.get("properties", {})
    old = world.resources.find(_id(call))
    _check_idle(old)
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
    _check_idle(old)
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


def _check_idle(version: Resource | None) -> None:
    """One write at a time."""
    if version is not None and version["properties"]["provisioningState"] in ("Creating", "Updating"):
        message = f"The image version '{version['name']}' is being written by another request."
        raise ArmError(409, "Conflict", message)


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
    _check_kind(wanted, state.security_type or _STANDARD, source)


def _check_kind(wanted: Resource, has: str, source: str) -> None:
    """Every machine here is an x64 one with Windows."""
    for key, here in (("osType", "Windows"), ("architecture", "x64")):
        if wanted[key] != here:
            raise _bad(f"The {key} of the source is {here}, the image definition's is {wanted[key]}.")
    features = {each["name"]: str(each["value"]) for each in wanted.get("features", [])}
    security = features.get("SecurityType", _STANDARD)
    if security.endswith(_SUPPORTED):
        # Recorded in packer-plugin-azure#304 and microsoft/STL#4682.
        raise _bad(
            f"The security type '{security}' is not supported for the source id '{source}'. Currently only Vhd Blob, "
            f"User Image and Gallery Image Version sources are supported for '{security}' images."
        )
    if security != has:
        raise _bad(f"The machine's security type is {has}, the image definition's {security}.")


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
        # It may have been deleted meanwhile.
        if world.resources.find(made["id"]) is made:
            _finish(world, made)

    headers = world.operations.start(made["id"], location, world.options.looks, finish)
    return Response.of_json(200 if old else 201, made, headers=headers)


def _finish(world: World, version: Resource) -> None:
    """A version whose own region fails has no bytes to replicate, now or later."""
    short = {target["name"]: region(target["name"]) for target in _targets(version)}
    failed = {name for name, key in short.items() if key in world.options.failing}
    home = REGIONS[version["location"]]
    done = frozenset() if home in failed else frozenset(short) - failed
    version["properties"]["provisioningState"] = "Failed" if failed else "Succeeded"
    world.replicated[version["id"].lower()] = done


def _targets(version: Resource) -> list[Resource]:
    targets: list[Resource] = version["properties"]["publishingProfile"]["targetRegions"]
    return targets


def _replication(world: World, version: Resource) -> Resource:
    done = world.replicated.get(version["id"].lower(), frozenset())
    ended = version["properties"]["provisioningState"] == "Failed"
    summary = []
    for target in _targets(version):
        name = target["name"]
        reason = world.options.failing.get(region(name), "") if ended and name not in done else ""
        state, progress = ("Failed", 0) if reason else ("Completed", 100) if name in done else ("Replicating", 50)
        summary.append({"region": name, "state": state, "details": reason, "progress": progress})
    states = {each["state"] for each in summary}
    whole = "Failed" if "Failed" in states else "Completed" if states == {"Completed"} else "InProgress"
    return {"aggregatedState": whole, "summary": summary}
