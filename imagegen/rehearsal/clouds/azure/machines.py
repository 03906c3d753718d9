"""Virtual machines and their disks: made by a deployment with all they refer to, stopped, generalised, deleted."""

from __future__ import annotations

from imagegen.rehearsal.clouds.azure import listener, marketplace, networks
from imagegen.rehearsal.clouds.azure.errors import ArmError, not_found
from imagegen.rehearsal.clouds.azure.resources import GroupId, Resource, new_resource
from imagegen.rehearsal.clouds.azure.world import Call, VmState, World
from imagegen.rehearsal.network.machine import MachineIdentity
from imagegen.rehearsal.network.messages import Response

MACHINE = "Microsoft.Compute/virtualMachines"
EXTENSION = "Microsoft.Compute/virtualMachines/extensions"
DISK = "Microsoft.Compute/disks"


def create(world: World, group: GroupId, name: str, spec: Resource) -> Resource:
    """A machine of a deployment: it starts at once, and whoever plays it is told."""
    wanted = spec["properties"]
    profile = wanted.get("osProfile", {})
    if not 1 <= len(str(profile.get("computerName", ""))) <= 15:
        raise ArmError(400, "InvalidParameter", f"Windows computer name of {name} cannot be more than 15 characters.")
    if not profile.get("adminUsername") or not profile.get("adminPassword"):
        raise ArmError(400, "InvalidParameter", f"Required parameter 'adminPassword' of {name} is missing.")
    reference = marketplace.resolve(world, wanted["storageProfile"].get("imageReference", {}))
    security = str(wanted.get("securityProfile", {}).get("securityType", ""))
    if security == "TrustedLaunch" and reference.generation != "V2":
        raise ArmError(400, "BadRequest", "Security type TrustedLaunch is supported on generation 2 images only.")
    interfaces = [world.resources.get(each["id"]) for each in wanted["networkProfile"]["networkInterfaces"]]
    found = listener.of_machine(world, profile)
    identity = MachineIdentity(
        cloud="azure",
        name=group.resource(MACHINE, name),
        address=networks.address(world, interfaces[0]),
        image=reference.name,
        username=str(profile["adminUsername"]),
        password=str(profile["adminPassword"]),
        user_data=listener.user_data(wanted),
        certificate=found.certificate,
    )
    shut = found.missing or next(filter(None, (networks.why_closed(world, each) for each in interfaces)), "")
    made = new_resource(group, MACHINE, name, spec["location"], _shown(world, group, spec), spec.get("tags"))
    world.machines[made["id"].lower()] = VmState(identity, reference.generation, security, shut)
    world.on_machine(identity)
    return made


def _shown(world: World, group: GroupId, spec: Resource) -> Resource:
    wanted = spec["properties"]
    storage = {**wanted["storageProfile"]}
    system = {**storage["osDisk"]}
    storage["osDisk"] = {**system, "managedDisk": _disk(world, group, system, spec["location"])}
    storage["dataDisks"] = [
        {**each, "managedDisk": _disk(world, group, each, spec["location"])} for each in storage.get("dataDisks") or []
    ]
    hidden = ("adminPassword", "customData")
    profile = {key: value for key, value in wanted["osProfile"].items() if key not in hidden}
    return {**wanted, "storageProfile": storage, "osProfile": profile}


def _disk(world: World, group: GroupId, wanted: Resource, location: str) -> Resource:
    if wanted.get("managedDisk") is None:
        raise ArmError(400, "InvalidParameter", f"The disk '{wanted.get('name')}' is not a managed disk.")
    key = wanted["managedDisk"].get("diskEncryptionSet")
    if key is not None and world.resources.get(key["id"])["location"] != location:
        raise ArmError(
            400, "BadRequest", f"The disk encryption set '{key['id']}' is not in {location}, as the disk is."
        )
    disk = new_resource(group, DISK, wanted["name"], location, {"diskState": "Attached"}, None)
    return {**wanted["managedDisk"], "id": world.resources.put(disk)["id"]}


def create_extension(world: World, group: GroupId, name: str, spec: Resource) -> Resource:
    world.resources.get(group.resource(MACHINE, name.partition("/")[0]))
    return new_resource(group, EXTENSION, name, spec["location"], spec.get("properties", {}), spec.get("tags"))


def get(world: World, call: Call) -> Response:
    machine = world.resources.get(call.id(MACHINE, "name"))
    if call.request.query.get("$expand", "").lower() != "instanceview":
        return Response.of_json(200, machine)
    view = _view(_state(world, call))
    return Response.of_json(200, {**machine, "properties": {**machine["properties"], "instanceView": view}})


def get_view(world: World, call: Call) -> Response:
    return Response.of_json(200, _view(_state(world, call)))


def _state(world: World, call: Call) -> VmState:
    resource_id = call.id(MACHINE, "name")
    found = world.machines.get(resource_id.lower())
    if found is None:
        raise not_found(resource_id)
    world.operations.touch(resource_id)
    return found


def _view(state: VmState) -> Resource:
    codes = ["OSState/generalized"] if state.generalized else []
    codes += ["ProvisioningState/succeeded", f"PowerState/{state.power}"]
    return {"statuses": [{"code": code, "level": "Info", "displayStatus": code.partition("/")[2]} for code in codes]}


def stop(power: str, world: World, call: Call) -> Response:
    """powerOff and deallocate: long-running."""
    state = _state(world, call)

    def finish() -> None:
        state.power = power

    resource_id = call.id(MACHINE, "name")
    location = world.resources.get(resource_id)["location"]
    return Response(202, headers=tuple(world.operations.start(resource_id, location, 0, finish).items()))


def generalize(world: World, call: Call) -> Response:
    state = _state(world, call)
    if state.power == "running":
        raise ArmError(409, "OperationNotAllowed", f"VM '{call.names['name']}' must be stopped to be generalized.")
    state.generalized = True
    return Response(200)


def delete(world: World, call: Call) -> Response:
    resource_id = call.id(MACHINE, "name")
    world.machines.pop(resource_id.lower(), None)
    world.resources.remove(resource_id)
    return Response(204)
