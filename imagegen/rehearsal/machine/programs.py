"""The programs of services: their files, and the settings of containerd. What else a program needs is judged with the
plan, and by the programs' own code (tests/consumers)."""

from __future__ import annotations

import fnmatch
import itertools
import re
import secrets
import tomllib
from typing import TYPE_CHECKING, Any

from imagegen.rehearsal.machine.access import ADMINISTRATORS, SYSTEM, AccessEntry, write
from imagegen.rehearsal.machine.files import parent, parts
from imagegen.rehearsal.machine.refusal import RefusedByWindows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imagegen.rehearsal.machine.features import Features
    from imagegen.rehearsal.machine.files import Files

# The programs that run only with a feature.
NEEDED_FEATURES = {"containerd.exe": "Containers", "dockerd.exe": "Containers"}
# It starts another program, and keeps that program's log.
LOG_RUNNER = "kube-log-runner.exe"
# What a program makes when it starts, if it is not there: secrets of this machine.
MADE_AT_START = {"sshd.exe": tuple(rf"C:\ProgramData\ssh\ssh_host_{kind}_key" for kind in ("rsa", "ecdsa", "ed25519"))}
# The newest schema of containerd's configuration in which an import replaces sections.
_REPLACING = 2


def words(command: str) -> list[str]:
    """The arguments of a command line without quotes."""
    return [word.replace('"', "") for word in re.findall(r'(?:"[^"]*"|[^\s"])+', command)]


def programs(files: Files, command: str) -> list[str]:
    """All programs that a command runs: its own, the one that a log runner starts, and the one of kubelet's script."""
    program, rest = _split(files, _expand(command))
    if _base(program) != LOG_RUNNER:
        return [program]
    kubelet = [following for word, following in itertools.pairwise(rest) if word.lower() == "-kubelet"]
    return [program, *[word for word in rest if not word.startswith("-")][:1], *kubelet]


def check_can_run(files: Files, features: Features, command: str) -> None:
    """Raise an error if the programs of a service are missing, the folder of its log, or a feature."""
    log = re.search(r"--log-file=(\S+)", command)
    if log and not files.is_folder(parent(log[1])):
        raise RefusedByWindows(
            f"{_base(programs(files, command)[0])} cannot open {log[1]}: there is no folder {parent(log[1])}"
        )
    for program in programs(files, command):
        if not files.is_file(program):
            raise RefusedByWindows(f"cannot find its program {program} (error 2)")
        feature = NEEDED_FEATURES.get(_base(program))
        if feature and not features.is_installed(feature):
            raise RefusedByWindows(f"{program} cannot run: feature {feature} is not Installed")


def make_at_start(files: Files, command: str) -> None:
    """Make the files that a program makes when it starts. Only SYSTEM and administrators can read them."""
    closed = [AccessEntry(sid, "FullControl", inherit=False) for sid in (SYSTEM, ADMINISTRATORS)]
    for path in MADE_AT_START.get(_base(programs(files, command)[0]), ()):
        if not files.is_file(path):
            files.make_folder(parent(path))
            files.write(path, secrets.token_bytes(32))
            write(files, path, closed, protected=True)


def _expand(command: str) -> str:
    command = re.sub(r"(?i)%(systemroot|windir)%", lambda _: r"C:\Windows", command)
    return re.sub(r"(?i)^(\\systemroot\\|(?=system32\\))", lambda _: "C:\\Windows\\", command)


def _split(files: Files, command: str) -> tuple[str, list[str]]:
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


def _base(program: str) -> str:
    return parts(program)[-1].lower()


def read_containerd_config(files: Files, command: str) -> dict[str, Any]:
    """What containerd's configuration says, with the files that it imports. Up to version 2 such a file replaces a
    plugin's whole section, and later it adds to it."""
    _, arguments = _split(files, _expand(command))
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
