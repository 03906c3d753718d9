"""Key vaults: the requests to ARM, and those to the vaults' own hosts."""

from __future__ import annotations

import re
import time
import uuid
from typing import TYPE_CHECKING

from imagegen.rehearsal.clouds.azure.errors import ArmError
from imagegen.rehearsal.clouds.azure.resources import GroupId, Resource, new_resource
from imagegen.rehearsal.clouds.azure.state import AzureState, Call, Secret
from imagegen.rehearsal.network.messages import Request, Response

if TYPE_CHECKING:
    from collections.abc import Mapping

VAULT = "Microsoft.KeyVault/vaults"
SECRET = "Microsoft.KeyVault/vaults/secrets"  # noqa: S105 - the name of a type of resource
# The default retention of deleted secrets: 90 days.
RETENTION_S = 90 * 24 * 3600
AUDIENCE = "https://vault.azure.net"
_NAME = re.compile(r"[A-Za-z](?:-?[A-Za-z0-9]){2,23}\Z")
_PATH = re.compile(r"/secrets/(?P<name>[A-Za-z0-9-]+)/?(?P<version>[0-9a-f]{32})?\Z")


def create(state: AzureState, group: GroupId, name: str, spec: Resource) -> Resource:
    """Create a vault of a deployment."""
    properties = spec.get("properties", {})
    if not _NAME.match(name):
        raise ArmError(400, "VaultNameNotValid", f"The vault name '{name}' is invalid.")
    if name.lower() in state.deleted_vaults:
        raise ArmError(
            409, "ConflictError", f"A vault with the name '{name}' is in deleted state: recover or purge it."
        )
    if properties.get("tenantId") != state.application.tenant:
        raise ArmError(400, "BadRequest", f"The tenant of vault '{name}' is not the subscription's.")
    shown_properties = {**properties, "vaultUri": f"https://{name.lower()}.vault.azure.net/"}
    return new_resource(group, VAULT, name, spec["location"], shown_properties, spec.get("tags"))


def create_secret(state: AzureState, group: GroupId, name: str, spec: Resource) -> Resource:
    """Create a secret of a deployment. Its value is stored separately, because ARM never returns it."""
    vault, _, secret_name = name.partition("/")
    state.resources.get(group.resource(VAULT, vault))
    value = spec.get("properties", {}).get("value")
    if not isinstance(value, str) or not value:
        raise ArmError(400, "BadRequest", f"The secret '{name}' has no value.")
    secret = _store_secret(state, vault, secret_name, value)
    properties = {
        "attributes": {"enabled": True},
        "secretUri": secret.url,
        "secretUriWithVersion": secret.versioned_url,
    }
    location = state.resources.get(group.resource(VAULT, vault))["location"]
    return new_resource(group, SECRET, name, location, properties, spec.get("tags"))


def put_secret(state: AzureState, call: Call) -> Response:
    """Set a secret in an existing vault, as newer Packer plugins do. The value is never returned."""
    name = f"{call.names['vault']}/{call.names['secret']}"
    return Response.of_json(200, state.resources.put(create_secret(state, call.group, name, call.request.json())))


def get(state: AzureState, call: Call) -> Response:
    return Response.of_json(200, state.resources.get(call.id(VAULT, "vault")))


def get_secret(state: AzureState, call: Call) -> Response:
    return Response.of_json(200, state.resources.get(call.id(SECRET, "vault", "secret")))


def list_secrets(state: AzureState, call: Call) -> Response:
    """List the secrets of a vault, without their values."""
    vault = state.resources.get(call.id(VAULT, "vault"))
    return Response.of_json(200, {"value": list(state.resources.below(f"{vault['id']}/secrets"))})


def delete(state: AzureState, call: Call) -> Response:
    soft_delete(state, state.resources.get(call.id(VAULT, "vault")))
    return Response(200)


