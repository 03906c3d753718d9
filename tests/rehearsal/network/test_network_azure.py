"""The small Resource Manager: a build's way through it, and everything it refuses on that way."""

from __future__ import annotations

import base64
import copy
import datetime
import functools
import json
import urllib.parse
from typing import TYPE_CHECKING, Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)

from imagegen.rehearsal.clouds.azure.cloud import Azure, AzureOptions
from imagegen.rehearsal.clouds.azure.options import GalleryDefinition
from imagegen.rehearsal.network.messages import Request, Response, parse_target

if TYPE_CHECKING:
    from imagegen.rehearsal.network.machine import MachineIdentity

Json = dict[str, Any]

_VERSION = "1.36.1"
_KEYS_FAR_AWAY = "/keys/of/another/region"


@functools.cache
def _pfx(*, rsa_key: bool = False) -> str:
    """A certificate as Packer puts it into a vault: base64 of JSON with a PFX in base64.

    Packer's key is an RSA key. To read one takes long, as it is checked each time: where no key is looked at, the tests
    have a short one, and a password that is hashed once.
    """
    key = rsa.generate_private_key(65537, 2048) if rsa_key else ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "vm")])
    day = datetime.datetime(2026, 11, 18, tzinfo=datetime.UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), 7, day, day + datetime.timedelta(days=1))
    ).sign(key, hashes.SHA256())
    once = PrivateFormat.PKCS12.encryption_builder().kdf_rounds(1).build(b"word")
    encryption = BestAvailableEncryption(b"word") if rsa_key else once
    pfx = pkcs12.serialize_key_and_certificates(b"vm", key, certificate, None, encryption)
    wrapped = {"data": base64.b64encode(pfx).decode(), "dataType": "pfx", "password": "word"}
    return base64.b64encode(json.dumps(wrapped).encode()).decode()


_VAULT_TEMPLATE: Json = {
    "parameters": {"vault": {"type": "string"}, "value": {"type": "securestring"}, "owner": {"type": "string"}},
    "variables": {"api": "2022-07-01", "secret": "cert"},
    "resources": [
        {
            "apiVersion": "[variables('api')]",
            "type": "Microsoft.KeyVault/vaults",
            "name": "[parameters('vault')]",
            "location": "[resourceGroup().location]",
            "properties": {
                "enabledForDeployment": "true",
                "tenantId": "11111111-1111-4111-8111-111111111111",
                "accessPolicies": [{"objectId": "[parameters('owner')]", "permissions": {"secrets": ["all"]}}],
            },
            "resources": [
                {
                    "apiVersion": "[variables('api')]",
                    "type": "secrets",
                    "name": "[variables('secret')]",
                    "dependsOn": ["[concat('Microsoft.KeyVault/vaults/', parameters('vault'))]"],
                    "properties": {"value": "[parameters('value')]"},
                }
            ],
        }
    ],
}


def _vm_template(certificate_url: str) -> Json:
    network = "Microsoft.Network"
    return {
        "parameters": {},
        # The machine stands first: the order is what the dependencies make it.
        "resources": [
            {
                "apiVersion": "2021-11-01",
                "type": "Microsoft.Compute/virtualMachines",
                "name": "vm",
                "location": "westeurope",
                "dependsOn": [f"{network}/networkInterfaces/nic"],
                "properties": {
                    "osProfile": {
                        "computerName": "vm",
                        "adminUsername": "packer",
                        "adminPassword": "Secret-Word-1",
                        "secrets": [
                            {
                                "sourceVault": {"id": "[resourceId('Microsoft.KeyVault/vaults', 'vault1')]"},
                                "vaultCertificates": [{"certificateStore": "My", "certificateUrl": certificate_url}],
                            }
                        ],
                        "windowsConfiguration": {
                            "winRM": {"listeners": [{"protocol": "https", "certificateUrl": certificate_url}]}
                        },
                    },
                    "storageProfile": {
                        "imageReference": {
                            "publisher": "MicrosoftWindowsServer",
                            "offer": "WindowsServer",
                            "sku": "2025-datacenter-core-smalldisk-g2",
                            "version": "latest",
                        },
                        "osDisk": {"name": "os", "managedDisk": {"storageAccountType": "Premium_LRS"}},
                    },
                    "networkProfile": {
                        "networkInterfaces": [{"id": f"[resourceId('{network}/networkInterfaces', 'nic')]"}]
                    },
                },
            },
            {"apiVersion": "1", "type": f"{network}/publicIPAddresses", "name": "ip", "properties": {}},
            {
                "apiVersion": "1",
                "type": f"{network}/virtualNetworks",
                "name": "net",
                "properties": {"subnets": [{"name": "sub", "properties": {}}]},
            },
            {
                "apiVersion": "1",
                "type": f"{network}/networkInterfaces",
                "name": "nic",
                "dependsOn": [f"{network}/publicIPAddresses/ip", f"{network}/virtualNetworks/net"],
                "properties": {
                    "ipConfigurations": [
                        {
                            "name": "one",
                            "properties": {
                                "publicIPAddress": {"id": f"[resourceId('{network}/publicIPAddresses', 'ip')]"},
                                "subnet": {
                                    "id": f"[concat(resourceId('{network}/virtualNetworks', 'net'), '/subnets/sub')]"
                                },
                            },
                        }
                    ]
                },
            },
        ],
    }


