r"""The credentials of registries on the model machine: the file of Packer's powershell provisioner, and who reads it.

Packer writes a line of variables: `$env:NAME="value"; ` (provisioner/powershell/provisioner.go at 1.16).
crictl takes CRICTL_AUTH (cri-tools cmd/crictl/image.go at 1.24), and containerd offers it to every host that asks
(internal/cri/server/images/image_pull.go: ParseAuth). Docker reads config.json in the folder of --config.
"""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING, Final

from imagegen.rehearsal.machine.bundle import HOME

if TYPE_CHECKING:
    from imagegen.rehearsal.machine.files import Files
    from imagegen.rehearsal.machine.windows import Machine

FILE: Final = HOME + r"\registries.ps1"
DOCKER_FOLDER: Final = HOME + r"\docker"
_VARIABLES: Final = re.compile(r'(\$env:[A-Z_]+="[^"]*"; )+')
_VALUE: Final = re.compile(r'\$env:IMAGEGEN_REGISTRIES="([A-Za-z0-9+/=]*)"; ')


def parse_variables(data: bytes) -> str | None:
    """The configuration of Docker in Packer's file; empty without credentials, None for another file."""
    text = data.decode(errors="replace")
    found = _VALUE.search(text)
    if found is None or not _VARIABLES.fullmatch(text):
        return None
    return base64.b64decode(found[1]).decode()


def take_variables(machine: Machine) -> str:
    """What start.ps1 does first: read the file, and delete it."""
    if not machine.files.is_file(FILE):
        return ""
    data = machine.files.read(FILE)
    machine.files.remove(FILE)
    return parse_variables(data) or ""


def auth_of(settings: str, key: str) -> str:
    """The credentials of a registry in a configuration of Docker, as HTTP's Basic scheme has them."""
    auths = json.loads(settings)["auths"] if settings else {}
    return str(auths.get(key, {}).get("auth", ""))


def docker_auth(files: Files, registry: str) -> str:
    """The credentials that `docker --config` finds for a registry. Docker has a name of its own for Docker Hub."""
    path = rf"{DOCKER_FOLDER}\config.json"
    key = "https://index.docker.io/v1/" if registry == "docker.io" else registry
    return auth_of(files.read(path).decode(), key) if files.is_file(path) else ""
