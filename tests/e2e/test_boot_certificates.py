"""A node on Azure gets the certificates of a key vault: real cloudbase-init asks the wireserver, decrypts and imports.

cloudbase-init's plugin for that is not among the shipped ones: a config names it in `cloudbase_init.plugins`.
"""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING

import pytest

from imagegen.catalog.facts import table
from imagegen.rehearsal.boot.boot import boot_image
from imagegen.rehearsal.cloudbase_init.run import Runner
from imagegen.rehearsal.machine.certificates import MY, ROOT
from tests.certificates_support import given, make
from tests.conftest import REPOSITORY, load_today
from tests.e2e.boot_support import change_text, make_image
from tests.e2e.cloudbase_init_support import VERSIONS, make_runner

if TYPE_CHECKING:
    from pathlib import Path

    from imagegen.rehearsal.boot.booted import Boot, Image
    from imagegen.rehearsal.boot.model import GivenCertificate, Instance

pytestmark = pytest.mark.e2e

_BASE = REPOSITORY / "tests" / "rules" / "base.yaml"
_CONF = r"C:\Program Files\Cloudbase Solutions\Cloudbase-Init\conf\cloudbase-init.conf"
# The store that cloudbase-init makes for the certificate for which Azure encrypts.
_OF_AGENT = r"LocalMachine\Windows Azure Environment"
_PLUGIN = "cloudbaseinit.plugins.windows.certificates.ServerCertificatesPlugin"
# What agents of others may do with the same calls. Each is asked once.
_OWN_PLUGIN = """\
from cloudbaseinit import conf
from cloudbaseinit.plugins.common import base, userdatautils
from cloudbaseinit.utils.windows import x509

class OwnPlugin(base.BasePlugin):
    def execute(self, service, shared_data):
        conf.CONF.set_override("retry_count", 0)
        open = userdatautils.open
        manager = x509.CryptoAPICertManager()
        address = service._get_role_instance_config().Certificates.cdata
        {statement}
        return base.PLUGIN_EXECUTION_DONE, False
"""


def _make_image(target: str, folder: Path) -> Image:
    plugins = [*table("cloudbase-init")["clouds"][target]["plugins"]]
    # Before user data, which may need them.
    plugins.insert(-1, _PLUGIN)
    return make_image(target, folder, load_today(_BASE, f"cloudbase_init.plugins.{target}=[{', '.join(plugins)}]"))


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    return _make_image("azure", tmp_path_factory.mktemp("image"))


def _boot(image: Image, runner: Runner, *certificates: GivenCertificate) -> Boot:
    def change(instance: Instance) -> Instance:
        return dataclasses.replace(instance, certificates=certificates)

    return boot_image(image, runner, change_instance=change)


def _list(booted: Boot) -> dict[str, frozenset[str]]:
    """The thumbprints in each certificate store of the node, without those of the image: the roots that every Windows
    has, and the builder's, which first-boot.ps1 removes."""
    stores, before = booted.machine.certificates, booted.image.machine.certificates
    found = {store: stores.thumbprints(store) - before.thumbprints(store) for store in stores}
    return {store: prints for store, prints in found.items() if prints or store != ROOT}


def _boot_own(image: Image, folder: Path, statement: str, *certificates: GivenCertificate) -> Boot:
    """Boot with a plugin in place of cloudbase-init's own, which does this."""
    (folder / "modules").mkdir()
    (folder / "modules" / "somebody.py").write_text(_OWN_PLUGIN.format(statement=statement))
    machine = image.machine.copy(folder / "disk")
    change_text(machine, _CONF, _PLUGIN, "somebody.OwnPlugin")
    runner = Runner(folder, os.environ, (folder / "modules",))
    return _boot(dataclasses.replace(image, machine=machine), runner, *certificates)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_certificate_is_in_the_store_and_the_agents_own_is_gone(
    image: Image, cloudbase_init_cache: Path, tmp_path: Path, version: str
) -> None:
    booted = _boot(image, make_runner(version, cloudbase_init_cache, tmp_path), given("web"))
    assert (booted.cloudbase_init, booted.faults) == (version, [])
    stores, made = booted.machine.certificates, make("web")
    assert _list(booted) == {MY: {made.thumbprint}, _OF_AGENT: set()}
    found = stores.find(made.thumbprint)
    assert found is not None
    assert (found.data, bool(found.key)) == (made.der, True)
    assert "Importing PFX certificate Stored0web in store LocalMachine, My" in booted.log