class _Cloud:
    """An Azure with one definition, and whoever is logged in to it."""

    def __init__(self, inside: str = "", failing: str = "", **definition: str) -> None:
        self.machines: list[MachineIdentity] = []
        wanted = GalleryDefinition("images", "gal", "win-2025", **definition)
        sets, reasons = {_KEYS_FAR_AWAY: "uksouth"}, {failing: "no quota"} if failing else {}
        options = AzureOptions(
            definitions=(wanted,), operator_network=inside, encryption_sets=sets, failing_regions=reasons
        )
        self.azure = Azure(options, self.machines.append)
        self.application = self.azure.application
        self.token = self.log_in("https://management.azure.com/.default")
        self.base = f"/subscriptions/{self.application.subscription}"
        self.group = f"{self.base}/resourceGroups/build"
        self.version = (
            f"{self.base}/resourceGroups/images/providers/Microsoft.Compute/galleries/gal/images/win-2025/versions"
        )

    def log_in(self, scope: str, **changed: str) -> str:
        form = {
            "grant_type": "client_credentials",
            "client_id": self.application.client_id,
            "client_secret": self.application.secret,
            "scope": scope,
            **changed,
        }
        path = f"/{self.application.tenant}/oauth2/v2.0/token"
        body = urllib.parse.urlencode(form).encode()
        answer = self.azure(Request("POST", "login.microsoftonline.com", path, {}, {}, body, path))
        return str(json.loads(answer.body).get("access_token", ""))

    def ask(self, method: str, target: str, body: Json | None = None, **headers: str) -> Response:
        path, query = parse_target(target)
        sent = {"authorization": f"Bearer {self.token}", **headers}
        data = json.dumps(body).encode() if body is not None else b""
        query = {"api-version": "2024-01-01", **query}
        return self.azure(Request(method, "management.azure.com", path, query, sent, data, target))

    def get(self, target: str) -> Json:
        answer = self.ask("GET", target)
        assert answer.status == 200, answer.body
        return dict(json.loads(answer.body))

    def deploy(self, name: str, template: Json, **parameters: str) -> Response:
        properties = {
            "mode": "Incremental",
            "template": template,
            "parameters": {key: {"value": value} for key, value in parameters.items()},
        }
        return self.ask(
            "PUT", f"{self.group}/providers/Microsoft.Resources/deployments/{name}", {"properties": properties}
        )

    def vault(self, value: str | None = None) -> str:
        """A group, a vault and the URL of the certificate in it."""
        value = _pfx() if value is None else value
        assert self.ask("PUT", self.group, {"location": "West Europe"}).status == 201
        answer = self.deploy("kv", _VAULT_TEMPLATE, vault="vault1", value=value, owner=self.application.object_id)
        assert answer.status == 201, answer.body
        secret = self.get(f"{self.group}/providers/Microsoft.KeyVault/vaults/vault1/secrets/cert")
        return str(secret["properties"]["secretUriWithVersion"])

    def machine(self, certificate: str | None = None) -> str:
        answer = self.deploy("vm", _vm_template(self.vault(certificate)))
        assert answer.status == 201, answer.body
        return f"{self.group}/providers/Microsoft.Compute/virtualMachines/vm"

    def sealed(self) -> str:
        """A machine that may become an image."""
        machine = self.machine()
        assert self.ask("POST", f"{machine}/deallocate").status == 202
        assert self.ask("POST", f"{machine}/generalize").status == 200
        return machine

    def publish(self, source: str, version: str = _VERSION, **profile: Any) -> Response:  # noqa: ANN401 - JSON values
        body = {
            "location": "westeurope",
            "properties": {
                "storageProfile": {"source": {"id": source}},
                "publishingProfile": {"targetRegions": [{"name": "westeurope"}], **profile},
            },
        }
        return self.ask("PUT", f"{self.version}/{version}", body)


