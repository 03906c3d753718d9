"""Looks at a booted model machine and what is around it, and collects the facts for `imagegen.boot`."""

from __future__ import annotations

import configparser
import dataclasses
import itertools
import ntpath
import re
import shlex
from typing import TYPE_CHECKING, Final

from imagegen.boot import facts
from imagegen.rehearsal.machine.access import ADMINISTRATORS, SYSTEM, effective
from imagegen.rehearsal.machine.programs import words
from imagegen.rehearsal.machine.stock import LISTENERS, WINRM_PORT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from imagegen.boot.guarded import Guarded
    from imagegen.rehearsal.machine.accounts import User
    from imagegen.rehearsal.machine.windows import Machine

# Windows gives rights in a new file or folder to the one who made it, which for SYSTEM is itself.
_CREATOR_OWNER: Final = "S-1-3-0"
_OWNERS: Final = frozenset({SYSTEM, ADMINISTRATORS, _CREATOR_OWNER})
# What the log says of a plugin, at any level.
_RAN: Final = re.compile(r"Executing plugin '(?P<name>\w+)'")
_FAILED: Final = re.compile(r"plugin '(?P<name>\w+)' failed with error")
# What cloudbase-init says when it cannot use something: (text in the log, what that means).
_COMPLAINTS: Final = (
    (re.compile(r"text/cloud-boothook content is currently not supported"), "cloudbase-init runs no boothook (B4)"),
    (re.compile(r"No metadata service found"), "cloudbase-init found no metadata service that answers"),
    (re.compile(r"Could not import plugin module '(?P<what>[^']*)'"), "there is no plugin {what}"),
    (re.compile(r"Unsupported user_data format"), "cloudbase-init does not know the form of the user data"),
    (re.compile(r"Userdata plugin not found for content type: (?P<what>\S+)"), "no part of type {what} can run"),
    (re.compile(r"Processing plugin (?P<what>\S+) failed"), "the user data's {what} failed"),
    (re.compile(r"Missing required keys from file information"), "a file of the user data has no path or no content"),
    (re.compile(r"Exception during multipart part handling: (?P<what>\S+),"), "a part of type {what} failed"),
    (re.compile(r"plugin '(?P<what>\w+)' failed with error"), "{what} failed"),
)
_USER_DATA_FOLDER: Final = r"C:\run"
_TEMPLATE: Final = re.compile(rb"\{\{.*?\}\}")


@dataclasses.dataclass(frozen=True)
class FirstBootFiles:
    """The configuration with which the service of cloudbase-init runs, and the log that it names."""

    conf: str
    log: str
    plugins: tuple[str, ...]
    """The configured plugins, by class name."""


def read_settings(machine: Machine, service: str) -> FirstBootFiles:
    """Read the configuration that the service's command line names."""
    following = dict(itertools.pairwise(words(machine.services.command(service))))
    conf = following.get("--config-file", "")
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.read_string(read_text(machine, conf) if conf else "")
    values = parser["DEFAULT"]
    plugins = (path.rpartition(".")[2].strip() for path in values.get("plugins", "").split(","))
    log = ntpath.join(values.get("logdir", ""), values.get("logfile", ""))
    return FirstBootFiles(conf, log, tuple(name for name in plugins if name))


def judge_plugins(plugins: Iterable[str], log: str) -> dict[str, bool]:
    """Whether each plugin ran without a failure."""
    ran, failed = ({match["name"] for match in form.finditer(log)} for form in (_RAN, _FAILED))
    return {name: name in ran and name not in failed for name in plugins}


def find_complaints(log: str, *, has_keys: bool) -> list[str]:
    """What cloudbase-init could not do, once each."""
    found = [
        meaning.format(**match.groupdict()) for form, meaning in _COMPLAINTS for match in form.finditer(log)
    ]  # fmt: skip
    # The template asks for the public keys, as the plugin for them does.
    if not has_keys and {"UserDataPlugin failed", "SetUserSSHPublicKeysPlugin failed"} <= set(found):
        found.append("the machine has no key pair, and without one cloudbase-init renders no template (B3)")
    return list(dict.fromkeys(found))


