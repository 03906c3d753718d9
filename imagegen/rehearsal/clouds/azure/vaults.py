"""Key vaults: made by a deployment, asked through the Resource Manager and through their own hosts."""

from __future__ import annotations

import re
import time
import uuid
from typing import TYPE_CHECKING

from imagegen.rehearsal.clouds.azure.errors import ArmError
from imagegen.rehearsal.clouds.azure.resources import GroupId, Resource, new_resource
from imagegen.rehearsal.clouds.azure.world import Call, Secret, World
from imagegen.rehearsal.network.messages import Request, Response

if TYPE_CHECKING:
    from collections.abc import Mapping

VAULT = "Microsoft.KeyVault/vaults"
SECRET = "Microsoft.KeyVault/vaults/secrets"  # noqa: S105 - the name of a type of resource
# How long a deleted secret can be recovered where a vault does not say otherwise: 90 days.
RETENTION_S = 90 * 24 * 3600
AUDIENCE = "https://vault.azure.net"
_NAME = re.compile(r"[A-Za-z](?:-?[A-Za-z0-9]){2,23}\Z")
_PATH = re.compile(r"/secrets/(?P<name>[A-Za-z0-9-]+)/?(?P<version>[0-9a-f]{32})?\Z")


def create(world: World, group: GroupId, name: str, spec: Resource) -> Resource:
    """A vault of a deployment."""
    properties = spec.get("properties", {})
    if not _NAME.match(name):
        raise ArmError(400, "VaultNameNotValid", f"The vault name '{name}' is invalid.")
    if name.lower() in world.deleted_vaults:
        raise ArmError(
            409, "ConflictError", f"A vault with the name '{name}' is in deleted state: recover or purge it."
        )
    if properties.get("tenantId") != world.application.tenant:
        raise ArmError(400, "BadRequest", f"The tenant of vault '{name}' is not the subscription's.")
    shown = {**properties, "vaultUri": f"https://{name.lower()}.vault.azure.net/"}
    return new_resource(group, VAULT, name, spec["location"], shown, spec.get("tags"))


def create_secret(world: World, group: GroupId, name: str, spec: Resource) -> Resource:
    """A secret of a deployment; its value is kept apart and never shown by the Resource Manager."""
    vault, _, secret_name = name.partition("/")
    world.resources.get(group.resource(VAULT, vault))
    value = spec.get("properties", {}).get("value")
    if not isinstance(value, str) or not value:
        raise ArmError(400, "BadRequest", f"The secret '{name}' has no value.")
    secret = _keep(world, vault, secret_name, value)
    shown = {"attributes": {"enabled": True}, "secretUri": secret.url, "secretUriWithVersion": secret.versioned_url}
    location = world.resources.get(group.resource(VAULT, vault))["location"]
    return new_resource(group, SECRET, name, location, shown, spec.get("tags"))


def put_secret(world: World, call: Call) -> Response:
    """What newer plugins ask of a vault of one's own; the value is set and never shown."""
    name = f"{call.names['vault']}/{call.names['secret']}"
    return Response.of_json(200, world.resources.put(create_secret(world, call.group, name, call.request.json())))


def get(world: World, call: Call) -> Response:
    return Response.of_json(200, world.resources.get(call.id(VAULT, "vault")))


def get_secret(world: World, call: Call) -> Response:
    return Response.of_json(200, world.resources.get(call.id(SECRET, "vault", "secret")))


def list_secrets(world: World, call: Call) -> Response:
    """A vault's secrets without their values."""
    vault = world.resources.get(call.id(VAULT, "vault"))
    return Response.of_json(200, {"value": list(world.resources.below(f"{vault['id']}/secrets"))})


def delete(world: World, call: Call) -> Response:
    soft_delete(world, world.resources.get(call.id(VAULT, "vault")))
    return Response(200)


def soft_delete(world: World, vault: Resource) -> None:
    """A vault is recoverable for 90 days, also when its group was deleted: Azure has no others any more."""
    world.resources.remove(vault["id"])
    for key in [each for each in world.secrets if each[0] == vault["name"].lower()]:
        del world.secrets[key]
    root = f"/subscriptions/{world.application.subscription}/providers/Microsoft.KeyVault"
    world.deleted_vaults[vault["name"].lower()] = {
        "id": f"{root}/locations/{vault['location']}/deletedVaults/{vault['name']}",
        "name": vault["name"],
        "type": "Microsoft.KeyVault/deletedVaults",
        "properties": {
            "vaultId": vault["id"],
            "location": vault["location"],
            "tags": vault["tags"],
            "purgeProtectionEnabled": bool(vault["properties"].get("enablePurgeProtection")),
        },
    }