@pytest.fixture
def cloud() -> _Cloud:
    return _Cloud()


def _code(answer: Response) -> tuple[int, str]:
    return answer.status, str(json.loads(answer.body)["error"]["code"])


def test_a_token_tells_who_it_is_for(cloud: _Cloud) -> None:
    payload = cloud.token.split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    assert (claims["oid"], claims["tid"]) == (cloud.application.object_id, cloud.application.tenant)
    assert cloud.log_in("https://management.azure.com/.default", client_id="another") == ""
    assert cloud.log_in("https://management.azure.com/.default", grant_type="password") == ""
    assert _code(cloud.ask("GET", cloud.group, authorization="Bearer made-up")) == (401, "AuthenticationFailed")
    cloud.token = cloud.log_in("https://vault.azure.net/.default")
    assert _code(cloud.ask("GET", cloud.group)) == (401, "AuthenticationFailed")


@pytest.mark.parametrize("path", ["/common/discovery/instance", "/t/v2.0/.well-known/openid-configuration"])
def test_the_login_can_be_discovered(cloud: _Cloud, path: str) -> None:
    answer = cloud.azure(Request("GET", "login.microsoftonline.com", path))
    assert answer.status == 200
    assert b"https://login.microsoftonline.com/" in answer.body


def test_a_vaults_own_host_shows_the_value_to_whom_the_policy_names(cloud: _Cloud) -> None:
    url = cloud.vault("value")
    host, path = "vault1.vault.azure.net", "/" + url.partition("azure.net/")[2]
    assert url.startswith(f"https://{host}/secrets/cert/")
    assert cloud.azure(Request("GET", host, path)).header("www-authenticate").startswith("Bearer authorization=")
    headers = {"authorization": f"Bearer {cloud.log_in('https://vault.azure.net/.default')}"}
    for each in (path, "/secrets/cert"):
        assert json.loads(cloud.azure(Request("GET", host, each, {}, headers)).body)["value"] == "value"
    assert cloud.azure(Request("GET", host, f"/secrets/cert/{'0' * 32}", {}, headers)).status == 404
    assert (
        cloud.azure(Request("GET", host, "/keys/cert", {}, headers)).fault == "unexpected vault request GET /keys/cert"
    )
    cloud.deploy("kv", _VAULT_TEMPLATE, vault="vault1", value="v", owner="somebody else")
    assert cloud.azure(Request("GET", host, "/secrets/cert", {}, headers)).status == 403


