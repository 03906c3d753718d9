"""Looks at a booted model machine and what is around it, and collects the facts for `imagegen.boot`."""

from __future__ import annotations

import base64
import configparser
import contextlib
import dataclasses
import gzip
import itertools
import ntpath
import re
import shlex
from typing import TYPE_CHECKING, Final

from imagegen.boot import facts
from imagegen.boot.guarded import Guarded, find_guard
from imagegen.rehearsal.machine.access import ADMINISTRATORS, EVERYONE, USERS, effective
from imagegen.rehearsal.machine.engine import FIRST_BOOT_LOG
from imagegen.rehearsal.machine.programs import check_can_run, log_file, words
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.machine.script_policy import runs_only_signed
from imagegen.rehearsal.machine.stock import LISTENERS, WINRM_PORT
from imagegen.rehearsal.node.kubelet_credentials import can_run
from imagegen.rehearsal.node.kubelet_error import KubeletError
from imagegen.rehearsal.node.kubelet_options import last_values, parse_arguments, registered_providers
from imagegen.rehearsal.node.registration import PROVIDED_ADDRESS
from imagegen.steps.accounts import TRUSTED
from imagegen.trust.block import without_signature

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from imagegen.rehearsal.boot.model import Ended
    from imagegen.rehearsal.machine.accounts import User
    from imagegen.rehearsal.machine.windows import Machine
    from imagegen.rehearsal.node.objects import Node

# The SIDs in a process of a container. Its administrator counts as one of the node.
_CONTAINERS: Final = (
    ("a container", frozenset({USERS, EVERYONE})),
    ("a container's administrator", frozenset({ADMINISTRATORS, USERS, EVERYONE})),
)
_REPORTS: Final = ("metadata_report_provisioning_started", "metadata_report_provisioning_completed")
# What cloudbase-init reads as true.
_ON: Final = ("true", "1", "on", "yes")
# Folders and files with logs, also rotated ones.
_LOG: Final = re.compile(r"(?i)\\logs?\\|\.log(\.[^\\]*)?$")
_USER_DATA_FOLDER: Final = r"C:\run"
_FOLDERS_OF_KEYS: Final = (r"C:\Users", r"C:\ProgramData\ssh")
# The SSH keys of accounts, and of administrators.
_KEYS: Final = re.compile(r"(?i)\\\.?ssh\\")
_ADDRESS: Final = "--node-ip="
_GZIP: Final = b"\x1f\x8b"
_TEMPLATE: Final = re.compile(rb"\{\{.*?\}\}")
# The key `name` of a mapping: items of the lists in user data have names of other things.
_NODE_NAME: Final = re.compile(rb"(?m)^ +name: *['\"]?(?P<name>[^\n]*?)['\"]?[ \r]*$")


@dataclasses.dataclass(frozen=True)
class FirstBootFiles:
    """The configuration with which the service of cloudbase-init runs, and the log that it names."""

    conf: str
    log: str
    plugins: tuple[str, ...]
    """The configured plugins, by class name."""
    services: tuple[str, ...]
    """The configured metadata services, by class name."""
    unreported: tuple[str, ...]
    """The options for reports to the cloud that are off. None where the configuration cannot be read."""
    debug: bool


def read_settings(machine: Machine, service: str) -> FirstBootFiles:
    """Read the configuration that the service's command line names."""
    following = dict(itertools.pairwise(words(machine.services.command(service))))
    conf = following.get("--config-file", "")
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    is_read = _is_file(machine, conf)
    try:
        parser.read_string(read_text(machine, conf))
    except configparser.Error:
        # cloudbase-init itself ends with an error at such a file.
        is_read = False
    values = parser["DEFAULT"]

    def is_on(name: str) -> bool:
        return values.get(name, "").strip().lower() in _ON

    return FirstBootFiles(
        conf=conf,
        log=ntpath.join(values.get("logdir", ""), values.get("logfile", "")),
        plugins=_class_names(values.get("plugins", "")),
        services=_class_names(values.get("metadata_services", "")),
        unreported=tuple(name for name in _REPORTS if is_read and not is_on(name)),
        debug=is_on("debug"),
    )