def find_unrendered(machine: Machine) -> list[str]:
    """The files of user data in which a template stands as it is."""
    return [path for path in _below(machine, _USER_DATA_FOLDER) if _TEMPLATE.search(machine.files.read(path))]


def find_leaks(
    machine: Machine, secrets: Iterable[str], consoles: Mapping[str, bytes], closed: Sequence[Guarded]
) -> list[str]:
    """The files and consoles with a secret of the user data, but for those in folders that nobody else can read."""
    marks = [secret.encode() for secret in secrets]
    private = tuple(f"{folder.path.lower()}\\" for folder in closed if not folder.rights)
    logs = (r"\log" + "\\", ".log")

    def may_hold_it(path: str) -> bool:
        lower = path.lower()
        return lower.startswith(private) and not (logs[0] in lower or lower.endswith(logs[1]))

    paths = [path for path in _below(machine, "C:") if not may_hold_it(path)]
    leaking = [path for path in paths if any(mark in machine.files.read(path) for mark in marks)]
    return leaking + [f"the console on {port}" for port, said in consoles.items() if any(one in said for one in marks)]


def list_access(machine: Machine, guarded: Iterable[Guarded]) -> Iterator[facts.Access]:
    """The rights of others on each guarded folder and on everything in it."""
    for path in dict.fromkeys(path for folder in guarded for path in _everything(machine, folder.path)):
        for entry in effective(machine.files, path).entries:
            if entry.sid not in _OWNERS and not entry.deny:
                yield facts.Access(path=path, sid=entry.sid, rights=entry.rights)


def look_for_builder(machine: Machine, image: Machine) -> facts.Builder:
    """What is left of the ways into the machine that `image` was captured from."""
    before = {user.number: user for user in image.accounts.users}
    rules = [rule for rule in machine.firewall.rules if rule.port == WINRM_PORT and rule.direction == "in"]
    return facts.Builder(
        listeners=tuple(machine.registry.subkeys(LISTENERS)),
        certificates=tuple(sorted(machine.certificates & image.certificates)),
        rules=tuple(rule.display_name for rule in rules),
        accounts=tuple(user.name for user in machine.accounts.users if _is_as_built(user, before.get(user.number))),
    )


def _is_as_built(user: User, before: User | None) -> bool:
    return before is not None and user.enabled and user.password == before.password


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """What a second boot must leave as it is."""

    values: Mapping[str, str]

    def changes(self, later: Snapshot) -> list[str]:
        names = sorted({*self.values, *later.values})
        return [name for name in names if self.values.get(name) != later.values.get(name)]


def take_snapshot(machine: Machine, extra: Mapping[str, str]) -> Snapshot:
    """Accounts, groups, the name and what user data wrote; `extra` is what the caller adds."""
    values = dict(extra) | {"the host name": machine.host_name}
    for user in machine.accounts.users:
        values[f"account {user.name}"] = f"{user.number} {user.enabled} {user.password}"
    for group in machine.accounts.groups:
        values[f"group {group.name}"] = " ".join(map(str, sorted(group.members)))
    for path in _below(machine, _USER_DATA_FOLDER):
        values[path] = machine.files.read(path).hex()
    return Snapshot(values)


def read_text(machine: Machine, path: str) -> str:
    """The text of a file; empty if there is none."""
    return machine.files.read(path).decode("utf-8", "replace") if machine.files.is_file(path) else ""


def read_kubeadm_arguments(machine: Machine, file: str) -> tuple[str, ...]:
    """kubelet's arguments in the file that kubeadm wrote."""
    found = re.search(r'KUBELET_KUBEADM_ARGS="?(?P<line>.*?)"?\s*$', read_text(machine, file))
    return tuple(shlex.split(found["line"])) if found else ()


def _below(machine: Machine, folder: str) -> list[str]:
    return list(machine.files.below(folder)) if machine.files.is_folder(folder) else []


def _everything(machine: Machine, path: str) -> Iterator[str]:
    if not machine.files.exists(path):
        return
    yield path
    if machine.files.is_folder(path):
        for name in machine.files.names(path):
            yield from _everything(machine, rf"{path}\{name}")