def test_a_deployed_machine_can_be_reached_by_its_listener(cloud: _Cloud) -> None:
    resource_id = cloud.machine(_pfx(rsa_key=True))
    [machine] = cloud.machines
    assert (machine.username, machine.password) == ("packer", "Secret-Word-1")
    assert machine.image == "MicrosoftWindowsServer:WindowsServer:2025-datacenter-core-smalldisk-g2:26100.33296.260809"
    assert machine.certificate is not None
    assert machine.certificate.key.startswith(b"-----BEGIN PRIVATE KEY-----")
    assert isinstance(load_pem_private_key(machine.certificate.key, None), rsa.RSAPrivateKey)
    assert cloud.azure.why_closed(machine.address) == ""
    assert cloud.azure.why_closed("192.0.2.1") is None
    address = cloud.get(f"{cloud.group}/providers/Microsoft.Network/publicIPAddresses/ip")
    assert address["properties"]["ipAddress"] == machine.address
    shown = cloud.get(f"{resource_id}?$expand=instanceView")["properties"]
    assert "Secret-Word-1" not in json.dumps(shown)
    assert shown["storageProfile"]["osDisk"]["managedDisk"]["id"].endswith("/disks/os")
    assert shown["instanceView"]["statuses"][-1]["code"] == "PowerState/running"
    listed = cloud.get(f"{cloud.group}/deployments/vm/operations")["value"]
    kinds = [each["properties"]["targetResource"]["resourceType"].rpartition("/")[2] for each in listed]
    assert kinds == ["publicIPAddresses", "virtualNetworks", "networkInterfaces", "virtualMachines"]


def test_a_machine_without_a_listener_stays_shut(cloud: _Cloud) -> None:
    template = _vm_template(cloud.vault())
    del template["resources"][0]["properties"]["osProfile"]["windowsConfiguration"]
    assert cloud.deploy("vm", template).status == 201
    [machine] = cloud.machines
    assert cloud.azure.why_closed(machine.address) == "the deployment has no WinRM listener over HTTPS"


@pytest.mark.parametrize(
    ("inside", "reason"),
    [
        ("Net", ""),
        ("", "the machine has no public address, and the operator is not in its network net"),
        ("other", "the machine has no public address, and the operator is not in its network net"),
    ],
)
def test_a_machine_without_a_public_address_is_reached_from_its_network(inside: str, reason: str) -> None:
    cloud = _Cloud(inside)
    template = _vm_template(cloud.vault())
    del template["resources"][3]["properties"]["ipConfigurations"][0]["properties"]["publicIPAddress"]
    assert cloud.deploy("vm", template).status == 201
    [machine] = cloud.machines
    assert machine.address == "10.0.0.4"
    assert cloud.azure.why_closed(machine.address) == reason


@pytest.mark.parametrize(
    ("rule", "is_open"),
    [
        ({"sourceAddressPrefixes": ["203.0.113.0/24"], "destinationPortRange": "5986"}, True),
        ({"sourceAddressPrefix": "*", "destinationPortRange": "5000-6000"}, True),
        ({"sourceAddressPrefix": "VirtualNetwork", "destinationPortRange": "5986"}, False),
        ({"sourceAddressPrefix": "*", "destinationPortRange": "5985"}, False),
        ({"sourceAddressPrefix": "*", "destinationPortRange": "5986", "access": "Deny"}, False),
    ],
)
def test_a_security_group_must_admit_the_port(cloud: _Cloud, rule: Json, *, is_open: bool) -> None:
    template = _vm_template(cloud.vault())
    kind = "Microsoft.Network/networkSecurityGroups"
    properties = {"access": "Allow", "direction": "Inbound", "protocol": "Tcp", **rule}
    guard = {
        "apiVersion": "1",
        "type": kind,
        "name": "nsg",
        "properties": {"securityRules": [{"properties": properties}]},
    }
    network = template["resources"][2]
    network["properties"]["subnets"][0]["properties"]["networkSecurityGroup"] = {"id": f"[resourceId('{kind}', 'nsg')]"}
    network["dependsOn"] = [f"[concat('{kind}', '/nsg')]"]
    template["resources"].append(guard)
    assert cloud.deploy("vm", template).status == 201
    reason = cloud.azure.why_closed(cloud.machines[0].address)
    assert (reason == "") is is_open
    assert is_open or "network security group nsg has no rule for TCP 5986" in str(reason)