def _class_names(paths: str) -> tuple[str, ...]:
    return tuple(name for path in paths.split(",") if (name := path.rpartition(".")[2].strip()))


def read_first_boot_log(machine: Machine) -> tuple[str, ...] | None:
    """The lines in the log of first-boot.ps1. None if there is no log."""
    if not machine.files.is_file(FIRST_BOOT_LOG):
        return None
    lines = (line.strip() for line in read_text(machine, FIRST_BOOT_LOG).splitlines())
    return tuple(line.removeprefix("failed: ") for line in lines if line)


def find_wanted_node(user_data: bytes, host_name: str, machine_name: str) -> str:
    """The name under which the machine has to join: that of the user data, and without one its own.

    `host_name` is the cloud's, and `machine_name` what Windows makes of it.
    """
    plain = gzip.decompress(user_data) if user_data.startswith(_GZIP) else user_data
    found = _NODE_NAME.search(plain)
    if found is None:
        return machine_name.lower()
    return host_name if b"{{" in found["name"] else found["name"].decode()


def find_unrendered(machine: Machine) -> list[str]:
    """The files of user data in which a template stands as it is."""
    return [path for path in _below(machine, _USER_DATA_FOLDER) if _TEMPLATE.search(machine.files.read(path))]


def find_leaks(
    machine: Machine, secrets: Iterable[str | bytes], consoles: Mapping[str, bytes], closed: Sequence[Guarded]
) -> list[str]:
    """The files and consoles with a secret, but for those in folders that nobody else can read."""
    marks = [mark for secret in secrets for mark in _spellings(secret)]

    def may_hold_it(path: str) -> bool:
        guard = find_guard(closed, path)
        return guard is not None and not guard.rights and not _LOG.search(path)

    paths = [path for path in _below(machine, "C:") if not may_hold_it(path)]
    leaking = [path for path in paths if any(mark in machine.files.read(path) for mark in marks)]
    return leaking + [f"the console on {port}" for port, said in consoles.items() if any(one in said for one in marks)]


def _spellings(secret: str | bytes) -> Iterator[bytes]:
    """The bytes by which a secret is known in a file."""
    plain = secret.encode() if isinstance(secret, str) else secret
    yield plain
    if isinstance(secret, str):
        # Windows PowerShell writes UTF-16 where nobody says otherwise.
        yield secret.encode("utf-16-le")
    # User data may be base64, in which three bytes become four letters: what comes out depends on the bytes before.
    # A letter at the edge belongs to what is beside the secret too.
    for before, edge in ((0, 0), (1, 2), (2, 3)):
        letters = base64.b64encode(bytes(before) + plain).rstrip(b"=")
        whole = (before + len(plain)) % 3 == 0
        yield letters[edge : None if whole else -1]


def find_lost_address(arguments: Iterable[str], nodes: Iterable[Node]) -> str:
    """The address that kubelet's arguments name, if the cluster does not know it."""
    named = [argument.removeprefix(_ADDRESS) for argument in arguments if argument.startswith(_ADDRESS)][-1:]
    known = {found for node in nodes for found in (node.annotations.get(PROVIDED_ADDRESS), *node.addresses.values())}
    return "".join(address for address in named if address not in known)


def look_at_credential_providers(
    machine: Machine, names: Iterable[str], arguments: Sequence[str], minor: str
) -> Iterator[facts.CredentialProvider]:
    """What the kubelet with these arguments makes of credential providers. Without arguments it does not run."""
    values: dict[str, str] = {}
    registered: tuple[str, ...] = ()
    # kubelet's own end is a fact of its own.
    with contextlib.suppress(KubeletError):
        values = last_values(parse_arguments(arguments, minor)) if arguments else {}
        registered = registered_providers(machine, values, minor) if arguments else ()
    folder = values.get("image-credential-provider-bin-dir", "")
    for name in names:
        is_registered = name in registered
        yield facts.CredentialProvider(
            name=name, is_registered=is_registered, can_run=is_registered and can_run(machine, folder, name)
        )


