"""The WinRM listener in the deployment of a machine: its certificate from the key vault, or what is missing."""

from __future__ import annotations

import base64
import binascii
import dataclasses
import json
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from imagegen.rehearsal.clouds.azure.errors import ArmError
from imagegen.rehearsal.network.machine import ListenerCertificate

if TYPE_CHECKING:
    from imagegen.rehearsal.clouds.azure.resources import Resource
    from imagegen.rehearsal.clouds.azure.state import AzureState, Secret


@dataclasses.dataclass(frozen=True)
class Listener:
    """The certificate of the listener, or why there is no listener."""

    certificate: ListenerCertificate | None
    missing: str = ""


def read_listener(state: AzureState, profile: Resource) -> Listener:
    """Read the listener in an osProfile. Its certificate must be a secret in one of the key vaults of the osProfile."""
    secrets = {secret.versioned_url: secret for secret in _find_secrets(state, profile)}
    listeners = profile.get("windowsConfiguration", {}).get("winRM", {}).get("listeners", [])
    secure = [listener for listener in listeners if str(listener.get("protocol")).lower() == "https"]
    if not secure:
        return Listener(None, "the deployment has no WinRM listener over HTTPS")
    url = str(secure[0].get("certificateUrl"))
    if url not in secrets:
        raise ArmError(400, "InvalidParameter", f"The certificate URL '{url}' is not among osProfile.secrets.")
    return Listener(_read_certificate(secrets[url]))


def _find_secrets(state: AzureState, profile: Resource) -> list[Secret]:
    secrets = []
    for source in profile.get("secrets", []):
        vault = state.resources.get(source["sourceVault"]["id"])
        if str(vault["properties"].get("enabledForDeployment")).lower() != "true":
            raise ArmError(403, "KeyVaultAccessForbidden", f"Key Vault {vault['name']} is not enabled for deployment.")
        for certificate in source["vaultCertificates"]:
            url = certificate["certificateUrl"]
            match = [secret for secret in state.secrets.values() if secret.versioned_url == url]
            if not match or match[0].vault.lower() != vault["name"].lower():
                raise ArmError(400, "KeyVaultSecretDoesNotExist", f"The Key Vault secret '{url}' does not exist.")
            secrets += match
    return secrets


def _read_certificate(secret: Secret) -> ListenerCertificate:
    """Read a certificate from a secret, which is JSON in base64 with a PFX in base64 and its password."""
    try:
        wrapped = json.loads(base64.b64decode(secret.value, validate=True))
        pfx, password = base64.b64decode(wrapped["data"]), str(wrapped["password"]).encode()
        if str(wrapped["dataType"]).lower() != "pfx":
            raise ValueError("its dataType is not pfx")
        key, certificate, _ = pkcs12.load_key_and_certificates(pfx, password)
    except (binascii.Error, ValueError, KeyError, TypeError) as error:
        raise ArmError(400, "CertificateImproperlyFormatted", f"The secret '{secret.url}': {error}") from error
    if key is None or certificate is None:
        raise ArmError(400, "CertificateImproperlyFormatted", f"The secret '{secret.url}' lacks key or certificate.")
    return ListenerCertificate(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )


def read_user_data(properties: Resource) -> bytes:
    """Read the custom data of a machine, or its user data if it has none."""
    text = properties.get("osProfile", {}).get("customData") or properties.get("userData") or ""
    return base64.b64decode(text)
