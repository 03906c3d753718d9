"""The WinRM listener that a machine's deployment asks for: its certificate from the vault, or what is missing."""

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
    from imagegen.rehearsal.clouds.azure.world import Secret, World


@dataclasses.dataclass(frozen=True)
class Listener:
    """The listener's certificate, or why there is no listener."""

    certificate: ListenerCertificate | None
    missing: str = ""


def of_machine(world: World, profile: Resource) -> Listener:
    """What osProfile makes of WinRM; every certificate it names must be a secret of a vault it names."""
    held = {each.versioned_url: each for each in _vault_secrets(world, profile)}
    listeners = profile.get("windowsConfiguration", {}).get("winRM", {}).get("listeners", [])
    secure = [each for each in listeners if str(each.get("protocol")).lower() == "https"]
    if not secure:
        return Listener(None, "the deployment has no WinRM listener over HTTPS")
    url = str(secure[0].get("certificateUrl"))
    if url not in held:
        raise ArmError(400, "InvalidParameter", f"The certificate URL '{url}' is not among osProfile.secrets.")
    return Listener(_certificate(held[url]))


def _vault_secrets(world: World, profile: Resource) -> list[Secret]:
    found = []
    for source in profile.get("secrets", []):
        vault = world.resources.get(source["sourceVault"]["id"])
        if str(vault["properties"].get("enabledForDeployment")).lower() != "true":
            raise ArmError(403, "KeyVaultAccessForbidden", f"Key Vault {vault['name']} is not enabled for deployment.")
        for certificate in source["vaultCertificates"]:
            url = certificate["certificateUrl"]
            match = [each for each in world.secrets.values() if each.versioned_url == url]
            if not match or match[0].vault.lower() != vault["name"].lower():
                raise ArmError(400, "KeyVaultSecretDoesNotExist", f"The Key Vault secret '{url}' does not exist.")
            found += match
    return found


def _certificate(secret: Secret) -> ListenerCertificate:
    """The secret of a certificate is base64 of JSON that holds a PFX in base64 and its password."""
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


def user_data(wanted: Resource) -> bytes:
    """What the machine is given at its start: custom data, or else user data."""
    text = wanted.get("osProfile", {}).get("customData") or wanted.get("userData") or ""
    return base64.b64decode(text)