def look_at_services(machine: Machine, names: Iterable[str]) -> Iterator[facts.Service]:
    """What became of these services."""
    for name in names:
        command, failure, log = machine.services.command(name), "", ""
        try:
            check_can_run(machine.files, machine.features, command)
            # nssm is given the log of its program in the registry.
            log = log_file(machine.files, command) or machine.registry.text(_nssm_key(machine, name), "AppStdout") or ""
        except RefusedByWindows as refusal:
            failure = str(refusal) if command else "it is not in the image"
        is_log = bool(log) and machine.files.is_file(log)
        entries = effective(machine.files, log).entries if is_log else ()
        yield facts.Service(
            name=name,
            is_running=machine.services.is_serving(name),
            failure=failure,
            log=log if is_log else "",
            readers=tuple(sorted({entry.sid for entry in entries if not entry.deny} - TRUSTED)),
        )


def _nssm_key(machine: Machine, name: str) -> str:
    return rf"{machine.services.key(name)}\Parameters"


def look_at_address(machine: Machine, restricted: Mapping[str, Sequence[int]], account: str) -> Iterator[facts.Reach]:
    """Whether `account`, in which cloudbase-init runs, and containers can connect to the cloud's own addresses."""
    users = [(name, sids, False) for name, sids in _CONTAINERS]
    # A service whose account does not exist does not run.
    with contextlib.suppress(RefusedByWindows):
        users.append(("cloudbase-init's account", machine.accounts.token(account), True))
    for address, ports in restricted.items():
        for (name, sids, may), port in itertools.product(users, ports):
            can = not machine.firewall.blocks(sids, address, port)
            yield facts.Reach(account=name, address=address, port=port, may=may, can=can)


def list_access(machine: Machine, guarded: Iterable[Guarded]) -> Iterator[facts.Access]:
    """The rights on each guarded folder and on everything in it. What an entry denies nobody else gets by it."""
    for path in dict.fromkeys(path for folder in guarded for path in _everything(machine, folder.path)):
        for entry in effective(machine.files, path).entries:
            if not entry.deny:
                yield facts.Access(path=path, sid=entry.sid, rights=entry.rights)


def look_at_own_files(machine: Machine, expected: Mapping[str, bytes | None]) -> Iterator[facts.OwnFile]:
    """The operator's files on the machine: what must be in them, or None for any content, by their paths. Signatures
    may have been added."""
    for path, data in expected.items():
        if not machine.files.is_file(path):
            yield facts.OwnFile(path=path, state="missing", access=())
            continue
        same = data is None or without_signature(machine.files.read(path)) == without_signature(data)
        guard = Guarded(path, frozenset())
        yield facts.OwnFile(
            path=path, state="there" if same else "changed", access=tuple(list_access(machine, [guard]))
        )


def find_refused_scripts(machine: Machine) -> tuple[str, ...] | None:
    """What PowerShell refused, if its policy is AllSigned."""
    return tuple(f"{path}: {why}" for path, why in machine.refused.items()) if runs_only_signed(machine) else None


def look_for_builder(machine: Machine, image: Machine, expected: Iterable[str]) -> facts.Builder:
    """What is left of the ways into the machine that `image` was captured from, without the `expected` accounts."""
    names = {name.lower() for name in expected}
    before = {user.number: user for user in image.accounts.users if user.name.lower() not in names}
    rules = [
        rule
        for rule in machine.firewall.rules
        if (rule.direction, rule.action) == ("in", "allow") and WINRM_PORT in rule.port.split(",")
    ]
    return facts.Builder(
        listeners=tuple(machine.registry.subkeys(LISTENERS)),
        certificates=tuple(sorted(machine.certificates.thumbprints() & image.certificates.thumbprints())),
        rules=tuple(rule.display_name for rule in rules),
        accounts=tuple(user.name for user in machine.accounts.users if _is_as_built(user, before.get(user.number))),
        profiles=tuple(_left_profiles(machine, before)),
    )


