"""How kubelet of a minor registers its credential providers. The words are kubelet's."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from imagegen.base.errors import ConfigError
from imagegen.rehearsal.boot.model import UnknownCommandError
from imagegen.rehearsal.boot.programs import full_path
from imagegen.rehearsal.node.facts import is_within, read_facts
from imagegen.rehearsal.node.kubelet_error import KubeletError
from imagegen.rehearsal.node.yaml_text import read_yaml_map

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imagegen.rehearsal.machine.windows import Machine

_FILE_FLAG, _FOLDER_FLAG = "image-credential-provider-config", "image-credential-provider-bin-dir"
_KIND = "CredentialProviderConfig"
_CONFIG_GROUP, _REQUEST_GROUP = "kubelet.config.k8s.io", "credentialprovider.kubelet.k8s.io"
_FOLDER = r"C:\Windows\System32"
_TYPES: dict[str, type] = {"string": str, "[]string": list, "[]ExecEnvVar": list}
# https://pkg.go.dev/time#ParseDuration
_DURATION = re.compile(r"[-+]?(?:0|(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:ns|us|ms|s|m|h))+)")


def register_credential_providers(
    machine: Machine, values: Mapping[str, str], minor: str, gates: Mapping[str, bool]
) -> tuple[str, ...]:
    """The names that kubelet registers. Raise the error with which it ends."""
    facts = read_facts("kubelet")["credential_providers"]
    file, folder = values.get(_FILE_FLAG, ""), values.get(_FOLDER_FLAG, "")
    gate = facts["gate"]
    is_on = gates.get(gate, is_within(minor, facts["gate_on"], None)) or not is_within(minor, *facts["gated"])
    if not is_on or not (file or folder):
        return ()
    try:
        return tuple(_register(machine, _absolute(file), _absolute(folder), minor))
    except ValueError as error:
        raise KubeletError(f"Failed to register CRI auth plugins: {error}") from error


def can_run(machine: Machine, folder: str, name: str) -> bool:
    """Whether kubelet can start the program of a registered provider: in every minor it adds the extension."""
    return machine.files.is_file(rf"{full_path(_FOLDER, folder)}\{name}.exe")


def _absolute(path: str) -> str:
    return full_path(_FOLDER, path) if path else ""


def _register(machine: Machine, file: str, folder: str, minor: str) -> list[str]:
    if not folder or not machine.files.is_folder(folder):
        raise ValueError(f"plugin binary directory {folder} did not exist")
    if not file:
        raise ValueError("credential provider config path is empty")
    if not machine.files.is_file(file):
        raise ValueError(f"unable to read external registry credential provider configuration from {file!r}")
    providers = _decode(machine.files.read(file), file, minor)
    faults = [fault for provider in providers for fault in _find_faults(provider, minor)]
    faults += [] if providers else ["providers: Required value: at least 1 item in plugins is required"]
    names = [provider["name"] for provider in providers]
    faults += [f'providers.name: Duplicate value: "{name}"' for name in sorted({*names}) if names.count(name) > 1]
    if faults:
        raise ValueError(f"failed to validate credential provider config: {', '.join(faults)}")
    # From some minor on kubelet adds the extension, as Windows does when it looks for a program.
    ending = ".exe" if is_within(minor, read_facts("kubelet")["credential_providers"]["adds_extension"], None) else ""
    for name in names:
        if not machine.files.is_file(rf"{folder}\{name}{ending}"):
            raise ValueError(rf"plugin binary executable {folder}\{name} did not exist")
    return names


def _decode(text: bytes, file: str, minor: str) -> list[dict[str, Any]]:
    shown = f"error decoding config {file}:"
    try:
        config = read_yaml_map(text, file)
    except (ConfigError, ValueError) as error:
        raise ValueError(f"{shown} {error}") from error
    group, _, version = str(config.get("apiVersion", "")).rpartition("/")
    kind = config.get("kind")
    if group != _CONFIG_GROUP or kind != _KIND or not _has_version(version, minor):
        raise ValueError(f'{shown} no kind "{kind}" is registered for version "{config.get("apiVersion")}"')
    fields = {"apiVersion": "string", "kind": "string", "providers": "[]CredentialProvider"}
    unknown = [str(key) for key in config if key not in fields]
    providers = config.get("providers") or []
    if not isinstance(providers, list) or not all(isinstance(provider, dict) for provider in providers):
        raise ValueError(f"{shown} json: cannot unmarshal into Go struct field {_KIND}.providers")
    for at, provider in enumerate(providers):
        unknown += [f"providers[{at}].{key}" for key in _check_types(provider, shown)]
    if unknown and is_within(minor, read_facts("kubelet")["credential_providers"]["strict"], None):
        raise ValueError(f"{shown} strict decoding error: {', '.join(f'unknown field {key!r}' for key in unknown)}")
    return [{"name": "", **provider} for provider in providers]


def _check_types(provider: dict[str, Any], shown: str) -> list[str]:
    """The fields that kubelet does not know. A value of a wrong type is an error."""
    known: dict[str, str] = read_facts("kubelet")["credential_providers"]["fields"]
    for key, value in provider.items():
        if key == "tokenAttributes":
            raise UnknownCommandError("kubelet's credential providers with tokenAttributes: the rehearsal has no model")
        wanted = known.get(key)
        is_right = wanted is None or value is None or isinstance(value, _TYPES[wanted])
        if is_right and wanted == "[]string":
            is_right = all(isinstance(item, str) for item in value or ())
        if is_right and wanted == "[]ExecEnvVar":
            is_right = all(isinstance(item, dict) and _is_variable(item) for item in value or ())
        if not is_right:
            raise ValueError(
                f"{shown} json: cannot unmarshal into Go struct field CredentialProvider.{key} of {wanted}"
            )
    duration = provider.get("defaultCacheDuration")
    if duration is not None and not _DURATION.fullmatch(duration):
        raise ValueError(f"{shown} time: invalid duration {duration!r}")
    return [str(key) for key in provider if key not in known]


def _is_variable(item: dict[str, Any]) -> bool:
    return item.keys() == {"name", "value"} and all(isinstance(value, str) for value in item.values())


def _find_faults(provider: dict[str, Any], minor: str) -> list[str]:
    name, request = provider["name"], provider.get("apiVersion") or ""
    group, _, version = request.rpartition("/")
    images, duration = provider.get("matchImages") or [], provider.get("defaultCacheDuration")
    faults = {
        f"providers.name: Invalid value: \"{name}\": provider name cannot contain '/'": "/" in name,
        f'providers.name: Invalid value: "{name}": provider name cannot contain spaces': " " in name,
        f"providers.name: Invalid value: provider name cannot be '{name}'": name in (".", ".."),
        "providers.apiVersion: Required value": not request,
        f'providers.apiVersion: Unsupported value: "{request}"': bool(request)
        and not (group == _REQUEST_GROUP and _has_version(version, minor)),
        "providers.matchImages: Required value: at least 1 item in matchImages is required": not images,
        "providers.defaultCacheDuration: Required value": duration is None,
        "providers.defaultCacheDuration: Invalid value: must be greater than or equal to 0": str(duration)[:1] == "-",
    }
    return [text for text, is_wrong in faults.items() if is_wrong] + [
        f'providers.matchImages: Invalid value: "{image}": match image is invalid'
        for image in images
        if "://" in image or not image or re.search(r"\s", image)
    ]


def _has_version(version: str, minor: str) -> bool:
    first = read_facts("kubelet")["credential_providers"]["versions"].get(version)
    return first is not None and is_within(minor, first, None)
