"""Checks what a program needs to run as a service: its file, and the known demands of a node's programs."""

from __future__ import annotations

import fnmatch
import itertools
import re
import tomllib
from typing import TYPE_CHECKING, Any

from imagegen.rehearsal.machine.dockerd_settings import check_dockerd
from imagegen.rehearsal.machine.files import parent, parts
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.machine.sshd import SSHD, read_settings, start_sshd
from imagegen.rehearsal.machine.wins import WINS, check_wins

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imagegen.rehearsal.machine.features import Features
    from imagegen.rehearsal.machine.files import Files

CONTAINERD = "containerd.exe"
# Without this argument a program does not answer the service manager, which then fails with error 1053.
CSI_PROXY = "csi-proxy.exe"
DOCKERD = "dockerd.exe"
SERVICE_WORDS = {
    **{CONTAINERD: "--run-service", DOCKERD: "--run-service"},
    **{"kubelet.exe": "--windows-service", CSI_PROXY: "-windows-service"},
}
# Programs that never answer the service manager themselves.
NO_SERVICES = ("cri-dockerd.exe",)
_CSI_PROXY_FLAGS = frozenset({"windows-service", "log_file", "log_file_max_size", "logtostderr"})
# The newest schema of containerd's configuration in which an import replaces sections.
_REPLACING = 2
LOG_RUNNER = "kube-log-runner.exe"


def words(command: str) -> list[str]:
    """The arguments of a command line without quotes."""
    return [word.replace('"', "") for word in re.findall(r'(?:"[^"]*"|[^\s"])+', command)]


def programs(files: Files, command: str) -> list[str]:
    """All programs that a command runs: its own, the one that a log runner starts, and the one of kubelet's script."""
    program, rest = _first(files, _expand(command))
    if _base(program) != LOG_RUNNER:
        return [program]
    wrapped = _without_flags(rest)
    if not wrapped:
        raise RefusedByWindows(f"{program} is told of no program to run")
    kubelet = [following for word, following in itertools.pairwise(wrapped) if word.lower() == "-kubelet"]
    return [program, wrapped[0], *kubelet]


def log_file(files: Files, command: str) -> str | None:
    """The log that a service's program keeps open. It appends to it, and makes it if it does not exist."""
    program, arguments = _first(files, _expand(command))
    if _base(program) == CSI_PROXY:
        given = _flags(arguments)
        return given.get("log_file") if given.get("logtostderr") == "false" else None
    if _base(program) == LOG_RUNNER:
        arguments = arguments[: len(arguments) - len(_without_flags(arguments))]
    elif _base(program) != CONTAINERD:
        return None
    for word, following in itertools.pairwise([*arguments, ""]):
        name, equals, text = word.partition("=")
        if name in ("--log-file", "-log-file"):
            return (text if equals else following) or None
    return None


def check_can_run(files: Files, features: Features, command: str) -> None:
    """Raise the error with which the program would fail."""
    for program in programs(files, command):
        if not files.is_file(program):
            raise RefusedByWindows(f"cannot find its program {program} (error 2)")
    first, rest = _first(files, _expand(command))
    runs, arguments = first, rest
    log = log_file(files, command)
    if log and not files.is_folder(parent(log)):
        raise RefusedByWindows(f"{_base(first)} cannot open {log}: there is no folder {parent(log)}")
    if _base(first) == LOG_RUNNER:
        runs, *arguments = _without_flags(rest)
    elif _base(first) in NO_SERVICES:
        raise RefusedByWindows(f"{first} did not answer the service manager: it is no service (error 1053)")
    elif (word := SERVICE_WORDS.get(_base(first))) and word not in rest:
        raise RefusedByWindows(f"{first} did not answer the service manager: it runs without {word} (error 1053)")
    if _base(runs) == CSI_PROXY and (unknown := sorted(_flags(arguments).keys() - _CSI_PROXY_FLAGS)):
        raise RefusedByWindows(f"the rehearsal does not know the flag -{unknown[0]} of {CSI_PROXY}")
    if _base(runs) == "powershell.exe":
        _check_script(files, arguments)
    if _base(runs) == SSHD:
        read_settings(files)
    if _base(runs) == WINS:
        check_wins(files, arguments)
    if _base(runs) == CONTAINERD:
        _check_containerd(files, features, arguments)
    if _base(runs) == DOCKERD:
        check_dockerd(files, features, runs, arguments)


def split_command(files: Files, command: str) -> tuple[str, list[str]]:
    """The program of a service and its arguments."""
    return _first(files, _expand(command))


