"""Answers for management.azure.com, with a table of all supported requests. Any other request fails the rehearsal."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable

from imagegen.rehearsal.clouds.azure import (
    account,
    deployments,
    existing_resources,
    galleries,
    groups,
    machines,
    marketplace,
    networks,
    vaults,
    versions,
)
from imagegen.rehearsal.clouds.azure.errors import ArmError
from imagegen.rehearsal.clouds.azure.state import AzureState, Call
from imagegen.rehearsal.network.messages import Request, Response

HOST = "management.azure.com"
AUDIENCES = frozenset({"https://management.azure.com", "https://management.core.windows.net"})

_Handler = Callable[[AzureState, Call], Response]


@dataclasses.dataclass(frozen=True)
class _Route:
    method: str
    template: str
    handler: _Handler
    pattern: re.Pattern[str]

    @property
    def note(self) -> str:
        """The method and the types of resource in the path: `PUT galleries/images/versions`."""
        below = (
            self.template.partition("/providers/")[2].partition("/")[2]
            or self.template.partition("{subscription}/")[2]
            or "subscriptions"
        )
        return f"{self.method} {'/'.join(part for part in below.split('/') if not part.startswith('{'))}"


def _get_operation(state: AzureState, call: Call) -> Response:
    return state.operations.status(call.names["operation"])


_SUBSCRIPTION = "/subscriptions/{subscription}"
_GROUP = f"{_SUBSCRIPTION}/resourcegroups/{{group}}"
_GALLERY = f"{_GROUP}/providers/microsoft.compute/galleries/{{gallery}}"
_MACHINE = f"{_GROUP}/providers/microsoft.compute/virtualmachines/{{name}}"
_VAULT = f"{_GROUP}/providers/microsoft.keyvault/vaults/{{vault}}"
_VAULTS = "/subscriptions/{subscription}/providers/microsoft.keyvault"
_DEPLOYMENT = f"{_GROUP}/providers/microsoft.resources/deployments/{{deployment}}"
_NETWORKS = "/subscriptions/{subscription}/providers/microsoft.network/virtualnetworks"
_LOCATION = "/subscriptions/{subscription}/providers/microsoft.compute/locations/{location}"
_SKUS = f"{_LOCATION}/publishers/{{publisher}}/artifacttypes/vmimage/offers/{{offer}}/skus"

_DELETED = f"{_VAULTS}/locations/{{location}}/deletedvaults/{{vault}}"

_TABLE: tuple[tuple[str, str, _Handler], ...] = (
    ("GET", "/subscriptions/{subscription}/resourcegroups", groups.list_all),
    ("GET", f"{_GROUP}/resources", groups.list_resources),
    ("GET", _SUBSCRIPTION, account.get),
    ("GET", f"{_SUBSCRIPTION}/locations", account.list_locations),
    ("GET", f"{_SUBSCRIPTION}/providers/microsoft.compute/skus", account.list_sizes),
    ("GET", f"{_LOCATION}/usages", account.list_usages),
    ("GET", f"{_SUBSCRIPTION}/providers/microsoft.authorization/permissions", account.list_permissions),
    ("GET", f"{_GROUP}/providers/microsoft.authorization/permissions", account.list_permissions),
    ("GET", f"{_GROUP}/providers/microsoft.compute/diskencryptionsets/{{name}}", existing_resources.get_encryption_set),
    ("HEAD", _GROUP, groups.head),
    ("GET", _GROUP, groups.get),
    ("PUT", _GROUP, groups.put),
    ("DELETE", _GROUP, groups.delete),
    ("POST", f"{_DEPLOYMENT}/validate", deployments.validate),
    ("PUT", _DEPLOYMENT, deployments.put),
    ("GET", _DEPLOYMENT, deployments.get),
    ("GET", f"{_GROUP}/providers/microsoft.resources/deployments", deployments.list_all),
    ("POST", f"{_DEPLOYMENT}/exporttemplate", deployments.export),
    ("DELETE", _DEPLOYMENT, deployments.delete),
    # Older clients use a shorter path for operations.
    ("GET", f"{_DEPLOYMENT}/operations", deployments.list_operations),
    ("GET", f"{_GROUP}/deployments/{{deployment}}/operations", deployments.list_operations),
    ("GET", _MACHINE, machines.get),
    ("GET", f"{_MACHINE}/instanceview", machines.get_view),
    ("POST", f"{_MACHINE}/poweroff", functools.partial(machines.stop, "stopped")),
    ("POST", f"{_MACHINE}/deallocate", functools.partial(machines.stop, "deallocated")),
    ("POST", f"{_MACHINE}/generalize", machines.generalize),
    ("DELETE", _MACHINE, machines.delete),
    *(
        row
        for kind in (machines.DISK, networks.ADDRESS, networks.INTERFACE, networks.NETWORK, networks.SECURITY_GROUP)
        for row in (
            ("GET", f"{_GROUP}/providers/{kind.lower()}/{{name}}", functools.partial(networks.get, kind)),
            ("DELETE", f"{_GROUP}/providers/{kind.lower()}/{{name}}", functools.partial(networks.delete, kind)),
        )
    ),
    ("GET", _NETWORKS, networks.list_all),
    ("GET", f"{_GROUP}/providers/microsoft.network/virtualnetworks/{{name}}/subnets", networks.list_subnets),
    ("GET", _VAULT, vaults.get),
    ("DELETE", _VAULT, vaults.delete),
    ("GET", f"{_VAULTS}/deletedvaults", vaults.list_deleted),
    ("GET", _DELETED, vaults.get_deleted),
    ("POST", f"{_DELETED}/purge", vaults.purge),
    ("GET", f"{_VAULT}/secrets", vaults.list_secrets),
    ("GET", f"{_VAULT}/secrets/{{secret}}", vaults.get_secret),
    ("PUT", f"{_VAULT}/secrets/{{secret}}", vaults.put_secret),
    ("GET", _GALLERY, galleries.get),
    ("PUT", _GALLERY, galleries.put),
    ("GET", f"{_GALLERY}/images", galleries.list_definitions),
    ("GET", f"{_GALLERY}/images/{{image}}", galleries.get_definition),
    ("PUT", f"{_GALLERY}/images/{{image}}", galleries.put_definition),
    ("GET", f"{_GALLERY}/images/{{image}}/versions", versions.list_all),
    ("GET", f"{_GALLERY}/images/{{image}}/versions/{{version}}", versions.get),
    ("PUT", f"{_GALLERY}/images/{{image}}/versions/{{version}}", versions.put),
    ("PATCH", f"{_GALLERY}/images/{{image}}/versions/{{version}}", versions.patch),
    ("DELETE", f"{_GALLERY}/images/{{image}}/versions/{{version}}", versions.delete),
    ("GET", _SKUS, marketplace.list_skus),
    ("GET", f"{_SKUS}/{{sku}}/versions", marketplace.list_versions),
    ("GET", f"{_SKUS}/{{sku}}/versions/{{version}}", marketplace.get_version),
    ("GET", f"{_LOCATION}/operations/{{operation}}", _get_operation),
)


def _compile(template: str) -> re.Pattern[str]:
    parts = re.split(r"\{(\w+)\}", template)
    text = "".join(f"(?P<{part}>[^/]+)" if index % 2 else re.escape(part) for index, part in enumerate(parts))
    return re.compile(f"{text}/?", re.IGNORECASE)


_ROUTES = tuple(_Route(method, template, handler, _compile(template)) for method, template, handler in _TABLE)


def answer(state: AzureState, audience: str, request: Request) -> Response:
    """Answer a request to ARM. Errors are raised as `ArmError`."""
    if audience not in AUDIENCES:
        raise ArmError(401, "AuthenticationFailed", "Authentication failed. The token is missing or not for this API.")
    for route in _ROUTES:
        match = route.pattern.fullmatch(request.path) if route.method == request.method else None
        if match is None:
            continue
        if match["subscription"] != state.application.subscription:
            raise ArmError(
                404, "SubscriptionNotFound", f"The subscription '{match['subscription']}' could not be found."
            )
        if not request.query.get("api-version"):
            raise ArmError(400, "MissingApiVersionParameter", "The api-version query parameter is required.")
        return dataclasses.replace(route.handler(state, Call(request, match.groupdict())), note=route.note)
    fault = f"unexpected ARM request {request.method} {request.path}"
    raise ArmError(404, "NotFound", fault, fault=fault)
