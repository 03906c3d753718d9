"""wins as a service: its arguments and its configuration, as rancher/wins reads them at v0.0.4 to v0.15.0
(cmd/server/app/run.go, cmd/server/config/config.go)."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Final

from imagegen.base.errors import ConfigError
from imagegen.catalog.facts import numbers
from imagegen.config.yaml import parse_yaml
from imagegen.rehearsal.machine.files import parent
from imagegen.rehearsal.machine.refusal import RefusedByWindows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imagegen.rehearsal.machine.files import Files

WINS: Final = "wins.exe"
_COMMAND: Final = (("srv", "server"), ("app", "application"), ("run",))
_SWITCHES: Final = ("--debug", "--quiet")
_CONFIG: Final = r"C:\etc\rancher\wins\config"
_PIPE: Final = "rancher_wins"
# Up to 0.1.1 the tags of the fields are malformed, so that Go takes the names of the fields themselves.
_FIXED_TAGS: Final = "0.1.2"
_LAST_UPGRADE: Final = "0.4.17"


def check_wins(files: Files, arguments: Sequence[str]) -> None:
    """Raise the error with which the service ends."""
    words = [word for word in arguments if word not in _SWITCHES]
    command, rest = words[: len(_COMMAND)], words[len(_COMMAND) :]
    is_server = len(command) == len(_COMMAND)
    if not is_server or any(word not in known for word, known in zip(command, _COMMAND, strict=True)):
        raise RefusedByWindows(f"{WINS} did not answer the service manager: it runs without srv app run (error 1053)")
    unknown = [word for word in rest[::2] if word != "--config"]
    if unknown or len(rest) % 2:
        raise RefusedByWindows(f"the rehearsal does not know the argument {(unknown or rest[-1:])[0]} of {WINS}")
    config = read_wins_config(files, arguments)
    if not str(config.get("listen", _PIPE)).strip():
        raise RefusedByWindows(f"{WINS} cannot use its configuration: listen could not be blank")


def read_wins_config(files: Files, arguments: Sequence[str]) -> dict[str, Any]:
    """The configuration with the names of its keys in lower case: wins compares them without case. Without a file it
    uses its defaults."""
    path = dict(itertools.pairwise(arguments)).get("--config", _CONFIG)
    if not files.is_file(path):
        return {}
    try:
        data = parse_yaml(files.read(path), path).data
    except ConfigError as error:
        raise RefusedByWindows(f"{WINS} cannot read its configuration {path}: {error}") from error
    if not isinstance(data, dict):
        raise RefusedByWindows(f"{WINS} cannot read its configuration {path}: it is not a map")
    return {str(key).lower(): value for key, value in data.items()}


def find_pipe(config: dict[str, Any]) -> str:
    return rf"\\.\pipe\{config.get('listen', _PIPE)}"


def list_programs(config: dict[str, Any], version: str) -> tuple[str, ...] | None:
    """The programs that pods may start. None: every program, because wins finds no list."""
    listed = config.get("white_list" if numbers(version) >= numbers(_FIXED_TAGS) else "whitelist") or {}
    named = {str(key).lower(): value for key, value in listed.items()} if isinstance(listed, dict) else {}
    return tuple(map(str, named.get("processpaths") or ())) or None


def find_successor(config: dict[str, Any], version: str) -> str:
    """The file by which wins replaces its program as soon as somebody writes it. Empty if there is none."""
    if numbers(version) > numbers(_LAST_UPGRADE):
        return ""
    upgrade = config.get("upgrade") or {}
    values = {str(key).lower(): value for key, value in upgrade.items()} if isinstance(upgrade, dict) else {}
    watches = values.get("mode", "watching") == "watching"
    return str(values.get("watchingpath", rf"{parent(_CONFIG)}\{WINS}")) if watches else ""