def _left_profiles(machine: Machine, before: Mapping[int, User]) -> Iterator[str]:
    """The profiles of accounts that the node does not use."""
    for user in machine.accounts.users:
        old = before.get(user.number)
        if old and not user.enabled and machine.files.is_folder(folder := rf"C:\Users\{old.name}"):
            yield folder


def _is_as_built(user: User, before: User | None) -> bool:
    return before is not None and user.enabled and user.password == before.password


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """What a second boot must leave as it is."""

    values: Mapping[str, str]

    def changes(self, later: Snapshot) -> list[str]:
        names = sorted({*self.values, *later.values})
        return [name for name in names if self.values.get(name) != later.values.get(name)]


def take_snapshot(machine: Machine, service: str, extra: Mapping[str, str], folders: Iterable[str]) -> Snapshot:
    """Accounts, groups, certificates, SSH keys, the name, what user data wrote and what is in `folders`. `extra` is
    what the caller adds."""
    # cloudbase-init gives the account of its service a new password at every start.
    own = (machine.registry.text(machine.services.key(service), "ObjectName") or "").rpartition("\\")[2].lower()
    values = dict(extra) | {"the host name": machine.host_name}
    for user in machine.accounts.users:
        password = "" if user.name.lower() == own else user.password
        values[f"account {user.name}"] = f"{user.number} {user.enabled} {password}"
    for group in machine.accounts.groups:
        values[f"group {group.name}"] = " ".join(map(str, sorted(group.members)))
    for store in machine.certificates:
        values[f"the certificates in {store}"] = " ".join(sorted(machine.certificates.thumbprints(store)))
    keys = [path for folder in _FOLDERS_OF_KEYS for path in _below(machine, folder) if _KEYS.search(path)]
    for path in (*keys, *(path for folder in (_USER_DATA_FOLDER, *folders) for path in _below(machine, folder))):
        values[path] = machine.files.read(path).hex()
    return Snapshot(values)


def read_text(machine: Machine, path: str) -> str:
    """The text of a file; empty if there is none."""
    return machine.files.read(path).decode("utf-8", "replace") if _is_file(machine, path) else ""


def read_kubeadm_arguments(machine: Machine, file: str) -> tuple[str, ...]:
    """kubelet's arguments in the file that kubeadm wrote."""
    found = re.search(r'KUBELET_KUBEADM_ARGS="?(?P<line>.*?)"?\s*$', read_text(machine, file))
    return tuple(shlex.split(found["line"])) if found else ()


def read_failure(commands: list[tuple[str, Ended]]) -> str:
    """What the last command said, if it failed: its errors, and without any its last line."""
    lines = [line.strip() for _, ended in commands[-1:] if ended.exit_code for line in ended.output.splitlines()]
    errors = [line for line in lines if line.startswith("[ERROR ")]
    return " ".join(errors or [line for line in lines if line][-1:])


def _is_file(machine: Machine, path: str) -> bool:
    # A command line or a configuration may have a path that is none.
    with contextlib.suppress(RefusedByWindows):
        return machine.files.is_file(path)
    return False


def _below(machine: Machine, folder: str) -> list[str]:
    return list(machine.files.below(folder)) if machine.files.is_folder(folder) else []


def _everything(machine: Machine, path: str) -> Iterator[str]:
    if not machine.files.exists(path):
        return
    yield path
    if machine.files.is_folder(path):
        for name in machine.files.names(path):
            yield from _everything(machine, rf"{path}\{name}")
