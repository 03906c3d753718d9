"""The certificates that Azure's wireserver gives to a machine, and to whom it gives none."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import urllib.parse
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest
from cryptography.hazmat.primitives.serialization import pkcs7

from imagegen.rehearsal.boot.model import Instance
from imagegen.rehearsal.clouds.azure.boot import AzurePlatform
from imagegen.rehearsal.network.messages import Request, Response, parse_target
from tests.certificates_support import given, make, make_elliptic

if TYPE_CHECKING:
    from collections.abc import Mapping

_WIRESERVER = "168.63.129.16"
_VERSION = {"x-ms-version": "2015-04-05"}
_TRANSPORT = "x-ms-guest-agent-public-x509-cert"
_CIPHER = "x-ms-cipher-name"
_WITHOUT = Instance("node-1", "8c4f3c6e-0000-4000-8000-000000000001._node-1", b"#cloud-config\n", {}, "capi", "pass<&>")
_CONFIGURATION = "Container/RoleInstanceList/RoleInstance/Configuration"
# All answers to a machine without certificates, one after the other.
_ANSWERS_WITHOUT = "3ee645cd36f285de74e162995f4cf78373a803704ff2400512967dc281068765"


def _with(*names: str, store: str = "My") -> Instance:
    return dataclasses.replace(_WITHOUT, certificates=[given(name, store) for name in names])


def _get(platform: AzurePlatform, target: str, headers: Mapping[str, str] | None = None) -> Response:
    path, query = parse_target(target)
    sent = {**_VERSION, **(headers or {})}
    return platform.hosts[_WIRESERVER](Request("GET", _WIRESERVER, path, query, sent, b"", target))


def _parse(answer: Response) -> ET.Element:
    return ET.fromstring(answer.body)  # noqa: S314  # the stand-in's own


def _targets(platform: AzurePlatform) -> dict[str, str]:
    """The addresses in the goal state by their element, without the host."""
    found = _parse(_get(platform, "/machine?comp=goalstate")).find(_CONFIGURATION)
    assert found is not None
    urls = {item.tag: urllib.parse.urlsplit(item.text or "") for item in found}
    return {tag: f"{url.path}?{url.query}" for tag, url in urls.items() if url.netloc == f"{_WIRESERVER}:80"}


def _ask(platform: AzurePlatform, headers: Mapping[str, str]) -> Response:
    return _get(platform, _targets(platform)["Certificates"], headers)


def _for(name: str) -> dict[str, str]:
    return {_TRANSPORT: base64.b64encode(make(name).der).decode()}


def test_a_machine_without_certificates_is_answered_to_the_byte() -> None:
    platform = AzurePlatform(_WITHOUT, lambda: 0.0)
    targets = _targets(platform)
    assert list(targets) == ["HostingEnvironmentConfig", "SharedConfig", "ExtensionsConfig", "FullConfig"]
    bodies = [_get(platform, target).body for target in ("/machine?comp=goalstate", *targets.values())]
    assert hashlib.sha256(b"".join(bodies)).hexdigest() == _ANSWERS_WITHOUT
    target = targets["FullConfig"].partition("?")[0] + "?comp=certificates&incarnation=1"
    assert _get(platform, target, _for("agent")).status == 404


def test_the_goal_state_names_the_address_of_certificates() -> None:
    targets = _targets(AzurePlatform(_with("web"), lambda: 0.0))
    assert list(targets)[-1] == "Certificates"
    assert targets["Certificates"] == targets["FullConfig"].partition("?")[0] + "?comp=certificates&incarnation=1"


@pytest.mark.parametrize("cipher", [{}, {_CIPHER: "AES128_CBC"}])
def test_who_sends_a_certificate_is_sent_the_pfx_for_it(cipher: dict[str, str]) -> None:
    answer = _ask(AzurePlatform(_with("web"), lambda: 0.0), _for("agent") | cipher)
    root = _parse(answer)
    assert (answer.status, root.tag, root.findtext("Format")) == (200, "CertificateFile", "Pkcs7BlobWithPfxContents")
    assert (root.findtext("Version"), root.findtext("Incarnation")) == ("2010-12-15", "1")
    message = base64.b64decode(root.findtext("Data", ""))
    agent = make("agent")
    assert pkcs7.pkcs7_decrypt_der(message, agent.certificate, agent.key, []) == given("web").pfx
    with pytest.raises(ValueError, match="No recipient"):
        pkcs7.pkcs7_decrypt_der(message, make("other").certificate, make("other").key, [])


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({}, f"the header {_TRANSPORT} is missing"),
        ({_CIPHER: "AES128_CBC"}, f"the header {_TRANSPORT} is missing"),
        ({_TRANSPORT: "!"}, f"the header {_TRANSPORT} is no certificate in base64"),
        ({_TRANSPORT: "AAAA"}, f"the header {_TRANSPORT} is no certificate in base64"),
        ({_TRANSPORT: base64.b64encode(make_elliptic("agent")).decode()}, "has no RSA key"),
        (_for("agent") | {_CIPHER: "AES256_CBC"}, "unsupported cipher 'AES256_CBC'"),
        (_for("agent") | {_CIPHER: ""}, "unsupported cipher ''"),
        (_for("agent") | {"x-ms-version": "2099-01-01"}, "x-ms-version"),
    ],
)
def test_who_cannot_be_answered_safely_is_refused(headers: dict[str, str], said: str) -> None:
    answer = _ask(AzurePlatform(_with("web"), lambda: 0.0), headers)
    assert (answer.status, answer.fault) == (400, "")
    assert said in (_parse(answer).findtext("Message") or "")


def test_certificates_of_another_goal_state_are_gone() -> None:
    platform = AzurePlatform(_with("web"), lambda: 0.0)
    target = _targets(platform)["Certificates"].replace("incarnation=1", "incarnation=2")
    assert _get(platform, target, _for("agent")).status == 410


@pytest.mark.parametrize(
    ("names", "cipher", "fault"),
    [
        (("web",), "DES_EDE3_CBC", "the stand-in of the wireserver cannot encrypt with DES_EDE3_CBC"),
        (("web", "other"), "AES128_CBC", "the stand-in of the wireserver packs 1 certificate, not 2"),
    ],
)
def test_what_the_stand_in_cannot_do_fails_the_boot_by_name(names: tuple[str, ...], cipher: str, fault: str) -> None:
    answer = _ask(AzurePlatform(_with(*names), lambda: 0.0), _for("agent") | {_CIPHER: cipher})
    assert (answer.status, answer.fault) == (500, fault)


def test_the_hosting_environment_lists_the_certificates() -> None:
    platform = AzurePlatform(_with("web", "a{0}<b>", store="Root"), lambda: 0.0)
    targets = _targets(platform)
    for tag, path in (("HostingEnvironmentConfig", ""), ("FullConfig", "HostingEnvironmentConfig/")):
        rows = _parse(_get(platform, targets[tag])).findall(f"{path}StoredCertificates/StoredCertificate")
        assert [row.attrib for row in rows] == [
            {
                "name": name,
                "certificateId": f"sha1:{thumbprint}",
                "storeName": "Root",
                "configurationLevel": "System",
            }
            for name, thumbprint in (
                ("Stored0web", make("web").thumbprint),
                ("Stored1a{0}<b>", make("a{0}<b>").thumbprint),
            )
        ]