@pytest.mark.parametrize(
    ("path", "value", "code"),
    [
        ("osProfile.computerName", "a-name-of-16-let", "InvalidParameter"),
        ("osProfile.adminPassword", "", "InvalidParameter"),
        ("osProfile.secrets", [], "InvalidParameter"),
        (
            "osProfile.secrets.0.vaultCertificates.0.certificateUrl",
            "https://vault1.vault.azure.net/x",
            "KeyVaultSecretDoesNotExist",
        ),
        ("osProfile.secrets.0.sourceVault.id", "/subscriptions/x/y", "ResourceNotFound"),
        ("storageProfile.imageReference.version", "1.2.3", "PlatformImageNotFound"),
        ("storageProfile.imageReference.sku", "2025-desktop", "NotFound"),
        ("storageProfile.osDisk.managedDisk", None, "InvalidParameter"),
        ("storageProfile.osDisk.managedDisk", {"diskEncryptionSet": {"id": "/nowhere"}}, "ResourceNotFound"),
        ("storageProfile.osDisk.managedDisk", {"diskEncryptionSet": {"id": _KEYS_FAR_AWAY}}, "BadRequest"),
        ("networkProfile.networkInterfaces", [{"id": "/nic"}], "ResourceNotFound"),
    ],
)
def test_a_machine_that_azure_refuses_is_refused(cloud: _Cloud, path: str, value: object, code: str) -> None:
    template = copy.deepcopy(_vm_template(cloud.vault()))
    at: Any = template["resources"][0]["properties"]
    *parents, last = path.split(".")
    for part in parents:
        at = at[int(part)] if part.isdigit() else at[part]
    at[last] = value
    answer = cloud.deploy("vm", template)
    assert _code(answer)[1] == code
    assert cloud.machines == []
    assert cloud.ask("GET", f"{cloud.group}/providers/Microsoft.Compute/virtualMachines/vm").status == 404


@pytest.mark.parametrize(
    ("change", "message", "fault"),
    [
        ({"resources": [{"apiVersion": "1", "type": "Microsoft.Web/sites", "name": "s"}]}, "Microsoft.Web/sites", True),
        ({"resources": [{"type": "Microsoft.Network/publicIPAddresses", "name": "s"}]}, "no apiVersion", False),
        ({"parameters": {"more": {"type": "string"}}}, "'more' is not provided", False),
        (
            {
                "resources": [
                    {
                        "apiVersion": "1",
                        "type": "Microsoft.Network/publicIPAddresses",
                        "name": "s",
                        "dependsOn": ["A.B/c/d"],
                    }
                ]
            },
            "depends on a missing resource",
            False,
        ),
    ],
)
def test_a_template_that_is_wrong_is_refused(cloud: _Cloud, change: Json, message: str, *, fault: bool) -> None:
    cloud.ask("PUT", cloud.group, {"location": "westeurope"})
    answer = cloud.deploy("x", {"parameters": {}, "resources": [], **change})
    assert _code(answer) == (400, "InvalidTemplate")
    assert message in answer.body.decode()
    assert bool(answer.fault) is fault


def test_a_condition_leaves_a_resource_out(cloud: _Cloud) -> None:
    cloud.ask("PUT", cloud.group, {"location": "westeurope"})
    resource = {"apiVersion": "1", "type": "Microsoft.Network/publicIPAddresses", "name": "ip"}
    answer = cloud.deploy("x", {"resources": [{**resource, "condition": "[not(empty(''))]"}]})
    assert answer.status == 201
    assert cloud.ask("GET", f"{cloud.group}/providers/Microsoft.Network/publicIPAddresses/ip").status == 404


def test_validating_makes_nothing(cloud: _Cloud) -> None:
    template = _vm_template(cloud.vault())
    body = {"properties": {"mode": "Incremental", "template": template}}
    target = f"{cloud.group}/providers/Microsoft.Resources/deployments/vm"
    assert cloud.ask("POST", f"{target}/validate", body).status == 200
    assert (cloud.machines, cloud.ask("GET", target).status) == ([], 404)


def test_a_version_is_made_of_a_sealed_machine_only(cloud: _Cloud) -> None:
    machine = cloud.machine()
    assert _code(cloud.publish(machine)) == (409, "OperationNotAllowed")
    assert _code(cloud.ask("POST", f"{machine}/generalize")) == (409, "OperationNotAllowed")
    stopped = cloud.ask("POST", f"{machine}/deallocate")
    assert (stopped.status, stopped.header("retry-after")) == (202, "1")
    operation = stopped.header("azure-asyncoperation").removeprefix("https://management.azure.com")
    assert cloud.get(operation)["status"] == "Succeeded"
    assert cloud.azure.why_closed(cloud.machines[0].address) == "the machine is deallocated"
    assert _code(cloud.publish(machine)) == (409, "OperationNotAllowed")
    assert cloud.ask("POST", f"{machine}/generalize").status == 200
    assert cloud.publish(machine).status == 201