def test_the_store_is_the_one_that_the_creator_named(image: Image, tmp_path: Path) -> None:
    booted = _boot(image, Runner(tmp_path, os.environ), given("web", "Root"))
    assert booted.faults == []
    assert _list(booted) == {MY: set(), _OF_AGENT: set(), r"LocalMachine\Root": {make("web").thumbprint}}


def test_a_machine_without_certificates_asks_for_none(image: Image, tmp_path: Path) -> None:
    booted = _boot(image, Runner(tmp_path, os.environ))
    assert booted.faults == []
    assert _list(booted) == {MY: set()}


def test_a_cloud_without_this_setting_gives_none(tmp_path: Path) -> None:
    booted = _boot(_make_image("aws", tmp_path / "image"), Runner(tmp_path, os.environ), given("web"))
    assert booted.faults == []
    assert "does not provide server certificates" in booted.log
    assert _list(booted) == {MY: set()}


def test_more_certificates_than_the_stand_in_packs_fail_the_boot_by_name(image: Image, tmp_path: Path) -> None:
    booted = _boot(image, Runner(tmp_path, os.environ), given("web"), given("other"))
    assert booted.unknown == ("the stand-in of the wireserver packs 1 certificate, not 2",)
    assert booted.faults[1] == "cloudbase-init: ServerCertificatesPlugin failed"


def test_an_agent_without_a_certificate_of_its_own_is_sent_nothing(image: Image, tmp_path: Path) -> None:
    booted = _boot_own(image, tmp_path, "service._wire_server_request(address)", given("web"))
    assert booted.faults[0] == "cloudbase-init: OwnPlugin failed"
    assert "400 Client Error" in booted.log


_STOLEN = """\
thumbprint, certificate = manager.create_self_signed_cert("CN=agent")
        other, _ = manager.create_self_signed_cert("CN=other")
        data, _ = service._get_encoded_cert(address, certificate)
        manager.delete_certificate_from_store(thumbprint)
        try:
            manager.decode_pkcs7_base64_blob(data, other)
        finally:
            manager.delete_certificate_from_store(other)"""


def test_a_pfx_for_another_certificate_cannot_be_read(image: Image, tmp_path: Path) -> None:
    booted = _boot_own(image, tmp_path, _STOLEN, given("web"))
    assert booted.faults[0] == "cloudbase-init: OwnPlugin failed"
    assert "CryptoAPI error: 0x8009200c" in booted.log
    assert _list(booted) == {MY: set()}


_PACKED = "service.get_server_certs()[0]['pfx_data']"
_PFX = r"C:\Windows\Temp\web.pfx"
_PEM = r"C:\etc\kubernetes\web.pem"


@pytest.mark.parametrize(
    ("statement", "path"),
    [
        (f"open(r'{_PFX}', 'wb').write({_PACKED})", _PFX),
        # A folder that is closed to Users does not help.
        (f"import base64; open(r'{_PEM}', 'wb').write(base64.encodebytes({_PACKED}))", _PEM),
    ],
    ids=["pfx", "base64"],
)
def test_a_key_in_a_file_is_found(image: Image, tmp_path: Path, statement: str, path: str) -> None:
    booted = _boot_own(image, tmp_path, statement, given("web"))
    assert booted.faults == [f"secrets: the private key of a certificate is in {path}"]


def test_what_the_model_does_not_know_of_certificates_is_named(image: Image, tmp_path: Path) -> None:
    booted = _boot_own(image, tmp_path, "manager.import_cert('a')", given("web"))
    assert len(booted.unknown) == 1
    assert "import_cert of cloudbase-init's" in booted.unknown[0]
