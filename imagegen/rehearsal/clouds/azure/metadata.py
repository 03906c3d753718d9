"""The stand-in of Azure's instance metadata service (IMDS), for a machine without identity and public address.

Every supported version of the API has the fields of version 2021-02-01. Azure's service never gives custom data away.
"""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Final

from imagegen.rehearsal.machine.address import NODE_ADDRESS, NODE_NETWORK
from imagegen.rehearsal.network.messages import Json, Response

if TYPE_CHECKING:
    from imagegen.rehearsal.boot.model import Instance
    from imagegen.rehearsal.network.messages import Request

ADDRESS: Final = "169.254.169.254"
_VERSIONS = (
    *("2017-03-01", "2017-04-02", "2017-08-01", "2017-10-01", "2017-12-01", "2018-02-01", "2018-04-02", "2018-10-01"),
    *("2019-02-01", "2019-03-11", "2019-04-30", "2019-06-01", "2019-06-04", "2019-08-01", "2019-08-15", "2019-11-01"),
    *("2020-06-01", "2020-07-15", "2020-09-01", "2020-10-01", "2020-12-01", "2021-01-01", "2021-02-01", "2021-03-01"),
    *("2021-05-01", "2021-10-01", "2021-11-01", "2021-11-15", "2021-12-13", "2023-07-01", "2023-11-15"),
)
_NEWEST = 3
_MORE = "For more information refer to aka.ms/azureimds"
_SUBSCRIPTION = "11111111-2222-3333-4444-555555555555"
_GROUP = "cluster"


class InstanceMetadata:
    """The metadata of one machine."""

    def __init__(self, instance: Instance) -> None:
        self._document = _make_document(instance)

    def __call__(self, request: Request) -> Response:
        if request.headers.get("metadata", "").lower() != "true":
            return _error(400, "Bad request. Required metadata header not specified")
        if "x-forwarded-for" in request.headers:
            return _error(400, "Bad request. X-Forwarded-For is not supported")
        if request.method not in ("GET", "HEAD"):
            return _error(405, "Method not allowed")
        names = request.path.strip("/").split("/")
        if names == ["metadata", "versions"]:
            return Response.of_json(200, {"apiVersions": list(_VERSIONS)})
        if "api-version" not in request.query:
            return _wrong_version(f"api-version was not specified in the request. {_MORE}")
        if request.query["api-version"] not in _VERSIONS:
            return _wrong_version(f"api-version is invalid or was not specified in the request. {_MORE}")
        match names:
            case ["metadata", "instance", *rest]:
                return _answer(self._document, rest, request.query.get("format", "json"))
            case ["metadata", "scheduledevents"]:
                return Response.of_json(200, {"DocumentIncarnation": 1, "Events": []})
            case ["metadata", "identity", "oauth2", "token"]:
                problem = {"error": "invalid_request", "error_description": "Identity not found"}
                return Response.of_json(400, problem)
            case ["metadata", "attested", *_]:
                # Only Azure can sign an attested document.
                fault = f"the stand-in of {ADDRESS} has no key of Azure to sign {request.path}"
                return Response(500, fault.encode(), fault=fault)
            case _:
                return _error(404, "Not found")


def _make_document(instance: Instance) -> Json:
    vm_id = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{instance.instance_id}/vm"))
    group = f"/subscriptions/{_SUBSCRIPTION}/resourceGroups/{_GROUP}"
    compute = {
        "azEnvironment": "AzurePublicCloud",
        "customData": "",
        "evictionPolicy": "",
        "isHostCompatibilityLayerVm": "false",
        "location": "eastus",
        "name": instance.host_name,
        "offer": "",
        "osProfile": {
            "adminUsername": instance.admin_name,
            "computerName": instance.host_name,
            "disablePasswordAuthentication": "false",
        },
        "osType": "Windows",
        "placementGroupId": "",
        "plan": {"name": "", "product": "", "publisher": ""},
        "platformFaultDomain": "0",
        "platformUpdateDomain": "0",
        "priority": "",
        "provider": "Microsoft.Compute",
        "publicKeys": [{"keyData": key, "path": ""} for key in instance.public_keys.values()],
        "publisher": "",
        "resourceGroupName": _GROUP,
        "resourceId": f"{group}/providers/Microsoft.Compute/virtualMachines/{instance.host_name}",
        "securityProfile": {"secureBootEnabled": "false", "virtualTpmEnabled": "false"},
        "sku": "",
        "storageProfile": {"dataDisks": [], "osDisk": {"name": f"{instance.host_name}_OSDisk", "osType": "Windows"}},
        "subscriptionId": _SUBSCRIPTION,
        "tags": "",
        "tagsList": [],
        "userData": "",
        "version": "",
        "virtualMachineScaleSet": {"id": ""},
        "vmId": vm_id,
        "vmScaleSetName": "",
        "vmSize": "Standard_D4s_v5",
        "zone": "",
    }
    network, _, prefix = NODE_NETWORK.partition("/")
    address = {"privateIpAddress": NODE_ADDRESS, "publicIpAddress": ""}
    interface = {
        "ipv4": {"ipAddress": [address], "subnet": [{"address": network, "prefix": prefix}]},
        "ipv6": {"ipAddress": []},
        "macAddress": "000D3A123456",
    }
    return {"compute": compute, "network": {"interface": [interface]}}


def _answer(document: Json, names: list[str], form: str) -> Response:
    """Answer with a part of the document. JSON is only for objects and lists, and text only for names and values."""
    found = document
    for name in names:
        try:
            found = dict(enumerate(found))[int(name)] if isinstance(found, list) else found[name]
        except (KeyError, ValueError, TypeError):
            return _error(404, "Not found")
    if form == "json" and not isinstance(found, str):
        return Response.of_json(200, found)
    if form != "text":
        return _error(400, "Bad request. The format is not supported for this element")
    return Response.of_text(200, found if isinstance(found, str) else "\n".join(_list(found)))


def _list(found: Json) -> list[str]:
    items = found.items() if isinstance(found, dict) else enumerate(found)
    return [str(name) if isinstance(value, str) else f"{name}/" for name, value in items]


def _wrong_version(message: str) -> Response:
    newest = sorted(_VERSIONS, reverse=True)[:_NEWEST]
    return Response.of_json(400, {"error": f"Bad request. {message}", "newest-versions": newest})


def _error(status: int, message: str) -> Response:
    return Response(status, json.dumps({"error": message}).encode(), (("Content-Type", "application/json"),))
