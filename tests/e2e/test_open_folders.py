"""After a build every folder that is not Windows' own is read back: others can change one only, which is meant so."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imagegen.rehearsal.machine.access import USERS, AccessEntry, effective, write
from imagegen.rehearsal.machine.stock import stock_windows
from imagegen.steps.accounts import TRUSTED
from tests.e2e import losses_support
from tests.e2e.losses_support import VARIANTS, build, resources

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from imagegen.rehearsal.machine.windows import Machine

pytestmark = pytest.mark.e2e

PODS = r"C:\var\lib\kubelet\pods"
READ = ("Read", "ReadAndExecute")
ENGINES = r"C:\ProgramData\imagegen"
# An acl of a step: what becomes open without it.
FORGOTTEN = {
    r"system/acl:C:\etc": {r"C:\etc", r"C:\etc\cni"},
    r"system/acl:C:\opt": {r"C:\opt", r"C:\opt\cni"},
    r"system/acl:C:\run": {r"C:\run"},
    r"system/acl:C:\usr": {r"C:\usr"},
    r"system/acl:C:\var": {r"C:\var", r"C:\var\lib", r"C:\var\log"},
    r"kubernetes/acl:C:\k": {r"C:\k"},
}


def folders(machine: Machine, above: str = "C:") -> Iterator[str]:
    for name in machine.files.names(above):
        path = rf"{above}\{name}"
        if machine.files.is_folder(path):
            yield path
            yield from folders(machine, path)


def open_folders(machine: Machine, folder: Path) -> set[str]:
    """Those that others than SYSTEM and Administrators can change, without the folders of a fresh Windows."""
    of_windows = {path.lower() for cloud in ("aws", "azure") for path in folders(_fresh(folder, cloud))}
    return {
        path
        for path in folders(machine)
        if path.lower() not in of_windows
        and any(
            not (entry.deny or entry.sid in TRUSTED or entry.rights in READ)
            for entry in effective(machine.files, path).entries
        )
    }


def _fresh(folder: Path, cloud: str) -> Machine:
    return stock_windows(folder / cloud, release="2022", cloud=cloud)


@pytest.mark.parametrize("variant", VARIANTS)
def test_no_folder_is_open_but_the_volumes_of_pods(variant: str, tmp_path: Path) -> None:
    machine = build(VARIANTS[variant], tmp_path)
    assert open_folders(machine, tmp_path) == {PODS}


@pytest.mark.parametrize("acl", FORGOTTEN)
def test_a_forgotten_acl_shows(acl: str, tmp_path: Path) -> None:
    machine = build(VARIANTS["shipped"], tmp_path, without=acl)
    assert open_folders(machine, tmp_path) == {PODS, *FORGOTTEN[acl]}


def brought_open(variant: str) -> list[str]:
    """The folders of a variant with an acl below those at the top, which a base image may have brought. The engine
    closes its own."""
    acls = [one.partition("/acl:")[2] for one in resources(VARIANTS[variant]) if "/acl:" in one]
    return [
        path for path in acls if path.count("\\") > 1 and "Program Files" not in path and path not in (PODS, ENGINES)
    ]


@pytest.mark.parametrize("variant", ["maximal-aws", "docker", "older"])
def test_folders_that_a_base_image_brought_open_are_closed(
    variant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = brought_open(variant)
    monkeypatch.setattr(
        losses_support, "stock_windows", lambda *given, **more: _open(stock_windows(*given, **more), paths)
    )
    assert len(paths) > 5
    assert open_folders(build(VARIANTS[variant], tmp_path), tmp_path) == {PODS}
    acls = [one for one in resources(VARIANTS[variant]) if one.partition("/acl:")[2] in paths]
    for number, acl in enumerate(acls):
        folder = tmp_path / str(number)
        assert acl.partition("/acl:")[2] in open_folders(build(VARIANTS[variant], folder, without=acl), folder), acl


def _open(machine: Machine, paths: list[str]) -> Machine:
    for path in paths:
        machine.files.make_folder(path)
        write(machine.files, path, [AccessEntry(USERS, "Modify", inherit=True)], protected=True)
    return machine
