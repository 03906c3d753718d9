r"""The credentials of registries on the model machine: who reads them.

crictl takes CRICTL_AUTH (cri-tools cmd/crictl/image.go at 1.24), and containerd offers it to every host that asks
(internal/cri/server/images/image_pull.go: ParseAuth). Docker reads config.json in the folder of --config.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from imagegen.rehearsal.machine.bundle import HOME

if TYPE_CHECKING:
    from imagegen.rehearsal.machine.files import Files

DOCKER_FOLDER: Final = HOME + r"\docker"


def auth_of(settings: str, key: str) -> str:
    """The credentials of a registry in a configuration of Docker, as HTTP's Basic scheme has them."""
    auths = json.loads(settings)["auths"] if settings else {}
    return str(auths.get(key, {}).get("auth", ""))


def docker_auth(files: Files, registry: str) -> str:
    """The credentials that `docker --config` finds for a registry. Docker has a name of its own for Docker Hub."""
    path = rf"{DOCKER_FOLDER}\config.json"
    key = "https://index.docker.io/v1/" if registry == "docker.io" else registry
    return auth_of(files.read(path).decode(), key) if files.is_file(path) else ""
