"""What dockerd needs to run as a service: the feature for containers, and settings that it can read."""

from __future__ import annotations

import itertools
import json
import re
from typing import TYPE_CHECKING, Any, Final

from imagegen.catalog.docker import can_lower_api
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.node.facts import read_version

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imagegen.rehearsal.machine.features import Features
    from imagegen.rehearsal.machine.files import Files

SETTINGS: Final = r"C:\ProgramData\docker\config\daemon.json"
# Keys of daemon.json (daemon/config/config.go), and the types of their values.
_KEYS: Final[dict[str, type]] = {
    **{"hosts": list, "log-driver": str, "log-opts": dict, "log-level": str, "debug": bool, "data-root": str},
    **{"group": str, "fixed-cidr": str, "bridge": str, "exec-opts": list, "storage-opts": list, "labels": list},
    **{"max-concurrent-downloads": int, "registry-mirrors": list, "insecure-registries": list, "proxies": dict},
    "min-api-version": str,
}
# The flags of the command line, and the key of the same setting.
_FLAGS: Final = {"-H": "hosts", "--host": "hosts", "--data-root": "data-root", "--log-level": "log-level"}
_API: Final = re.compile(r"1\.[0-9]{1,2}")


def check_dockerd(files: Files, features: Features, program: str, arguments: Sequence[str]) -> None:
    """Raise the error with which dockerd would end."""
    if not features.is_installed("Containers"):
        raise RefusedByWindows("dockerd cannot run: feature Containers is not Installed")
    given = dict(itertools.pairwise([*arguments, ""]))
    path = given.get("--config-file", SETTINGS)
    if not files.is_file(path):
        if "--config-file" in given:
            raise RefusedByWindows(f"unable to configure the Docker daemon with file {path}: it does not exist")
        return
    settings = _read(files.read(path), path)
    if "min-api-version" in settings and not can_lower_api(read_version(files, program)):
        raise _unknown(path, "min-api-version")
    twice = sorted(key for flag, key in _FLAGS.items() if flag in given and key in settings)
    if twice:
        raise RefusedByWindows(
            f"unable to configure the Docker daemon with file {path}: the following directives are specified both as "
            f"a flag and in the configuration file: {', '.join(twice)}"
        )


def _unknown(path: str, names: str) -> RefusedByWindows:
    return RefusedByWindows(
        f"unable to configure the Docker daemon with file {path}: the following directives don't match any "
        f"configuration option: {names}"
    )


def _read(data: bytes, path: str) -> dict[str, Any]:
    about = f"unable to configure the Docker daemon with file {path}"
    try:
        settings = json.loads(data.decode("utf-8"))
    except ValueError as error:
        raise RefusedByWindows(f"{about}: {error}") from error
    if not isinstance(settings, dict):
        raise RefusedByWindows(f"{about}: it has no settings")
    if unknown := sorted(settings.keys() - _KEYS.keys()):
        raise _unknown(path, ", ".join(unknown))
    wrong = sorted(name for name, value in settings.items() if not isinstance(value, _KEYS[name]))
    if wrong or not _API.fullmatch(str(settings.get("min-api-version", "1.24"))):
        raise RefusedByWindows(f"{about}: {(wrong or ['min-api-version'])[0]} has another type")
    return settings
