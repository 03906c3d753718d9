"""Plays management.azure.com: a table of the requests it knows; any other is refused and fails the rehearsal."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable

from imagegen.rehearsal.clouds.azure import (
    account,
    deployments,
    galleries,
    groups,
    landscape,
    machines,
    marketplace,
    networks,
    vaults,
    versions,
)
from imagegen.rehearsal.clouds.azure.errors import ArmError
from imagegen.rehearsal.clouds.azure.world import Call, World
from imagegen.rehearsal.network.messages import Request, Response

HOST = "management.azure.com"
AUDIENCES = frozenset({"https://management.azure.com", "https://management.core.windows.net"})

_Handler = Callable[[World, Call], Response]


@dataclasses.dataclass(frozen=True)
class _Route:
    method: str
    template: str
    handler: _Handler
    pattern: re.Pattern[str]

    @property
    def note(self) -> str:
        """The types in the path, which say what was asked: `PUT galleries/images/versions`."""
        below = (
            self.template.partition("/providers/")[2].partition("/")[2]
            or self.template.partition("{subscription}/")[2]
            or "subscriptions"
        )
        return f"{self.method} {'/'.join(part for part in below.split('/') if not part.startswith('{'))}"


def _operation(world: World, call: Call) -> Response:
    return world.operations.status(call.names["operation"])


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
    ("GET", f"{_GROUP}/providers/microsoft.compute/diskencryptionsets/{{name}}", landscape.get_encryption_set),
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
    # The older clients ask for operations in a shorter place.
    ("GET", f"{_DEPLOYMENT}/operations", deployments.operations),
    ("GET", f"{_GROUP}/deployments/{{deployment}}/operations", deployments.operations),
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
    ("GET", f"{_LOCATION}/operations/{{operation}}", _operation),
)


def _compiled(template: str) -> re.Pattern[str]:
    parts = re.split(r"\{(\w+)\}", template)
    text = "".join(f"(?P<{part}>[^/]+)" if index % 2 else re.escape(part) for index, part in enumerate(parts))
    return re.compile(f"{text}/?", re.IGNORECASE)


_ROUTES = tuple(_Route(method, template, handler, _compiled(template)) for method, template, handler in _TABLE)


def answer(world: World, audience: str, request: Request) -> Response:
    """The Resource Manager's answer; errors are raised as `ArmError`."""
    if audience not in AUDIENCES:
        raise ArmError(401, "AuthenticationFailed", "Authentication failed. The token is missing or not for this API.")
    for route in _ROUTES:
        match = route.pattern.fullmatch(request.path) if route.method == request.method else None
        if match is None:
            continue
        if match["subscription"] != world.application.subscription:
            raise ArmError(
                404, "SubscriptionNotFound", f"The subscription '{match['subscription']}' could not be found."
            )
        if not request.query.get("api-version"):
            raise ArmError(400, "MissingApiVersionParameter", "The api-version query parameter is required.")
        return dataclasses.replace(route.handler(world, Call(request, match.groupdict())), note=route.note)
    fault = f"unexpected ARM request {request.method} {request.path}"
    raise ArmError(404, "NotFound", fault, fault=fault)
