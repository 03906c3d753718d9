"""What must not be left on the machine, and what a second boot must not change."""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Final

from imagegen.boot.check import Check, say, some
from imagegen.boot.cloudbase_init import read_settings
from imagegen.boot.guarded import find_guard, find_open, layout_of, list_guarded, may_change
from imagegen.catalog.facts import table
from imagegen.trust.block import without_signature

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from imagegen.boot.guarded import Guarded
    from imagegen.boot.node import Finding, Node
    from imagegen.settle.spec import Spec

# Folders and files with logs, also rotated ones.
_LOG: Final = re.compile(r"(?i)\\logs?\\|\.log(\.[^\\]*)?$")


def find_leaks(node: Node, secrets: Iterable[str | bytes], closed: Sequence[Guarded]) -> list[str]:
    """The files and consoles with a secret, but for those in folders that nobody else can read."""
    marks = [mark for secret in secrets for mark in _spellings(secret)]

    def may_hold_it(path: str) -> bool:
        guard = find_guard(closed, path)
        return guard is not None and not guard.rights and not _LOG.search(path)

    found = ((path, node.read(path) or b"") for path in node.below("C:") if not may_hold_it(path))
    leaking = [path for path, data in found if any(mark in data for mark in marks)]
    consoles = node.consoles.items()
    return leaking + [f"the console on {port}" for port, said in consoles if any(one in said for one in marks)]


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


def _guarded(node: Node) -> tuple[Guarded, ...]:
    return list_guarded(layout_of(node.spec))


def _secrets(node: Node) -> Iterator[Finding]:
    # Windows keeps keys apart from files: no folder may have one.
    if keys := find_leaks(node, node.given.keys, ()):
        yield say(f"the private key of a certificate is in {some(keys)}")
    leaks, settings = find_leaks(node, node.given.secrets, _guarded(node)), read_settings(node)
    if not leaks:
        return
    in_log = settings.log.lower() in map(str.lower, leaks)
    if in_log and settings.debug:
        yield say("cloudbase-init writes user data into its log, because debug is true", "B7")
    elif in_log:
        yield say("cloudbase-init writes user data that it cannot use into its log", "B8")
    yield say(f"a secret of the user data is in {some(leaks)}")


def own_scripts(spec: Spec, when: str) -> dict[str, bytes]:
    """The operator's scripts that run before (`pre`) or after (`post`) kubeadm by their paths, in their order."""
    folder = rf"{spec.config.kubernetes.install_path}\{when}-kubeadm"
    files = (file for key, file in spec.own_files.items() if key.startswith(f"kubeadm_scripts.{when}["))
    return {rf"{folder}\{number:02}-{file.name}": file.data for number, file in enumerate(files, 1)}


def _placed(spec: Spec) -> Mapping[str, bytes | None]:
    """What the config places on a node, by the path: the bytes, or None where only the lock has their digest."""
    tools = table("debug-tools")
    scripts = [rf"{tools['folder']}\{name}" for name in tools["files"]] if spec.config.debug_tools else []
    others = dict.fromkeys([*(program.path for program in spec.config.executables), *scripts])
    return {**own_scripts(spec, "pre"), **own_scripts(spec, "post"), **others}


def _own_files(node: Node) -> Iterator[Finding]:
    for path, wanted in _placed(node.spec).items():
        found = node.read(path)
        if found is None:
            yield say(f"{path} is missing")
            continue
        if wanted is not None and without_signature(found) != without_signature(wanted):
            yield say(f"{path} has other content")
        for access in filter(may_change, node.access(path)):
            yield say(f"others than administrators may change {path} ({access.sid}: {access.rights})")


def _second_boot(node: Node) -> Iterator[Finding]:
    found = node.second
    if found.commands:
        yield say(f"a second boot ran {some(dict.fromkeys(found.commands))}")
    if found.changed:
        yield say(f"a second boot changed {some(found.changed)}")
    if found.ran_user_data and not found.commands:
        yield say("a second boot ran the user data again")


def _closed_folders(node: Node) -> Iterator[Finding]:
    guarded = _guarded(node)
    access = dict.fromkeys(one for folder in guarded for one in node.access(folder.path))
    by_row: dict[str, list[str]] = {}
    for row, one in find_open(guarded, access):
        by_row.setdefault(row, []).append(f"{one.path} ({one.sid}: {one.rights})")
    for row, found in by_row.items():
        yield say(f"others than administrators may read or write {some(found)}", row)


CHECKS: Final = (
    Check("secrets", "no secret of the user data is in a log", _secrets),
    Check(
        "own-files",
        "the programs and scripts of the config are there, and only administrators can change them",
        _own_files,
        lambda spec: bool(_placed(spec)),
    ),
    Check("second-boot", "a second boot changes nothing", _second_boot),
    Check("closed-folders", "the node's folders are closed to Users", _closed_folders),
)
