r"""The stand-in of the DVD with which Azure provisions a Windows machine.

It has the files that provisioning agents read: the tag by which they find the drive, the OVF environment, the custom
data, and the guest agent. Folders below `$$` are meant for C:\Windows. Azure's own answer file is not among them: the
image brings the answer file that Windows Setup uses.
"""

from __future__ import annotations

import base64
import io
import zipfile
from typing import TYPE_CHECKING, Final
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from imagegen.rehearsal.boot.model import Instance

DRIVE: Final = "E:"
TAG: Final = "E6DA6616-8EC4-48E0-BE93-58CE6ACE3CFB.tag"
AGENT_PACKAGE: Final = "Win7_Win8_IaaS_rd_art_stable_140703-0050_GuestAgentPackage.zip"
_AGENT_VERSION = "2.7.41491.1172"
_AGENT_MEMBERS = (
    *("CommonAgentConfig.config", "TransparentInstaller.dll", "WaAppAgent.exe", "WaAppAgent.exe.config"),
    *("WindowsAzureGuestAgent.exe", "WindowsAzureGuestAgent.exe.config"),
)
_DATA_LOSS = (
    "The data on the temporary disk is lost when the machine is moved. Do not store anything important here.\r\n"
)


def make_dvd(instance: Instance) -> dict[str, bytes]:
    r"""The files by their path below the drive, with `\`."""
    files = {
        TAG: b"",
        "ovf-env.xml": make_environment(instance).encode(),
        rf"$$\OEM\GuestAgent\{AGENT_PACKAGE}": _make_agent_package(),
        r"$$\OEM\DATALOSS_WARNING_README.txt": _DATA_LOSS.encode(),
    }
    return files | ({"CustomData.bin": instance.user_data} if instance.user_data else {})


def make_environment(instance: Instance) -> str:
    """The OVF environment: what the machine's creator asked for, and the settings of the platform."""
    settings = {
        "ConfigurationSetType": "WindowsProvisioningConfiguration",
        "ComputerName": instance.host_name,
        "AdminPassword": instance.admin_password,
        "ResetPasswordOnFirstLogon": "false",
        "EnableAutomaticUpdates": "true",
        "TimeZone": "UTC",
        "AdminUsername": instance.admin_name,
    }
    if instance.user_data:
        settings["CustomData"] = base64.b64encode(instance.user_data).decode()
    platform = {
        "KmsServerHostname": "kms.core.windows.net",
        "ProvisionGuestAgent": "true",
        "GuestAgentPackageName": AGENT_PACKAGE,
        "RetainWindowsPEPassInUnattend": "true",
        "RetainOfflineServicingPassInUnattend": "true",
        "PreprovisionedVm": "false",
        "PreprovisionedVmType": "None",
        "EnableTrustedImageIdentifier": "false",
    }
    inner = 'xmlns="http://schemas.microsoft.com/windowsazure" xmlns:i="http://www.w3.org/2001/XMLSchema-instance"'
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n'
        '<Environment xmlns="http://schemas.dmtf.org/ovf/environment/1" '
        'xmlns:oe="http://schemas.dmtf.org/ovf/environment/1" xmlns:wa="http://schemas.microsoft.com/windowsazure" '
        'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance">'
        "<wa:ProvisioningSection><wa:Version>1.0</wa:Version>"
        f"<WindowsProvisioningConfigurationSet {inner}>{_elements(settings)}</WindowsProvisioningConfigurationSet>"
        "</wa:ProvisioningSection>"
        "<wa:PlatformSettingsSection><wa:Version>1.0</wa:Version>"
        f"<PlatformSettings {inner}>{_elements(platform)}</PlatformSettings>"
        "</wa:PlatformSettingsSection></Environment>\n"
    )


def _elements(values: dict[str, str]) -> str:
    return "".join(f"<{name}>{escape(value)}</{name}>" for name, value in values.items())


def _make_agent_package() -> bytes:
    """The guest agent, as stand-ins of its programs that hold their version."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in _AGENT_MEMBERS:
            program = b"MZ " if name.endswith((".exe", ".dll")) else b""
            text = f"a stand-in for {name} {_AGENT_VERSION}, made for a rehearsal\n".encode()
            archive.writestr(zipfile.ZipInfo(name), program + text)
    return buffer.getvalue()
