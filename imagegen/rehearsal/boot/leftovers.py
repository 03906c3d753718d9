"""Looks for what a sealed image must not have of its build. It knows nothing of how an image is sealed.

The list is from what other builders of images remove or left behind, and from what Packer, Windows Setup, OpenSSH,
PowerShell and the agents of the clouds write.
"""

from __future__ import annotations

import fnmatch
import ntpath
from typing import TYPE_CHECKING, Final

from imagegen.rehearsal.clouds import guest_agents

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imagegen.rehearsal.machine.agents import Agents
    from imagegen.rehearsal.machine.windows import Machine

# By pattern, in lower case; `*` is any part of a path.
_FILES: Final = (
    ("a temporary file", r"c:\windows\temp\*"),
    ("a temporary file", r"*\appdata\local\temp\*"),
    ("a history of commands", r"*\psreadline\*_history.txt"),
    ("a host key", r"c:\programdata\ssh\ssh_host_*"),
    ("an answer file", r"c:\windows\panther\*unattend*.xml"),
    ("an answer file", r"c:\windows\system32\sysprep\*unattend*.xml"),
    ("a file of the engine", r"c:\programdata\imagegen\*"),
    ("a file of the engine", r"c:\windows\imagegen-check*"),
    ("a log of Windows", r"c:\windows\logs\*"),
)
# The answer file with which sysprep was called, and the release record.
_EXPECTED: Final = (r"c:\windows\panther\unattend.xml", r"c:\programdata\imagegen\manifest.json")
_WINLOGON: Final = r"HKLM:\SOFTWARE\Microsoft\Windows NT\CurrentVersion\Winlogon"
_WINRM: Final = r"HKLM:\SOFTWARE\Microsoft\Windows\CurrentVersion\WSMAN\Service"
# Packer's own tasks, for commands that it runs as another account.
_TASKS_OF_PACKER: Final = "packer-*"


def find_leftovers(image: Machine, provider: str) -> Iterator[str]:
    """What is left, each with its name."""
    agents = guest_agents(provider)
    yield from _files(image, agents)
    yield from _settings(image, agents)
    for name in image.tasks.names():
        task = image.tasks.task(name)
        if task and (not task.triggers or fnmatch.fnmatchcase(name.lower(), _TASKS_OF_PACKER)):
            yield f"task {name}"


def _files(image: Machine, agents: Agents) -> Iterator[str]:
    patterns = (*_FILES, *agents.traces)
    for path in image.files.below("C:"):
        lower = path.lower()
        what = next((name for name, pattern in patterns if fnmatch.fnmatchcase(lower, pattern)), "")
        if ntpath.dirname(lower) == "c:\\" and fnmatch.fnmatchcase(lower, "*unattend*.xml"):
            what = "an answer file"
        if what and lower not in _EXPECTED:
            yield f"{what}, {path}"


def _settings(image: Machine, agents: Agents) -> Iterator[str]:
    registry = image.registry
    if (registry.text(_WINLOGON, "AutoAdminLogon") or "0") != "0":
        yield "an automatic logon"
    if registry.text(_WINLOGON, "DefaultPassword"):
        yield "a password for an automatic logon"
    for value, name in (("auth_basic", "Basic"), ("allow_unencrypted", "unencrypted")):
        if registry.number(_WINRM, value):
            yield f"{name} requests allowed for WinRM"
    if agents.state and registry.has_key(agents.state):
        yield from (f"the state of extension {name}" for name in registry.subkeys(agents.state))
    for name in image.services.names():
        program = image.services.command(name).lstrip('"')
        if agents.extensions and program.lower().startswith(f"{agents.extensions.lower()}\\"):
            yield f"service {name} of an extension"
