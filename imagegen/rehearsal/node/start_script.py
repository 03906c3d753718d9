"""What start-kubelet.ps1 does, as the script on the machine's disk has it.

The model knows four parts of the shipped script, each of which may be missing, and the rest by its digest. With other
bytes nobody knows what the script does, and that is a named refusal.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from typing import TYPE_CHECKING

from imagegen.rehearsal.boot.model import UnknownCommandError
from imagegen.trust.block import without_signature

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from imagegen.rehearsal.machine.windows import Machine

_READS_FLAGS = " + @(Read-KubeadmArgument -Path $flags)"
_WAITS_FOR_FLAGS = r"""if ($joining) { $null = Wait-Until -Seconds 20 -Every 1 -Test { [System.IO.File]::Exists($flags) -and [string](Get-Content -LiteralPath $flags -Raw -Encoding UTF8) -match '"\s*\z' } }
"""  # noqa: E501  # the script's own line
_WAITS_FOR_KUBEADM = r"""$null = Wait-Until -Seconds 60 -Every 1 -Test { [System.IO.File]::Exists("$StateFolder\config.yaml") -or [System.Diagnostics.Process]::GetProcessesByName('kubeadm').Length -eq 0 }
"""  # noqa: E501  # the script's own line
_LEAVES_BEFORE_JOIN = r"""if (-not [System.IO.File]::Exists("$StateFolder\config.yaml")) { throw "this machine has not joined a cluster: there is no $StateFolder\config.yaml" }
"""  # noqa: E501  # the script's own line
_COMMENT = re.compile(r"(?m)^ *#.*\n")
# Read what a changed script does, and follow it below, before you take over its digest.
_REST_SHA256 = "ec1f5ee041c29e3f72c8ddb66e3d629252bd081cb28d6dbd1824f239836519bc"
# The script's own times.
_TURN_S, _KUBEADM_LIMIT_S, _FLAGS_LIMIT_S = 1.0, 60.0, 20.0
_PARAMETERS = {
    "kubelet": r"C:\k\kubelet.exe",
    "statefolder": r"C:\var\lib\kubelet",
    "configfolder": r"C:\etc\kubernetes",
    "runtimeendpoint": "npipe:////./pipe/containerd-containerd",
    "argumentsfile": "",
}


@dataclasses.dataclass(frozen=True)
class Script:
    """Which of its parts the script on the disk has."""

    reads_flags: bool
    waits_for_flags: bool
    waits_for_kubeadm: bool
    leaves_before_join: bool


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The program that the script starts with its arguments, or why it ended."""

    program: str = ""
    arguments: tuple[str, ...] = ()
    message: str = ""


def read_script(data: bytes, path: str) -> Script:
    text = without_signature(data).decode("utf-8", "replace").replace("\r\n", "\n")
    has = {}
    for name, part in (
        ("reads_flags", _READS_FLAGS),
        ("waits_for_flags", _WAITS_FOR_FLAGS),
        ("waits_for_kubeadm", _WAITS_FOR_KUBEADM),
        ("leaves_before_join", _LEAVES_BEFORE_JOIN),
    ):
        has[name] = part in text
        text = text.replace(part, "", 1)
    if hashlib.sha256(_COMMENT.sub("", text).encode()).hexdigest() != _REST_SHA256:
        raise UnknownCommandError(f"{path} is not the script that the rehearsal has a model of")
    return Script(**has)


def read_parameters(words: Sequence[str]) -> dict[str, str]:
    """The parameters of the script by their names in lower case, from the words after its path."""
    given = dict(_PARAMETERS)
    for name, value in zip(words[::2], words[1::2], strict=False):
        known = name.removeprefix("-").lower()
        if not name.startswith("-") or known not in _PARAMETERS:
            raise UnknownCommandError(f"start-kubelet.ps1 has no parameter {name}")
        given[known] = value
    if len(words) % 2:
        raise UnknownCommandError(f"parameter {words[-1]} of start-kubelet.ps1 has no value")
    return given


def run_script(
    machine: Machine, script: Script, parameters: dict[str, str], folder: str
) -> Generator[float, None, Outcome]:
    """Run up to the start of kubelet. Yields the seconds that it sleeps. `folder` is that of the script."""
    files, state, config = machine.files, parameters["statefolder"], parameters["configfolder"]
    config_file, flags_file = rf"{state}\config.yaml", rf"{state}\kubeadm-flags.env"
    if script.waits_for_kubeadm:
        end = machine.up_s + _KUBEADM_LIMIT_S
        while not files.is_file(config_file) and machine.up_s <= end and "kubeadm" in machine.processes:
            yield _TURN_S
    if script.leaves_before_join and not files.is_file(config_file):
        return Outcome(message=f"start-kubelet: this machine has not joined a cluster: there is no {config_file}")
    joining = files.is_file(rf"{config}\bootstrap-kubelet.conf") and not files.is_file(rf"{config}\kubelet.conf")
    if script.waits_for_flags and joining:
        yield from _wait_for_flags(machine, flags_file)
    if parameters["argumentsfile"] and not files.is_file(parameters["argumentsfile"]):
        return Outcome(message=f"start-kubelet: Could not find file '{parameters['argumentsfile']}'.")
    arguments = (
        "--windows-service",
        rf"--cert-dir={state}\pki",
        f"--config={config_file}",
        rf"--bootstrap-kubeconfig={config}\bootstrap-kubelet.conf",
        rf"--kubeconfig={config}\kubelet.conf",
        f"--container-runtime-endpoint={parameters['runtimeendpoint']}",
        "--cgroups-per-qos=false",
        "--enforce-node-allocatable=",
        "--resolv-conf=",
        rf"--volume-plugin-dir={folder}\volumeplugins",
        *_image_arguments(machine, parameters["argumentsfile"]),
        *(read_kubeadm_arguments(machine, flags_file) if script.reads_flags else ()),
    )
    return Outcome(parameters["kubelet"], arguments)


def _wait_for_flags(machine: Machine, flags_file: str) -> Generator[float, None, None]:
    end = machine.up_s + _FLAGS_LIMIT_S
    while machine.up_s <= end:
        if machine.files.is_file(flags_file) and machine.files.read(flags_file).rstrip().endswith(b'"'):
            return
        yield _TURN_S


def _image_arguments(machine: Machine, path: str) -> list[str]:
    text = machine.files.read(path).decode("utf-8-sig") if path else ""
    return [line for line in text.splitlines() if line]


def read_kubeadm_arguments(machine: Machine, path: str) -> list[str]:
    """The words of the flags file, by the expressions of the scripts' module."""
    if not machine.files.is_file(path):
        return []
    found = re.findall(r"(?m)^\s*KUBELET_KUBEADM_ARGS=(.*?)\s*$", machine.files.read(path).decode("utf-8-sig"))
    text = found[-1] if found else ""
    if len(text) >= 2 and text.startswith('"') and text.endswith('"'):
        text = re.sub(r'\\([\\"])', r"\1", text[1:-1])
    words = re.findall(r"""(?:[^\s"']|"[^"]*"|'[^']*'|["'])+""", text)
    return [re.sub(r""""([^"]*)"|'([^']*)'""", lambda quoted: quoted[1] or quoted[2] or "", word) for word in words]