def test_a_version_takes_time_and_is_seen_doing_so(cloud: _Cloud) -> None:
    made = cloud.publish(
        cloud.sealed(), targetRegions=[{"name": "West Europe"}, {"name": "northeurope"}], excludeFromLatest=True
    )
    assert json.loads(made.body)["properties"]["provisioningState"] == "Creating"
    operation = made.header("azure-asyncoperation").removeprefix("https://management.azure.com")
    assert [cloud.get(operation)["status"] for _ in range(2)] == ["InProgress", "Succeeded"]
    version = cloud.get(f"{cloud.version}/{_VERSION}")["properties"]
    assert version["provisioningState"] == "Succeeded"
    assert version["publishingProfile"]["excludeFromLatest"] is True
    assert [each["name"] for each in version["publishingProfile"]["targetRegions"]] == ["West Europe", "North Europe"]


def test_an_update_replicates_and_shows_a_version(cloud: _Cloud) -> None:
    cloud.publish(cloud.sealed(), excludeFromLatest=True)
    target = f"{cloud.version}/{_VERSION}"
    assert cloud.get(target)["properties"]["provisioningState"] == "Creating"
    version = cloud.get(target)
    cloud.ask("DELETE", cloud.group)
    version["properties"]["publishingProfile"]["targetRegions"].append({"name": "eastus2", "regionalReplicaCount": 2})
    version["properties"]["publishingProfile"]["excludeFromLatest"] = False
    assert cloud.ask("PUT", target, version).status == 200
    seen = [cloud.get(f"{target}?$expand=ReplicationStatus")["properties"]["replicationStatus"] for _ in range(2)]
    assert [each["aggregatedState"] for each in seen] == ["InProgress", "Completed"]
    assert [each["state"] for each in seen[0]["summary"]] == ["Completed", "Replicating"]
    [listed] = cloud.get(cloud.version)["value"]
    assert listed["properties"]["publishingProfile"]["excludeFromLatest"] is False
    patched = {"tags": {"a": "b"}, "properties": {"publishingProfile": {"excludeFromLatest": True}}}
    assert cloud.ask("PATCH", target, patched).status == 200
    shown = cloud.get(target)
    assert (shown["tags"], len(shown["properties"]["publishingProfile"]["targetRegions"])) == ({"a": "b"}, 2)


def test_a_region_that_fails_fails_the_version_and_a_failed_build_stays_failed() -> None:
    for failing, ends in (("northeurope", ["Completed", "Failed"]), ("westeurope", ["Failed", "Replicating"])):
        cloud = _Cloud(failing=failing)
        target = f"{cloud.version}/{_VERSION}"
        cloud.publish(cloud.sealed(), targetRegions=[{"name": "westeurope"}, {"name": "northeurope"}])
        seen = [cloud.get(f"{target}?$expand=ReplicationStatus") for _ in range(2)][-1]
        assert seen["properties"]["provisioningState"] == "Failed"
        summary = seen["properties"]["replicationStatus"]["summary"]
        assert [each["state"] for each in summary] == ends
        assert [each["details"] for each in summary if each["state"] == "Failed"] == ["no quota"]
        assert cloud.ask("PUT", target, seen).status == 200
        assert [cloud.get(target)["properties"]["provisioningState"] for _ in range(2)] == ["Updating", "Failed"]