def soft_delete(state: AzureState, vault: Resource) -> None:
    """Delete a vault. It can be recovered for 90 days, even if its group is deleted."""
    state.resources.remove(vault["id"])
    for key in [key for key in state.secrets if key[0] == vault["name"].lower()]:
        del state.secrets[key]
    root = f"/subscriptions/{state.application.subscription}/providers/Microsoft.KeyVault"
    state.deleted_vaults[vault["name"].lower()] = {
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


def list_deleted(state: AzureState, call: Call) -> Response:
    """List every deleted vault of the subscription."""
    del call  # all handlers have the same parameters
    return Response.of_json(200, {"value": list(state.deleted_vaults.values())})


def get_deleted(state: AzureState, call: Call) -> Response:
    return Response.of_json(200, _find_deleted(state, call))


def purge(state: AzureState, call: Call) -> Response:
    """Purge a deleted vault, unless it has purge protection."""
    vault = _find_deleted(state, call)
    if vault["properties"]["purgeProtectionEnabled"]:
        raise ArmError(409, "MethodNotAllowed", f"Operation 'DeletedVaultPurge' is not allowed: {vault['name']}.")
    del state.deleted_vaults[vault["name"].lower()]
    return Response(202)


def _find_deleted(state: AzureState, call: Call) -> Resource:
    vault = state.deleted_vaults.get(call.names["vault"].lower())
    if vault is None or vault["properties"]["location"] != call.names["location"].lower():
        raise ArmError(404, "DeletedVaultNotFound", f"The vault '{call.names['vault']}' is not in deleted state.")
    return vault


def answer(state: AzureState, request: Request) -> Response:
    """Answer a request to the host of a vault: GET, PUT or DELETE of a secret, if an access policy permits it."""
    vault = request.host.partition(".")[0]
    match = _PATH.match(request.path)
    permission = {"GET": "get", "PUT": "set", "DELETE": "delete"}.get(request.method, "")
    if match is None or not permission or (permission != "get" and match["version"]):
        raise ArmError(404, "NotFound", "not found", fault=f"unexpected vault request {request.method} {request.path}")
    resource = next((known for known in state.resources.of_type(VAULT) if known["name"].lower() == vault), None)
    if resource is None:
        raise ArmError(404, "VaultNotFound", f"There is no vault {vault}.")
    policies = resource["properties"]["accessPolicies"]
    if not any(_permits(policy, state.application.object_id, permission) for policy in policies):
        message = f"The caller does not have secrets {permission} permission on key vault '{vault}'."
        raise ArmError(403, "Forbidden", message)
    if permission == "set":
        _set_secret(state, resource["name"], match["name"], request)
    secret = state.secret(vault, match["name"])
    if permission == "delete":
        return _delete_secret(state, resource, secret)
    if match["version"] not in (None, secret.version):
        raise ArmError(404, "SecretNotFound", f"A secret with that version of {match['name']} was not found.")
    return Response.of_json(200, {"value": secret.value, "id": secret.versioned_url, "attributes": {"enabled": True}})


def _set_secret(state: AzureState, vault: str, name: str, request: Request) -> None:
    value = request.json().get("value")
    if not isinstance(value, str) or not value:
        raise ArmError(400, "BadParameter", f"The secret '{name}' has no value.")
    _store_secret(state, vault, name, value)


def _store_secret(state: AzureState, vault: str, name: str, value: str) -> Secret:
    """Store a new version of a secret. The name of a deleted secret cannot be used again."""
    if (vault.lower(), name.lower()) in state.deleted_secrets:
        message = (
            f"Secret {name} is currently in a deleted but recoverable state, and its name cannot be reused; in this "
            "state, the secret can only be recovered or purged."
        )
        raise ArmError(409, "Conflict", message)
    secret = Secret(vault, name, uuid.uuid4().hex, value)
    state.secrets[vault.lower(), name.lower()] = secret
    return secret


def _delete_secret(state: AzureState, vault: Resource, secret: Secret) -> Response:
    del state.secrets[secret.vault.lower(), secret.name.lower()]
    state.resources.remove(f"{vault['id']}/secrets/{secret.name}")
    state.deleted_secrets.add((secret.vault.lower(), secret.name.lower()))
    now = int(time.time())
    recovery = f"https://{secret.vault.lower()}.vault.azure.net/deletedsecrets/{secret.name}"
    deleted = {"recoveryId": recovery, "deletedDate": now, "scheduledPurgeDate": now + RETENTION_S}
    return Response.of_json(200, {**deleted, "id": secret.versioned_url, "attributes": {"enabled": True}})


def _permits(policy: Mapping[str, object], object_id: str, permission: str) -> bool:
    permissions = policy.get("permissions")
    secrets = permissions.get("secrets", []) if isinstance(permissions, dict) else []
    return policy.get("objectId") == object_id and bool({str(name).lower() for name in secrets} & {"all", permission})