def list_deleted(world: World, call: Call) -> Response:
    """Every recoverable vault of the subscription."""
    del call  # every handler is called alike
    return Response.of_json(200, {"value": list(world.deleted_vaults.values())})


def get_deleted(world: World, call: Call) -> Response:
    return Response.of_json(200, _deleted(world, call))


def purge(world: World, call: Call) -> Response:
    """The end of a deleted vault, unless it is protected from that."""
    vault = _deleted(world, call)
    if vault["properties"]["purgeProtectionEnabled"]:
        raise ArmError(409, "MethodNotAllowed", f"Operation 'DeletedVaultPurge' is not allowed: {vault['name']}.")
    del world.deleted_vaults[vault["name"].lower()]
    return Response(202)


def _deleted(world: World, call: Call) -> Resource:
    found = world.deleted_vaults.get(call.names["vault"].lower())
    if found is None or found["properties"]["location"] != call.names["location"].lower():
        raise ArmError(404, "DeletedVaultNotFound", f"The vault '{call.names['vault']}' is not in deleted state.")
    return found


def answer(world: World, request: Request) -> Response:
    """The vault's own host: GET, PUT or DELETE of a secret, for whom an access policy lets do it."""
    vault = request.host.partition(".")[0]
    match = _PATH.match(request.path)
    permission = {"GET": "get", "PUT": "set", "DELETE": "delete"}.get(request.method, "")
    if match is None or not permission or (permission != "get" and match["version"]):
        raise ArmError(404, "NotFound", "not found", fault=f"unexpected vault request {request.method} {request.path}")
    found = next((each for each in world.resources.of_type(VAULT) if each["name"].lower() == vault), None)
    if found is None:
        raise ArmError(404, "VaultNotFound", f"There is no vault {vault}.")
    policies = found["properties"]["accessPolicies"]
    if not any(_lets(policy, world.application.object_id, permission) for policy in policies):
        message = f"The caller does not have secrets {permission} permission on key vault '{vault}'."
        raise ArmError(403, "Forbidden", message)
    if permission == "set":
        _set_value(world, found["name"], match["name"], request)
    secret = world.secret(vault, match["name"])
    if permission == "delete":
        return _delete_secret(world, found, secret)
    if match["version"] not in (None, secret.version):
        raise ArmError(404, "SecretNotFound", f"A secret with that version of {match['name']} was not found.")
    return Response.of_json(200, {"value": secret.value, "id": secret.versioned_url, "attributes": {"enabled": True}})


def _set_value(world: World, vault: str, name: str, request: Request) -> None:
    value = request.json().get("value")
    if not isinstance(value, str) or not value:
        raise ArmError(400, "BadParameter", f"The secret '{name}' has no value.")
    _keep(world, vault, name, value)


def _keep(world: World, vault: str, name: str, value: str) -> Secret:
    """A new version of a secret; the name of one that was deleted is taken until the vault forgets it."""
    if (vault.lower(), name.lower()) in world.deleted_secrets:
        message = (
            f"Secret {name} is currently in a deleted but recoverable state, and its name cannot be reused; in this "
            "state, the secret can only be recovered or purged."
        )
        raise ArmError(409, "Conflict", message)
    secret = Secret(vault, name, uuid.uuid4().hex, value)
    world.secrets[vault.lower(), name.lower()] = secret
    return secret


def _delete_secret(world: World, vault: Resource, secret: Secret) -> Response:
    del world.secrets[secret.vault.lower(), secret.name.lower()]
    world.resources.remove(f"{vault['id']}/secrets/{secret.name}")
    world.deleted_secrets.add((secret.vault.lower(), secret.name.lower()))
    now = int(time.time())
    recovery = f"https://{secret.vault.lower()}.vault.azure.net/deletedsecrets/{secret.name}"
    deleted = {"recoveryId": recovery, "deletedDate": now, "scheduledPurgeDate": now + RETENTION_S}
    return Response.of_json(200, {**deleted, "id": secret.versioned_url, "attributes": {"enabled": True}})


def _lets(policy: Mapping[str, object], object_id: str, permission: str) -> bool:
    permissions = policy.get("permissions")
    secrets = permissions.get("secrets", []) if isinstance(permissions, dict) else []
    return policy.get("objectId") == object_id and bool({str(each).lower() for each in secrets} & {"all", permission})
