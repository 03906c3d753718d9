"""Virtual machines and their disks. A deployment creates them; other requests stop, generalise and delete them."""

from __future__ import annotations

from imagegen.rehearsal.clouds.azure import listener, marketplace, networks
from imagegen.rehearsal.clouds.azure.errors import ArmError, not_found
from imagegen.rehearsal.clouds.azure.resources import GroupId, Resource, new_resource
from imagegen.rehearsal.clouds.azure.state import AzureState, Call, VmState
from imagegen.rehearsal.network.machine import MachineIdentity
from imagegen.rehearsal.network.messages import Response

MACHINE = "Microsoft.Compute/virtualMachines"
EXTENSION = "Microsoft.Compute/virtualMachines/extensions"
DISK = "Microsoft.Compute/disks"


def create(state: AzureState, group: GroupId, name: str, spec: Resource) -> Resource:
    """Create a machine of a deployment, and start its guest."""
    properties = spec["properties"]
    profile = properties.get("osProfile", {})
    if not 1 <= len(str(profile.get("computerName", ""))) <= 15:
        raise ArmError(400, "InvalidParameter", f"Windows computer name of {name} cannot be more than 15 characters.")
    if not profile.get("adminUsername") or not profile.get("adminPassword"):
        raise ArmError(400, "InvalidParameter", f"Required parameter 'adminPassword' of {name} is missing.")
    reference = marketplace.resolve(state, properties["storageProfile"].get("imageReference", {}))
    security = str(properties.get("securityProfile", {}).get("securityType", ""))
    if security == "TrustedLaunch" and reference.generation != "V2":
        raise ArmError(400, "BadRequest", "Security type TrustedLaunch is supported on generation 2 images only.")
    interfaces = [
        state.resources.get(reference["id"]) for reference in properties["networkProfile"]["networkInterfaces"]
    ]
    winrm = listener.read_listener(state, profile)
    identity = MachineIdentity(
        cloud="azure",
        name=group.resource(MACHINE, name),
        address=networks.address(state, interfaces[0]),
        image=reference.name,
        username=str(profile["adminUsername"]),
        password=str(profile["adminPassword"]),
        user_data=listener.read_user_data(properties),
        certificate=winrm.certificate,
    )
    reasons = (networks.why_closed(state, interface) for interface in interfaces)
    why_closed = winrm.missing or next(filter(None, reasons), "")
    machine = new_resource(
        group, MACHINE, name, spec["location"], _make_properties(state, group, spec), spec.get("tags")
    )
    state.machines[machine["id"].lower()] = VmState(identity, reference.generation, security, why_closed)
    state.on_machine(identity)
    return machine


def _make_properties(state: AzureState, group: GroupId, spec: Resource) -> Resource:
    properties = spec["properties"]
    storage = {**properties["storageProfile"]}
    system = {**storage["osDisk"]}
    storage["osDisk"] = {**system, "managedDisk": _create_disk(state, group, system, spec["location"])}
    storage["dataDisks"] = [
        {**disk, "managedDisk": _create_disk(state, group, disk, spec["location"])}
        for disk in storage.get("dataDisks") or []
    ]
    hidden = ("adminPassword", "customData")
    profile = {key: value for key, value in properties["osProfile"].items() if key not in hidden}
    return {**properties, "storageProfile": storage, "osProfile": profile}


def _create_disk(state: AzureState, group: GroupId, spec: Resource, location: str) -> Resource:
    if spec.get("managedDisk") is None:
        raise ArmError(400, "InvalidParameter", f"The disk '{spec.get('name')}' is not a managed disk.")
    key = spec["managedDisk"].get("diskEncryptionSet")
    if key is not None and state.resources.get(key["id"])["location"] != location:
        raise ArmError(
            400, "BadRequest", f"The disk encryption set '{key['id']}' is not in {location}, as the disk is."
        )
    disk = new_resource(group, DISK, spec["name"], location, {"diskState": "Attached"}, None)
    return {**spec["managedDisk"], "id": state.resources.put(disk)["id"]}


def create_extension(state: AzureState, group: GroupId, name: str, spec: Resource) -> Resource:
    state.resources.get(group.resource(MACHINE, name.partition("/")[0]))
    return new_resource(group, EXTENSION, name, spec["location"], spec.get("properties", {}), spec.get("tags"))


def get(state: AzureState, call: Call) -> Response:
    machine = state.resources.get(call.id(MACHINE, "name"))
    if call.request.query.get("$expand", "").lower() != "instanceview":
        return Response.of_json(200, machine)
    view = _view(_find_vm(state, call))
    return Response.of_json(200, {**machine, "properties": {**machine["properties"], "instanceView": view}})


def get_view(state: AzureState, call: Call) -> Response:
    return Response.of_json(200, _view(_find_vm(state, call)))


def _find_vm(state: AzureState, call: Call) -> VmState:
    resource_id = call.id(MACHINE, "name")
    vm = state.machines.get(resource_id.lower())
    if vm is None:
        raise not_found(resource_id)
    state.operations.touch(resource_id)
    return vm


def _view(vm: VmState) -> Resource:
    codes = ["OSState/generalized"] if vm.generalized else []
    codes += ["ProvisioningState/succeeded", f"PowerState/{vm.power}"]
    return {"statuses": [{"code": code, "level": "Info", "displayStatus": code.partition("/")[2]} for code in codes]}


def stop(power: str, state: AzureState, call: Call) -> Response:
    """Stop a machine. powerOff and deallocate are long-running operations."""
    vm = _find_vm(state, call)

    def finish() -> None:
        vm.power = power

    resource_id = call.id(MACHINE, "name")
    location = state.resources.get(resource_id)["location"]
    return Response(202, headers=tuple(state.operations.start(resource_id, location, 0, finish).items()))


def generalize(state: AzureState, call: Call) -> Response:
    vm = _find_vm(state, call)
    if vm.power == "running":
        raise ArmError(409, "OperationNotAllowed", f"VM '{call.names['name']}' must be stopped to be generalized.")
    vm.generalized = True
    return Response(200)


def delete(state: AzureState, call: Call) -> Response:
    resource_id = call.id(MACHINE, "name")
    state.machines.pop(resource_id.lower(), None)
    state.resources.remove(resource_id)
    return Response(204)
