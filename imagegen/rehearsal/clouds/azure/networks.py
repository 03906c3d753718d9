"""Addresses, interfaces, networks and security groups: made by a deployment, looked at, deleted."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from imagegen.rehearsal.clouds.azure import uses
from imagegen.rehearsal.clouds.azure.errors import ArmError
from imagegen.rehearsal.clouds.azure.resources import GroupId, Resource, new_resource
from imagegen.rehearsal.network.machine import WINRM_PORT
from imagegen.rehearsal.network.messages import Response

if TYPE_CHECKING:
    from imagegen.rehearsal.clouds.azure.world import Call, World

ADDRESS = "Microsoft.Network/publicIPAddresses"
INTERFACE = "Microsoft.Network/networkInterfaces"
NETWORK = "Microsoft.Network/virtualNetworks"
SECURITY_GROUP = "Microsoft.Network/networkSecurityGroups"
# A documentation network: nothing real has these addresses.
_PUBLIC = ipaddress.ip_network("198.51.100.0/24")
_PRIVATE = ipaddress.ip_network("10.0.0.0/24")
# The first addresses of a subnet are Azure's own.
_RESERVED = 4


def create_address(world: World, group: GroupId, name: str, spec: Resource) -> Resource:
    world.addresses_given += 1
    if world.addresses_given > _PUBLIC.num_addresses - 2:
        raise ArmError(400, "PublicIPCountLimitReached", "Cannot create more public IP addresses.")
    properties = {**spec.get("properties", {}), "ipAddress": str(_PUBLIC[world.addresses_given])}
    made = new_resource(group, ADDRESS, name, spec["location"], properties, spec.get("tags"))
    return {**made, **({"sku": spec["sku"]} if "sku" in spec else {})}


def create_network(world: World, group: GroupId, name: str, spec: Resource) -> Resource:
    properties = dict(spec.get("properties", {}))
    own = group.resource(NETWORK, name)
    properties["subnets"] = [{**each, "id": f"{own}/subnets/{each['name']}"} for each in properties.get("subnets", [])]
    for subnet in properties["subnets"]:
        guard = subnet.get("properties", {}).get("networkSecurityGroup")
        if guard is not None:
            world.resources.get(guard["id"])
    return new_resource(group, NETWORK, name, spec["location"], properties, spec.get("tags"))


def create_security_group(world: World, group: GroupId, name: str, spec: Resource) -> Resource:
    del world  # every creator is called alike
    return new_resource(group, SECURITY_GROUP, name, spec["location"], spec.get("properties", {}), spec.get("tags"))


def create_interface(world: World, group: GroupId, name: str, spec: Resource) -> Resource:
    properties = dict(spec.get("properties", {}))
    shown = []
    for configuration in properties.get("ipConfigurations", []):
        wanted = configuration.get("properties", {})
        find_subnet(world, wanted.get("subnet", {}).get("id", ""))
        if "publicIPAddress" in wanted:
            world.resources.get(wanted["publicIPAddress"]["id"])
        shown.append({**configuration, "properties": {**wanted, "privateIPAddress": _private_address(world)}})
    properties["ipConfigurations"] = shown
    return new_resource(group, INTERFACE, name, spec["location"], properties, spec.get("tags"))


def _private_address(world: World) -> str:
    """Another one for each interface: machines are told apart by their addresses."""
    number = world.private_addresses_given + _RESERVED
    if number > _PRIVATE.num_addresses - 2:
        raise ArmError(400, "SubnetIsFull", "The subnet does not have enough capacity for 1 IP addresses.")
    world.private_addresses_given += 1
    return str(_PRIVATE[number])


def list_all(world: World, call: Call) -> Response:
    """Every network of the subscription: a client that knows a name only looks for its group."""
    del call  # every handler is called alike
    return Response.of_json(200, {"value": world.resources.of_type(NETWORK)})


def list_subnets(world: World, call: Call) -> Response:
    return Response.of_json(200, {"value": world.resources.get(call.id(NETWORK, "name"))["properties"]["subnets"]})


def find_subnet(world: World, subnet_id: str) -> Resource:
    """A subnet by its id; its network must exist."""
    network_id, _, _ = subnet_id.partition("/subnets/")
    for subnet in world.resources.get(network_id)["properties"]["subnets"]:
        if subnet["id"].lower() == subnet_id.lower():
            found: Resource = subnet
            return found
    raise ArmError(400, "InvalidResourceReference", f"Resource {subnet_id} was not found.")


def get(kind: str, world: World, call: Call) -> Response:
    return Response.of_json(200, world.resources.get(call.id(kind, "name")))


def delete(kind: str, world: World, call: Call) -> Response:
    world.group(call.group)
    uses.refuse_used(world, call.id(kind, "name"), kind)
    # Azure says 204 for what was not there as well.
    world.resources.remove(call.id(kind, "name"))
    return Response(204)


def address(world: World, interface: Resource) -> str:
    """The address by which an interface is reached: its public one, or its private one where it has no other."""
    configurations = interface["properties"]["ipConfigurations"]
    return _public_address(world, interface) or str(configurations[0]["properties"]["privateIPAddress"])


def _public_address(world: World, interface: Resource) -> str:
    for configuration in interface["properties"]["ipConfigurations"]:
        found = configuration["properties"].get("publicIPAddress")
        if found is not None:
            return str(world.resources.get(found["id"])["properties"]["ipAddress"])
    return ""


def _network_of(interface: Resource) -> str:
    subnet_id = str(interface["properties"]["ipConfigurations"][0]["properties"]["subnet"]["id"])
    return subnet_id.partition("/subnets/")[0].rpartition("/")[2]


def why_closed(world: World, interface: Resource) -> str:
    """Why WinRM's port is shut on an interface; "" when the operator gets there and every security group admits it."""
    operator = world.options.operator
    network = _network_of(interface)
    if not _public_address(world, interface) and network.lower() != world.options.inside.lower():
        return f"the machine has no public address, and the operator is not in its network {network}"
    guards = [interface["properties"].get("networkSecurityGroup")]
    for configuration in interface["properties"]["ipConfigurations"]:
        subnet = find_subnet(world, configuration["properties"].get("subnet", {}).get("id", ""))
        guards.append(subnet.get("properties", {}).get("networkSecurityGroup"))
    for guard in (each for each in guards if each is not None):
        group = world.resources.get(guard["id"])
        if not any(
            _admits(rule.get("properties", {}), operator) for rule in group["properties"].get("securityRules", [])
        ):
            return f"network security group {group['name']} has no rule for TCP {WINRM_PORT} from {operator}"
    return ""


def _admits(rule: Resource, operator: str) -> bool:
    if str(rule.get("access")).lower() != "allow" or str(rule.get("direction")).lower() != "inbound":
        return False
    if str(rule.get("protocol")).lower() not in ("tcp", "*"):
        return False
    ports = [str(each) for each in (rule.get("destinationPortRange"), *rule.get("destinationPortRanges", [])) if each]
    sources = [str(each) for each in (rule.get("sourceAddressPrefix"), *rule.get("sourceAddressPrefixes", [])) if each]
    return any(_covers_port(each) for each in ports) and any(_covers_source(each, operator) for each in sources)


def _covers_port(ports: str) -> bool:
    if ports == "*":
        return True
    first, _, last = ports.partition("-")
    return int(first) <= WINRM_PORT <= int(last or first)


def _covers_source(source: str, operator: str) -> bool:
    if source in ("*", "Internet", "0.0.0.0/0"):
        return True
    try:
        return ipaddress.ip_address(operator) in ipaddress.ip_network(source, strict=False)
    except ValueError:
        # A service tag other than the internet's is nobody outside.
        return False