@pytest.mark.parametrize(
    ("version", "profile", "code"),
    [
        ("1.2", {}, "InvalidParameter"),
        ("1.2.03", {}, "InvalidParameter"),
        ("1.2.2147483648", {}, "InvalidParameter"),
        (_VERSION, {"targetRegions": [{"name": "northeurope"}]}, "InvalidParameter"),
        (_VERSION, {"targetRegions": [{"name": "westeurope"}, {"name": "West Europe"}]}, "InvalidParameter"),
        (
            _VERSION,
            {"targetRegions": [{"name": "westeurope"}, {"name": "mars"}]},
            "LocationNotAvailableForResourceType",
        ),
    ],
)
def test_a_version_that_azure_refuses_is_refused(cloud: _Cloud, version: str, profile: Json, code: str) -> None:
    assert _code(cloud.publish(cloud.sealed(), version, **profile)) == (400, code)


def test_another_source_or_place_is_no_update(cloud: _Cloud) -> None:
    machine = cloud.sealed()
    cloud.publish(machine)
    assert _code(cloud.publish(machine)) == (409, "Conflict")
    version = [cloud.get(f"{cloud.version}/{_VERSION}") for _ in range(2)][-1]
    assert _code(cloud.publish(f"{machine}2")) == (409, "PropertyChangeNotAllowed")
    assert _code(cloud.ask("PUT", f"{cloud.version}/{_VERSION}", {**version, "location": "eastus"})) == (
        409,
        "PropertyChangeNotAllowed",
    )


@pytest.mark.parametrize(
    ("definition", "security", "message"),
    [
        ({"generation": "V1"}, "", "of generation V2, the definition of V1"),
        ({}, "TrustedLaunch", "security type is TrustedLaunch, the image definition's Standard"),
        ({"security_type": "TrustedLaunch"}, "", "security type is Standard, the image definition's TrustedLaunch"),
        ({"security_type": "TrustedLaunch"}, "TrustedLaunch", ""),
        ({"security_type": "TrustedLaunchSupported"}, "TrustedLaunch", "only Vhd Blob, User Image and Gallery"),
        ({"os_type": "Linux"}, "", "osType of the source is Windows, the image definition's is Linux"),
        ({"architecture": "Arm64"}, "", "architecture of the source is x64, the image definition's is Arm64"),
    ],
)
def test_machine_and_definition_must_agree(definition: dict[str, str], security: str, message: str) -> None:
    cloud = _Cloud(**definition)
    template = _vm_template(cloud.vault())
    template["resources"][0]["properties"]["securityProfile"] = {"securityType": security}
    cloud.deploy("vm", template)
    machine = f"{cloud.group}/providers/Microsoft.Compute/virtualMachines/vm"
    cloud.ask("POST", f"{machine}/deallocate")
    cloud.ask("POST", f"{machine}/generalize")
    answer = cloud.publish(machine)
    assert answer.status == (400 if message else 201)
    assert message in answer.body.decode()


def test_a_gallery_and_a_definition_can_be_made(cloud: _Cloud) -> None:
    gallery = f"{cloud.base}/resourceGroups/images/providers/Microsoft.Compute/galleries/second"
    assert cloud.ask("PUT", gallery, {"location": "westeurope"}).status == 201
    properties = {"osType": "Windows", "osState": "Generalized", "identifier": {"sku": "s"}, "hyperVGeneration": "V2"}
    body = {"location": "westeurope", "properties": properties}
    assert [cloud.ask("PUT", f"{gallery}/images/win", body).status for _ in range(2)] == [201, 200]
    changed = {**body, "properties": {**properties, "hyperVGeneration": "V1"}}
    assert _code(cloud.ask("PUT", f"{gallery}/images/win", changed)) == (409, "PropertyChangeNotAllowed")
    assert [each["name"] for each in cloud.get(f"{gallery}/images")["value"]] == ["win"]
    assert _code(cloud.ask("PUT", f"{gallery}-dashed", {"location": "westeurope"})) == (400, "InvalidParameter")


def test_marketplace_versions(cloud: _Cloud) -> None:
    place = f"{cloud.base}/providers/Microsoft.Compute/locations/WestEurope/publishers/MicrosoftWindowsServer"
    offer = f"{place}/artifacttypes/vmimage/offers/WindowsServer2022/skus"
    newest = cloud.ask("GET", f"{offer}/2022-Datacenter-g2/versions?$orderby=name desc&$top=1")
    assert [each["name"] for each in json.loads(newest.body)] == ["20348.5499.260809"]
    image = cloud.get(f"{offer}/2022-datacenter-g2/versions/20348.5386.260713")
    assert image["properties"]["hyperVGeneration"] == "V2"
    assert cloud.ask("GET", f"{offer}/2022-datacenter-g9/versions").status == 404
    assert "2022-datacenter-core" in [each["name"] for each in json.loads(cloud.ask("GET", offer).body)]


