"""What kubelet of a minor accepts: its flags, feature gates, configuration file and labels. The words are kubelet's."""

from __future__ import annotations

import ntpath
import re
from typing import TYPE_CHECKING, Any

from imagegen.base.errors import ConfigError
from imagegen.catalog.facts import numbers, table
from imagegen.rehearsal.boot.model import UnknownCommandError
from imagegen.rehearsal.machine.docker_engine import DOCKER_PIPE
from imagegen.rehearsal.node.facts import is_within, read_facts
from imagegen.rehearsal.node.kubelet_credentials import register_credential_providers
from imagegen.rehearsal.node.kubelet_error import KubeletError
from imagegen.rehearsal.node.runtimes import dockershim_fault, find_fault, uses_dockershim
from imagegen.rehearsal.node.yaml_text import read_yaml_map

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from imagegen.rehearsal.machine.windows import Machine

_CONFIG_VERSION = "kubelet.config.k8s.io/v1beta1"
_TAINT = re.compile(r"[^=:,]+(=[^=:,]*)?:(NoSchedule|PreferNoSchedule|NoExecute)")
# The labels of Kubernetes' own namespaces that a kubelet may give its node (k8s.io/kubelet well_known_labels.go).
# Before 1.16 kubelet only warned of others.
_LABELS_JUDGED = (1, 16)
_OWN_NAMESPACE = re.compile(r"(.*\.)?(kubernetes|k8s)\.io")
_ALLOWED_NAMESPACE = re.compile(r"(.*\.)?(kubelet|node)\.kubernetes\.io")
_ALLOWED_LABELS = frozenset(
    {
        *("kubernetes.io/hostname", "topology.kubernetes.io/zone", "topology.kubernetes.io/region"),
        *("failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"),
        *("beta.kubernetes.io/instance-type", "kubernetes.io/os", "kubernetes.io/arch"),
        *("beta.kubernetes.io/os", "beta.kubernetes.io/arch"),
    }
)
_STAGES = {"alpha": "AllAlpha", "beta": "AllBeta"}


def parse_arguments(arguments: Sequence[str], minor: str) -> list[tuple[str, str]]:
    """The flags in their order."""
    known = read_facts("kubelet")["flags"]
    flags: list[tuple[str, str]] = []
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-"):
            raise KubeletError(f"unknown command {word}")
        name, equals, value = word.lstrip("-").partition("=")
        if name not in known or not is_within(minor, *known[name]):
            raise KubeletError(f"failed to parse kubelet flag: unknown flag: --{name}")
        if not equals:
            value = rest.pop(0) if rest and not rest[0].startswith("-") else "true"
        flags.append((name, value))
    return flags


