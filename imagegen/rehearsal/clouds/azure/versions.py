"""Gallery image versions, which are created from a generalised machine. Updates of their profile replicate them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from imagegen.rehearsal.clouds.azure.errors import ArmError, not_found
from imagegen.rehearsal.clouds.azure.galleries import DEFINITION
from imagegen.rehearsal.clouds.azure.resources import REGIONS, Resource, new_resource, region
from imagegen.rehearsal.network.messages import Response

if TYPE_CHECKING:
    from imagegen.rehearsal.clouds.azure.state import AzureState, Call
    from imagegen.rehearsal.network.messages import Json

VERSION = "Microsoft.Compute/galleries/images/versions"
_NAME = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)\Z")
_LARGEST = 2**31 - 1
_STANDARD = "Standard"
_SUPPORTED = "Supported"


def put(state: AzureState, call: Call) -> Response:
    """Create or update a version. An update contains all properties, and cannot change the source."""
    body = call.request.json()
    definition = state.resources.get(call.id(DEFINITION, "gallery", "image"))
    _check_name(call.names["version"])
    location = region(body.get("location"))
    properties = body.get("properties", {})
    old = state.resources.find(_id(call))
    _check_idle(old)
    source = _source(properties.get("storageProfile", {}))
    if old is None:
        if not source:
            raise _invalid("Required parameter 'galleryImageVersion.properties.storageProfile' is missing (null).")
        _check_source(state, definition, source, location)
    else:
        if location != old["location"]:
            raise ArmError(409, "PropertyChangeNotAllowed", "Changing property 'location' is not allowed.")
        if source and source.lower() != _source(old["properties"]["storageProfile"]).lower():
            raise ArmError(409, "PropertyChangeNotAllowed", "Changing property 'storageProfile' is not allowed.")
    profile = _make_profile(properties.get("publishingProfile", {}), location)
    storage = old["properties"]["storageProfile"] if old else properties["storageProfile"]
    return _store(
        state, call, old, location, {"storageProfile": storage, "publishingProfile": profile}, body.get("tags")
    )


def patch(state: AzureState, call: Call) -> Response:
    """Change the properties and tags in the request."""
    old = state.resources.get(_id(call))
    _check_idle(old)
    body = call.request.json()
    changes = body.get("properties", {}).get("publishingProfile", {})
    profile = _make_profile({**old["properties"]["publishingProfile"], **changes}, old["location"])
    properties = {"storageProfile": old["properties"]["storageProfile"], "publishingProfile": profile}
    return _store(state, call, old, old["location"], properties, body.get("tags", old["tags"]))


def get(state: AzureState, call: Call) -> Response:
    state.resources.get(_id(call))
    state.operations.touch(_id(call))
    version = state.resources.get(_id(call))
    if call.request.query.get("$expand", "").lower() != "replicationstatus":
        return Response.of_json(200, version)
    properties = {**version["properties"], "replicationStatus": _replication(state, version)}
    return Response.of_json(200, {**version, "properties": properties})


def list_all(state: AzureState, call: Call) -> Response:
    definition = call.id(DEFINITION, "gallery", "image")
    state.resources.get(definition)
    return Response.of_json(200, {"value": state.resources.children(f"{definition}/versions")})


def delete(state: AzureState, call: Call) -> Response:
    if not state.resources.remove(_id(call)):
        raise not_found(_id(call))
    state.replicated.pop(_id(call).lower(), None)
    return Response(200)


def _check_idle(version: Resource | None) -> None:
    """Reject a request while the version is being created or updated."""
    if version is not None and version["properties"]["provisioningState"] in ("Creating", "Updating"):
        message = f"The image version '{version['name']}' is being written by another request."
        raise ArmError(409, "Conflict", message)


def _id(call: Call) -> str:
    return call.id(VERSION, "gallery", "image", "version")


def _invalid(message: str) -> ArmError:
    return ArmError(400, "InvalidParameter", message)


def _check_name(name: str) -> None:
    match = _NAME.match(name)
    if match is None or any(int(part) > _LARGEST for part in match.groups()):
        raise _invalid(f"The gallery image version name '{name}' is not three integers major.minor.patch.")


def _source(storage: Resource) -> str:
    source = storage.get("source") or {}
    return str(source.get("virtualMachineId") or source.get("id") or "")


def _check_source(state: AzureState, definition: Resource, source: str, location: str) -> None:
    machine = state.resources.find(source)
    vm = state.machines.get(source.lower())
    if machine is None or vm is None:
        raise ArmError(404, "NotFound", f"The source '{source}' of the image version is not a virtual machine here.")
    if machine["location"] != location:
        raise _invalid(f"The source machine is in {machine['location']}, the image version in {location}.")
    if vm.power != "deallocated":
        raise ArmError(409, "OperationNotAllowed", f"The source machine '{machine['name']}' is not deallocated.")
    required: Resource = definition["properties"]
    if required["osState"] == "Generalized" and not vm.generalized:
        raise ArmError(409, "OperationNotAllowed", f"The source machine '{machine['name']}' is not generalized.")
    if required["hyperVGeneration"] != vm.generation:
        raise _invalid(
            f"The machine is of generation {vm.generation}, the definition of {required['hyperVGeneration']}."
        )
    _check_kind(required, vm.security_type or _STANDARD, source)


def _check_kind(required: Resource, security_type: str, source: str) -> None:
    """Compare the definition with the machine, which always has Windows and x64."""
    for key, actual in (("osType", "Windows"), ("architecture", "x64")):
        if required[key] != actual:
            raise _invalid(f"The {key} of the source is {actual}, the image definition's is {required[key]}.")
    features = {feature["name"]: str(feature["value"]) for feature in required.get("features", [])}
    security = features.get("SecurityType", _STANDARD)
    if security.endswith(_SUPPORTED):
        # Recorded in packer-plugin-azure#304 and microsoft/STL#4682.
        raise _invalid(
            f"The security type '{security}' is not supported for the source id '{source}'. Currently only Vhd Blob, "
            f"User Image and Gallery Image Version sources are supported for '{security}' images."
        )
    if security != security_type:
        raise _invalid(f"The machine's security type is {security_type}, the image definition's {security}.")


def _make_profile(profile: Resource, location: str) -> Resource:
    targets: list[Resource] = []
    for target in profile.get("targetRegions") or [{"name": location}]:
        name = region(target.get("name"))
        if any(known["name"] == REGIONS[name] for known in targets):
            raise _invalid(f"The target region '{REGIONS[name]}' is there twice.")
        targets.append(
            {"regionalReplicaCount": 1, "storageAccountType": "Standard_LRS", **target, "name": REGIONS[name]}
        )
    if all(known["name"] != REGIONS[location] for known in targets):
        raise _invalid(f"The region of the image version, '{REGIONS[location]}', must be among its target regions.")
    defaults: Resource = {"replicaCount": 1, "excludeFromLatest": False, "storageAccountType": "Standard_LRS"}
    return {**defaults, **profile, "targetRegions": targets}


def _store(
    state: AzureState, call: Call, old: Resource | None, location: str, properties: Resource, tags: Json
) -> Response:
    name = "/".join(call.names[key] for key in ("gallery", "image", "version"))
    version = new_resource(call.group, VERSION, name, location, properties, tags)
    version["properties"]["provisioningState"] = "Updating" if old else "Creating"
    state.resources.put(version)

    def finish() -> None:
        # The version may have been deleted or replaced meanwhile.
        if state.resources.find(version["id"]) is version:
            _finish(state, version)

    headers = state.operations.start(version["id"], location, state.options.replication_polls, finish)
    return Response.of_json(200 if old else 201, version, headers=headers)


def _finish(state: AzureState, version: Resource) -> None:
    """Finish a version. If its own region fails, no region can have a replica."""
    regions = {target["name"]: region(target["name"]) for target in _targets(version)}
    failed = {name for name, key in regions.items() if key in state.options.failing_regions}
    home = REGIONS[version["location"]]
    done = frozenset() if home in failed else frozenset(regions) - failed
    version["properties"]["provisioningState"] = "Failed" if failed else "Succeeded"
    state.replicated[version["id"].lower()] = done


def _targets(version: Resource) -> list[Resource]:
    targets: list[Resource] = version["properties"]["publishingProfile"]["targetRegions"]
    return targets


def _replication(state: AzureState, version: Resource) -> Resource:
    done = state.replicated.get(version["id"].lower(), frozenset())
    ended = version["properties"]["provisioningState"] == "Failed"
    summary = []
    for target in _targets(version):
        name = target["name"]
        reason = state.options.failing_regions.get(region(name), "") if ended and name not in done else ""
        status, progress = ("Failed", 0) if reason else ("Completed", 100) if name in done else ("Replicating", 50)
        summary.append({"region": name, "state": status, "details": reason, "progress": progress})
    statuses = {row["state"] for row in summary}
    aggregated = "Failed" if "Failed" in statuses else "Completed" if statuses == {"Completed"} else "InProgress"
    return {"aggregatedState": aggregated, "summary": summary}