def test_deleting_a_group_deletes_all_that_is_in_it(cloud: _Cloud) -> None:
    machine = cloud.machine()
    assert cloud.ask("DELETE", f"{cloud.group}/providers/Microsoft.Resources/deployments/vm") == Response(
        204, note="DELETE deployments"
    )
    assert cloud.ask("DELETE", f"{cloud.group}/providers/Microsoft.Compute/disks/os").status == 204
    assert cloud.ask("DELETE", cloud.group).status == 200
    assert [cloud.ask("HEAD", cloud.group).status, cloud.ask("GET", machine).status] == [404, 404]
    assert cloud.azure.why_closed(cloud.machines[0].address) is None
    assert cloud.get(cloud.version) == {"value": []}


def test_a_deleted_vault_keeps_its_name_until_it_is_purged(cloud: _Cloud) -> None:
    cloud.vault()
    assert cloud.ask("DELETE", cloud.group).status == 200
    [vault] = cloud.get(f"{cloud.base}/providers/Microsoft.KeyVault/deletedVaults")["value"]
    assert vault["id"] == f"{cloud.base}/providers/Microsoft.KeyVault/locations/westeurope/deletedVaults/vault1"
    assert vault["properties"]["vaultId"] == f"{cloud.group}/providers/Microsoft.KeyVault/vaults/vault1"
    assert cloud.ask("PUT", cloud.group, {"location": "West Europe"}).status == 201
    again = functools.partial(cloud.deploy, "kv", _VAULT_TEMPLATE, vault="vault1", value=_pfx(), owner="")
    assert _code(again()) == (409, "ConflictError")
    assert cloud.ask("POST", f"{vault['id']}/purge").status == 202
    assert _code(cloud.ask("GET", vault["id"])) == (404, "DeletedVaultNotFound")
    assert again().status == 201


def test_a_group_lists_what_is_in_it_and_how_it_was_deployed(cloud: _Cloud) -> None:
    cloud.machine()
    listed = cloud.get(f"{cloud.group}/resources")["value"]
    kinds = [each["type"].rpartition("/")[2] for each in listed]
    assert {"vaults", "virtualMachines", "disks"} <= set(kinds)
    assert not {"secrets", "deployments"} & set(kinds)
    assert {"properties"} & {key for each in listed for key in each} == set()
    deployments = f"{cloud.group}/providers/Microsoft.Resources/deployments"
    assert [each["name"] for each in cloud.get(deployments)["value"]] == ["kv", "vm"]
    exported = json.loads(cloud.ask("POST", f"{deployments}/kv/exportTemplate").body)
    assert exported == {"template": _VAULT_TEMPLATE}
    filtered = cloud.ask("GET", f"{cloud.group}/resources?$filter=tagName eq 'a'")
    assert (filtered.status, filtered.fault) == (400, "unexpected filter tagName eq 'a'")


@pytest.mark.parametrize(
    ("target", "status", "code", "fault"),
    [
        (
            "{group}/providers/Microsoft.Web/sites/x",
            404,
            "NotFound",
            "unexpected ARM request GET {group}/providers/Microsoft.Web/sites/x",
        ),
        ("/tenants", 404, "NotFound", "unexpected ARM request GET /tenants"),
        ("/subscriptions/another/resourceGroups/x", 404, "SubscriptionNotFound", ""),
        ("{group}?api-version=", 400, "MissingApiVersionParameter", ""),
        ("{group}", 404, "ResourceGroupNotFound", ""),
    ],
)
def test_what_is_not_known_is_refused(cloud: _Cloud, target: str, status: int, code: str, fault: str) -> None:
    answer = cloud.ask("GET", target.format(group=cloud.group))
    assert (*_code(answer), answer.fault) == (status, code, fault.format(group=cloud.group))