def last_values(flags: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Of a repeated flag the last value counts; of a map every pair, and of a repeated key the last."""
    values = dict(flags)
    for name in ("feature-gates", "node-labels"):
        pairs = [pair for flag, value in flags if flag == name for pair in value.split(",") if pair]
        if pairs:
            values[name] = ",".join(f"{key}={value}" for key, value in _pairs(pairs).items())
    return values


def split_map(text: str) -> dict[str, str]:
    return _pairs([pair for pair in text.split(",") if pair])


def _pairs(pairs: Sequence[str]) -> dict[str, str]:
    return {key.strip(): value.strip() for key, _, value in (pair.partition("=") for pair in pairs)}


def check_kubelet(machine: Machine, values: Mapping[str, str], minor: str) -> None:
    """Raise the error with which kubelet ends before it asks the cluster for anything."""
    flag_gates = _read_flag_gates(values)
    _check_gates_exist(flag_gates, minor)
    _check_labels(values.get("node-labels", ""), minor)
    config = _read_config(machine, values.get("config", ""))
    gates = {**config.get("featureGates", {}), **flag_gates}
    _check_gates_exist(gates, minor)
    for message in _find_gate_faults(gates, minor):
        raise KubeletError(f"failed to validate kubelet configuration, error: {message}")
    for taint in filter(None, values.get("register-with-taints", "").split(",")):
        if not _TAINT.fullmatch(taint):
            raise KubeletError(f"failed to parse kubelet flag: invalid taint spec: {taint}")
    provider = values.get("cloud-provider", "")
    if provider not in ("", "external"):
        raise UnknownCommandError(f"kubelet --cloud-provider={provider}: the rehearsal has no model of it")
    _check_files(machine, config, values)
    endpoint = values.get("container-runtime-endpoint") or config.get("containerRuntimeEndpoint", "")
    if uses_dockershim(values, minor):
        if fault := dockershim_fault(machine, endpoint, minor):
            raise KubeletError(f"failed to run Kubelet: failed to create dockershim: {fault}")
    else:
        _check_runtime(machine, endpoint)
    register_credential_providers(machine, values, minor, gates)


def registered_providers(machine: Machine, values: Mapping[str, str], minor: str) -> tuple[str, ...]:
    """The credential providers of a kubelet that runs with these flags."""
    config = _read_config(machine, values.get("config", ""))
    gates = {**config.get("featureGates", {}), **_read_flag_gates(values)}
    return register_credential_providers(machine, values, minor, gates)


def _read_flag_gates(values: Mapping[str, str]) -> dict[str, bool]:
    return {gate: on.lower() == "true" for gate, on in split_map(values.get("feature-gates", "")).items()}


def _check_gates_exist(gates: Mapping[str, bool], minor: str) -> None:
    known = read_facts("kubelet")["gates"]
    for gate in sorted(gates):
        if gate not in known or not is_within(minor, *known[gate]):
            raise KubeletError(
                f"failed to set feature gates from initial flags-based config: unrecognized feature gate: {gate}"
            )


def _find_gate_faults(gates: Mapping[str, bool], minor: str) -> Iterator[str]:
    for gate, row in table("kubelet")["feature_gates"].items():
        if row["locked"] and not gates.get(gate, True) and numbers(minor) >= numbers(row["locked"]):
            yield f"cannot set feature gate {gate} to false, feature is locked to true"
    for row in table("kubelet")["gate_needs"] if gates else ():
        applies = is_within(minor, row["first"], row["last"])
        if applies and _is_on(row["gate"], gates, minor) and not _is_on(row["needs"], gates, minor):
            yield f"{row['gate']} is enabled, but depends on features that are disabled: [{row['needs']}]"


def _is_on(gate: str, gates: Mapping[str, bool], minor: str) -> bool:
    row = table("kubelet")["gate_defaults"][gate]
    stage = row["stages"].get(minor) or row["stages"][max(row["stages"], key=numbers)]
    for key in (gate, _STAGES.get(stage, "")):
        if key in gates:
            return gates[key]
    return row["on_since"] is not None and numbers(row["on_since"]) <= numbers(minor)


def _check_labels(text: str, minor: str) -> None:
    foreign = [
        label
        for label in split_map(text)
        if _OWN_NAMESPACE.fullmatch(label.partition("/")[0] if "/" in label else "")
        and not _ALLOWED_NAMESPACE.fullmatch(label.partition("/")[0])
        and label not in _ALLOWED_LABELS
    ]
    if foreign and numbers(minor) >= _LABELS_JUDGED:
        raise KubeletError(
            "failed to validate kubelet flags: unknown 'kubernetes.io' or 'k8s.io' labels specified with "
            f"--node-labels: [{' '.join(foreign)}]"
        )


def _read_config(machine: Machine, path: str) -> dict[str, Any]:
    shown = f"failed to load kubelet config file, path: {path}, error:"
    if not machine.files.is_file(path):
        raise KubeletError(f"{shown} open {path}: The system cannot find the file specified.")
    try:
        config = read_yaml_map(machine.files.read(path), path)
    except (ConfigError, ValueError) as error:
        raise KubeletError(f"{shown} {error}") from error
    version, kind = config.get("apiVersion"), config.get("kind")
    if (version, kind) != (_CONFIG_VERSION, "KubeletConfiguration"):
        raise KubeletError(f'{shown} no kind "{kind}" is registered for version "{version}"')
    return config


def _check_files(machine: Machine, config: Mapping[str, Any], values: Mapping[str, str]) -> None:
    configured = config.get("authentication", {}).get("x509", {}).get("clientCAFile", "")
    authority = values.get("client-ca-file") or _from_config(configured, values.get("config", ""))
    if authority and not machine.files.is_file(authority):
        raise KubeletError(f"unable to load client CA file {authority}: open {authority}: it does not exist")


def _from_config(path: str, config: str) -> str:
    """A path of the configuration. Without a drive it is relative to the folder of that file."""
    if not path or ntpath.splitdrive(path)[0]:
        return path
    return ntpath.normpath(ntpath.join(ntpath.dirname(config), path.lstrip("/\\")))


def _check_runtime(machine: Machine, endpoint: str) -> None:
    if endpoint and "://" not in endpoint:
        message = f'Using "{endpoint}" as endpoint is deprecated, please consider using full url format'
        raise KubeletError(f"failed to run Kubelet: {message}")
    fault = "it has no RuntimeService" if endpoint == DOCKER_PIPE else find_fault(machine, endpoint)
    if fault:
        raise KubeletError(
            f'failed to run Kubelet: validate service connection: no service answers "{endpoint}": {fault}'
        )