def write_at_start(files: Files, command: str) -> None:
    """What a program writes when it starts, beside its log."""
    if _base(split_command(files, command)[0]) == SSHD:
        start_sshd(files)


def _expand(command: str) -> str:
    command = re.sub(r"(?i)%(systemroot|windir)%", lambda _: r"C:\Windows", command)
    return re.sub(r"(?i)^(\\systemroot\\|(?=system32\\))", lambda _: "C:\\Windows\\", command)


def _first(files: Files, command: str) -> tuple[str, list[str]]:
    """The program and its arguments. Without quotes Windows tries each space as the end of the program's path."""
    if command.startswith('"'):
        program, _, rest = command[1:].partition('"')
        return program, words(rest)
    cuts = [match.start() for match in re.finditer(r" |$", command)]
    for cut in cuts:
        for program in (command[:cut], command[:cut] + ".exe"):
            if _is_file(files, program):
                return program, words(command[cut:])
    return command[: cuts[0]], words(command[cuts[0] :])


def _is_file(files: Files, path: str) -> bool:
    """Whether there is such a file. A part of a command line that cannot be a path is none."""
    try:
        return files.is_file(path)
    except RefusedByWindows:
        return False


def _without_flags(arguments: list[str]) -> list[str]:
    while arguments and arguments[0].startswith("-"):
        arguments = arguments[1:]
    return arguments


def _flags(arguments: list[str]) -> dict[str, str]:
    """The flags of a Go program that writes all values after an equals sign."""
    return {name.lstrip("-"): value for name, _, value in (word.partition("=") for word in arguments)}


def _base(program: str) -> str:
    return parts(program)[-1].lower()


def _check_script(files: Files, arguments: list[str]) -> None:
    for word, following in itertools.pairwise(arguments):
        if word.lower() == "-file" and not files.is_file(following):
            raise RefusedByWindows(f"powershell.exe cannot find its script {following}")


def _check_containerd(files: Files, features: Features, arguments: list[str]) -> None:
    if not features.is_installed("Containers"):
        raise RefusedByWindows("containerd cannot run: feature Containers is not Installed")
    for word, following in zip(arguments, [*arguments[1:], ""], strict=True):
        name, equals, text = word.partition("=")
        if name in ("--config", "-c"):
            config = _read_toml(files, text if equals else following)
            for imported in (path for pattern in config.get("imports", []) for path in _matching(files, pattern)):
                _read_toml(files, imported)


def read_containerd_config(files: Files, command: str) -> dict[str, Any]:
    """What containerd's configuration says, with the files that it imports. Up to version 2 such a file replaces a
    plugin's whole section, and later it adds to it."""
    _, arguments = _first(files, _expand(command))
    config: dict[str, Any] = {}
    for word, following in itertools.pairwise([*arguments, ""]):
        name, equals, text = word.partition("=")
        if name in ("--config", "-c"):
            config = _read_toml(files, text if equals else following)
            for imported in (path for pattern in config.get("imports", []) for path in _matching(files, pattern)):
                _add_settings(config, _read_toml(files, imported), merges=config.get("version", 1) > _REPLACING)
    return config


def sandbox_image(config: Mapping[str, Any]) -> str:
    """The image of every pod's sandbox. Empty if the configuration has none, and containerd takes its own."""
    plugins = config.get("plugins", {})
    section = plugins.get("io.containerd.cri.v1.images") or plugins.get("io.containerd.grpc.v1.cri") or {}
    return str(section.get("pinned_images", {}).get("sandbox") or section.get("sandbox_image") or "")


def _add_settings(into: dict[str, Any], more: dict[str, Any], *, merges: bool, depth: int = 0) -> None:
    for key, value in more.items():
        # The sections of plugins are at depth 1.
        if isinstance(value, dict) and isinstance(into.get(key), dict) and (merges or depth < 1):
            _add_settings(into[key], value, merges=merges, depth=depth + 1)
        else:
            into[key] = value


def _read_toml(files: Files, path: str) -> dict[str, Any]:
    if not files.is_file(path):
        raise RefusedByWindows(f"containerd cannot find its config {path}")
    try:
        return tomllib.loads(files.read(path).decode("utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise RefusedByWindows(f"containerd cannot read its config {path}: {error}") from error


def _matching(files: Files, pattern: str) -> list[str]:
    """The files that match. A pattern may match none; a path without a pattern must exist."""
    folder, _, name = pattern.rpartition("\\")
    if "*" not in name:
        return [pattern]
    there = files.names(folder) if files.is_folder(folder) else []
    return [f"{folder}\\{found}" for found in there if fnmatch.fnmatchcase(found.lower(), name.lower())]
