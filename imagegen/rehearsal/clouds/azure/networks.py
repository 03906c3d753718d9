"""Public addresses, network interfaces, virtual networks and network security groups."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from imagegen.rehearsal.clouds.azure import usage_check
from imagegen.rehearsal.clouds.azure.errors import ArmError
from imagegen.rehearsal.clouds.azure.resources import GroupId, Resource, new_resource
from imagegen.rehearsal.network.machine import WINRM_PORT
from imagegen.rehearsal.network.messages import Response

if TYPE_CHECKING:
    from imagegen.rehearsal.clouds.azure.state import AzureState, Call

ADDRESS = "Microsoft.Network/publicIPAddresses"
INTERFACE = "Microsoft.Network/networkInterfaces"
NETWORK = "Microsoft.Network/virtualNetworks"
SECURITY_GROUP = "Microsoft.Network/networkSecurityGroups"
# A range for documentation, which no real machine has.
_PUBLIC = ipaddress.ip_network("198.51.100.0/24")
_PRIVATE = ipaddress.ip_network("10.0.0.0/24")
# Azure reserves the first addresses of a subnet.
_RESERVED = 4


def create_address(state: AzureState, group: GroupId, name: str, spec: Resource) -> Resource:
    state.addresses_given += 1
    if state.addresses_given > _PUBLIC.num_addresses - 2:
        raise ArmError(400, "PublicIPCountLimitReached", "Cannot create more public IP addresses.")
    properties = {**spec.get("properties", {}), "ipAddress": str(_PUBLIC[state.addresses_given])}
    address = new_resource(group, ADDRESS, name, spec["location"], properties, spec.get("tags"))
    return {**address, **({"sku": spec["sku"]} if "sku" in spec else {})}


def create_network(state: AzureState, group: GroupId, name: str, spec: Resource) -> Resource:
    properties = dict(spec.get("properties", {}))
    network_id = group.resource(NETWORK, name)
    properties["subnets"] = [
        {**subnet, "id": f"{network_id}/subnets/{subnet['name']}"} for subnet in properties.get("subnets", [])
    ]
    for subnet in properties["subnets"]:
        security_group = subnet.get("properties", {}).get("networkSecurityGroup")
        if security_group is not None:
            state.resources.get(security_group["id"])
    return new_resource(group, NETWORK, name, spec["location"], properties, spec.get("tags"))


def create_security_group(state: AzureState, group: GroupId, name: str, spec: Resource) -> Resource:
    del state  # all creators have the same parameters
    return new_resource(group, SECURITY_GROUP, name, spec["location"], spec.get("properties", {}), spec.get("tags"))


def create_interface(state: AzureState, group: GroupId, name: str, spec: Resource) -> Resource:
    properties = dict(spec.get("properties", {}))
    configurations = []
    for configuration in properties.get("ipConfigurations", []):
        requested = configuration.get("properties", {})
        find_subnet(state, requested.get("subnet", {}).get("id", ""))
        if "publicIPAddress" in requested:
            state.resources.get(requested["publicIPAddress"]["id"])
        configurations.append(
            {**configuration, "properties": {**requested, "privateIPAddress": _private_address(state)}}
        )
    properties["ipConfigurations"] = configurations
    return new_resource(group, INTERFACE, name, spec["location"], properties, spec.get("tags"))


def _private_address(state: AzureState) -> str:
    """A new address for each interface: machines are identified by their addresses."""
    number = state.private_addresses_given + _RESERVED
    if number > _PRIVATE.num_addresses - 2:
        raise ArmError(400, "SubnetIsFull", "The subnet does not have enough capacity for 1 IP addresses.")
    state.private_addresses_given += 1
    return str(_PRIVATE[number])


def list_all(state: AzureState, call: Call) -> Response:
    """List every network of the subscription, in which clients look for a network by its name."""
    del call  # all handlers have the same parameters
    return Response.of_json(200, {"value": state.resources.of_type(NETWORK)})


def list_subnets(state: AzureState, call: Call) -> Response:
    return Response.of_json(200, {"value": state.resources.get(call.id(NETWORK, "name"))["properties"]["subnets"]})


def find_subnet(state: AzureState, subnet_id: str) -> Resource:
    """Find a subnet by its id. Its network must exist."""
    network_id, _, _ = subnet_id.partition("/subnets/")
    for subnet in state.resources.get(network_id)["properties"]["subnets"]:
        if subnet["id"].lower() == subnet_id.lower():
            match: Resource = subnet
            return match
    raise ArmError(400, "InvalidResourceReference", f"Resource {subnet_id} was not found.")


def get(kind: str, state: AzureState, call: Call) -> Response:
    return Response.of_json(200, state.resources.get(call.id(kind, "name")))


def delete(kind: str, state: AzureState, call: Call) -> Response:
    state.group(call.group)
    usage_check.reject_used(state, call.id(kind, "name"), kind)
    # Azure says 204 for what was not there as well.
    state.resources.remove(call.id(kind, "name"))
    return Response(204)


def address(state: AzureState, interface: Resource) -> str:
    """The public address of an interface, or its private address if it has no public one."""
    configurations = interface["properties"]["ipConfigurations"]
    return _public_address(state, interface) or str(configurations[0]["properties"]["privateIPAddress"])


def _public_address(state: AzureState, interface: Resource) -> str:
    for configuration in interface["properties"]["ipConfigurations"]:
        reference = configuration["properties"].get("publicIPAddress")
        if reference is not None:
            return str(state.resources.get(reference["id"])["properties"]["ipAddress"])
    return ""


def _network_of(interface: Resource) -> str:
    subnet_id = str(interface["properties"]["ipConfigurations"][0]["properties"]["subnet"]["id"])
    return subnet_id.partition("/subnets/")[0].rpartition("/")[2]


def why_closed(state: AzureState, interface: Resource) -> str:
    """Why the WinRM port of an interface is closed to the operator; empty if it is open."""
    operator = state.options.operator
    network = _network_of(interface)
    if not _public_address(state, interface) and network.lower() != state.options.operator_network.lower():
        return f"the machine has no public address, and the operator is not in its network {network}"
    references = [interface["properties"].get("networkSecurityGroup")]
    for configuration in interface["properties"]["ipConfigurations"]:
        subnet = find_subnet(state, configuration["properties"].get("subnet", {}).get("id", ""))
        references.append(subnet.get("properties", {}).get("networkSecurityGroup"))
    for reference in (reference for reference in references if reference is not None):
        group = state.resources.get(reference["id"])
        if not any(
            _allows(rule.get("properties", {}), operator) for rule in group["properties"].get("securityRules", [])
        ):
            return f"network security group {group['name']} has no rule for TCP {WINRM_PORT} from {operator}"
    return ""


def _allows(rule: Resource, operator: str) -> bool:
    if str(rule.get("access")).lower() != "allow" or str(rule.get("direction")).lower() != "inbound":
        return False
    if str(rule.get("protocol")).lower() not in ("tcp", "*"):
        return False
    ports = [str(port) for port in (rule.get("destinationPortRange"), *rule.get("destinationPortRanges", [])) if port]
    sources = (rule.get("sourceAddressPrefix"), *rule.get("sourceAddressPrefixes", []))
    return any(_has_winrm_port(port) for port in ports) and any(
        _has_address(str(source), operator) for source in sources if source
    )


def _has_winrm_port(ports: str) -> bool:
    if ports == "*":
        return True
    first, _, last = ports.partition("-")
    return int(first) <= WINRM_PORT <= int(last or first)


def _has_address(source: str, operator: str) -> bool:
    if source in ("*", "Internet", "0.0.0.0/0"):
        return True
    try:
        return ipaddress.ip_address(operator) in ipaddress.ip_network(source, strict=False)
    except ValueError:
        # Service tags other than Internet do not include the operator.
        return False
