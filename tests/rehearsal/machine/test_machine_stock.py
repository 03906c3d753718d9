"""The stock machine, its disk and its registry; the stand-in for MSI packages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imagegen.rehearsal.machine import Machine, stock_windows
from imagegen.rehearsal.machine.access import (
    ALSO_HERE,
    EVERYTHING,
    FILES,
    FOLDERS,
    ONLY_BELOW,
    AccessEntry,
    effective,
    write,
)
from imagegen.rehearsal.machine.files import Files
from imagegen.rehearsal.machine.installer import install
from imagegen.rehearsal.machine.msi import MsiService, NotAPackageError, make_msi, read_msi
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.machine.registry import Registry, Value
from imagegen.rehearsal.machine.services import AUTOMATIC
from tests.rehearsal.machine.conftest import Bench

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.mark.parametrize(("release", "build"), [("2019", "17763"), ("2022", "20348"), ("2025", "26100")])
@pytest.mark.parametrize("cloud", ["aws", "azure"])
def test_a_stock_machine_is_up(tmp_path: Path, release: str, build: str, cloud: str) -> None:
    machine = stock_windows(tmp_path, release=release, cloud=cloud)
    assert machine.build == build
    assert not machine.restart_pending()
    services = machine.services
    stopped = [name for name in services.names() if services.start_type(name) <= AUTOMATIC]
    assert [name for name in stopped if not services.is_running(name)] == []
    assert services.exists("RdAgent") is (cloud == "azure")
    assert machine.files.exists(r"C:\ProgramData\Amazon\EC2Launch\config") is (cloud == "aws")
    assert [machine.features.state(name) for name in ("Containers", "Hyper-V", "Hyper-V-PowerShell")] == [
        "Available"
    ] * 3


def test_a_bench_has_a_stock_machine_of_its_own(bench: Bench, stock: Machine, tmp_path: Path) -> None:
    fresh = Bench(stock_windows(tmp_path / "fresh", release="2022", cloud="aws"))
    before = fresh.snapshot()
    assert bench.snapshot() == before
    assert bench.machine.files.access_lists == fresh.machine.files.access_lists
    bench.machine.files.write(r"C:\Windows\System32\sc.exe", b"another")
    bench.machine.files.access_lists.clear()
    bench.machine.registry.remove_key(r"HKLM:\SOFTWARE")
    bench.machine.services.stop("WinDefend")
    assert Bench(stock).snapshot() == before
    assert stock.files.access_lists == fresh.machine.files.access_lists


def test_releases_know_different_features(tmp_path: Path) -> None:
    with pytest.raises(RefusedByWindows, match="has no feature PowerShell-V2"):
        stock_windows(tmp_path, release="2025", cloud="aws").features.state("PowerShell-V2")


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_paths_compare_without_case_and_keep_their_spelling(files: Files) -> None:
    files.make_folder(r"C:\Program Files\App")
    files.write(r"c:/PROGRAM FILES/app/Tool.EXE", b"1")
    files.write(r"C:\Program Files\App\tool.exe", b"2")
    assert list(files.below("C:")) == [r"C:\Program Files\App\Tool.EXE"]
    assert files.read(r"C:\PROGRA~1\x".replace("PROGRA~1\\x", "program files\\APP\\TOOL.exe")) == b"2"


@pytest.mark.parametrize(
    "path", ["relative", r"C:\a\..\b", r"C:\a.", r"C:\a \b", r"C:\a:b", r"C:\CON", r"C:\a\\b", "C:\\" + "x" * 260]
)
def test_paths_that_windows_does_not_accept(files: Files, path: str) -> None:
    with pytest.raises(RefusedByWindows):
        files.make_folder(path)


def test_a_program_of_the_host_shares_a_folder_with_the_machine(files: Files, tmp_path: Path) -> None:
    files.make_folder(r"C:\App\log\old")
    files.write(r"C:\App\log\old\a.log", b"a")
    host = files.host_path(r"c:\app\LOG")
    assert host == files.host_path(r"C:\App\log")
    assert (host / "old" / "a.log").read_bytes() == b"a"
    (host / "Tool.log").write_bytes(b"of the host")
    files.make_folder(r"C:\App\log\new\one")
    files.write(r"C:\App\log\new\one\b.log", b"of the machine")
    assert (host / "new" / "one" / "b.log").read_bytes() == b"of the machine"
    assert files.names(r"C:\App\log") == ["Tool.log", "new", "old"]
    copied = files.copy(tmp_path / "copy")
    files.move(r"C:\App\log\tool.log", r"C:\App\tool.log")
    files.remove(r"C:\App\log\old")
    assert sorted(path.name for path in host.iterdir()) == ["new"]
    assert files.read(r"C:\App\tool.log") == copied.read(r"C:\App\log\TOOL.LOG") == b"of the host"
    assert list(copied.below(r"C:\App")) == [
        r"C:\App\log\Tool.log",
        r"C:\App\log\new\one\b.log",
        r"C:\App\log\old\a.log",
    ]


def test_a_folder_that_was_removed_leaves_nothing_for_the_host(files: Files) -> None:
    files.make_folder(r"C:\App\log")
    (files.host_path(r"C:\App\log") / "old").write_bytes(b"")
    files.remove(r"C:\App")
    files.make_folder(r"C:\App\log")
    assert files.names(r"C:\App\log") == []
    assert list(files.host_path(r"C:\App\log").iterdir()) == []


def test_what_needs_a_folder_or_a_file_says_so(files: Files) -> None:
    with pytest.raises(RefusedByWindows, match="there is no folder"):
        files.write(r"C:\none\x", b"")
    with pytest.raises(RefusedByWindows, match="cannot find file"):
        files.move(r"C:\x", r"C:\y")
    with pytest.raises(RefusedByWindows, match="cannot find path"):
        files.remove(r"C:\x")
    with pytest.raises(RefusedByWindows, match="cannot find path"):
        write(files, r"C:\x", [], protected=True)


def test_a_read_only_file_is_neither_written_nor_replaced_nor_deleted(files: Files) -> None:
    files.make_folder(r"C:\a")
    files.write(r"C:\a\x", b"1")
    files.write(r"C:\a\y", b"2")
    files.set_read_only(r"C:\A\X", on=True)
    acts: tuple[Callable[[], None], ...] = (
        lambda: files.write(r"C:\a\x", b"3"),
        lambda: files.move(r"C:\a\y", r"C:\a\x"),
        lambda: files.remove(r"C:\a\x"),
        lambda: files.remove(r"C:\a"),
    )
    for act in acts:
        with pytest.raises(RefusedByWindows, match="it is read-only"):
            act()
    files.move(r"C:\a\x", r"C:\a\z")
    assert [files.is_read_only(rf"C:\a\{name}") for name in "xz"] == [False, True]
    files.set_read_only(r"C:\a\z", on=False)
    files.remove(r"C:\a")
    with pytest.raises(RefusedByWindows, match="cannot find file"):
        files.set_read_only(r"C:\a\z", on=True)


def test_an_access_list_moves_with_its_file_and_goes_with_its_folder(files: Files) -> None:
    entry = AccessEntry("S-1-5-18", "FullControl", inherit=False)
    files.make_folder(r"C:\a")
    files.write(r"C:\a\x", b"")
    write(files, r"C:\a\x", [entry], protected=True)
    files.move(r"C:\a\x", r"C:\a\y")
    assert effective(files, r"C:\A\Y").entries == (entry,)
    files.remove(r"C:\a")
    files.make_folder(r"C:\a")
    files.write(r"C:\a\y", b"")
    assert not effective(files, r"C:\a\y").protected


def test_only_what_is_meant_for_below_is_inherited(files: Files) -> None:
    files.make_folder(r"C:\a\b")
    below, here = (AccessEntry(sid, "Modify", inherit=sid == "S-1-5-18") for sid in ("S-1-5-18", "S-1-5-19"))
    write(files, r"C:\a", [below, here], protected=True)
    files.write(r"C:\a\b\x", b"")
    assert [(entry.sid, entry.inherit) for entry in effective(files, r"C:\a\b\x").entries] == [("S-1-5-18", False)]
    assert [(entry.sid, entry.inherit) for entry in effective(files, r"C:\a\b").entries] == [("S-1-5-18", True)]


@pytest.mark.parametrize(
    ("inheritance", "propagation", "below"),
    [
        (FOLDERS, ALSO_HERE, {r"b": ALSO_HERE}),
        (FILES, ALSO_HERE, {r"b": ONLY_BELOW, r"b\x": ALSO_HERE}),
        (EVERYTHING, ONLY_BELOW, {r"b": ALSO_HERE, r"b\x": ALSO_HERE}),
    ],
)
def test_an_entry_for_a_part_is_inherited_by_that_part(
    files: Files, inheritance: str, propagation: str, below: dict[str, str]
) -> None:
    files.make_folder(r"C:\a\b")
    files.write(r"C:\a\b\x", b"")
    entry = AccessEntry("S-1-5-18", "Modify", inherit=True, inheritance=inheritance, propagation=propagation)
    write(files, r"C:\a", [entry], protected=True)
    found = {name: effective(files, rf"C:\a\{name}").entries for name in (r"b", r"b\x")}
    assert {name: one.propagation for name, entries in found.items() for one in entries} == below
    assert [one.inherit for one in found[r"b\x"]] == [False] * (r"b\x" in below)


def test_registry_keys_compare_without_case_and_go_with_what_is_below() -> None:
    registry = Registry()
    registry.make_key(r"HKLM:\SOFTWARE\A\B")
    registry.write(r"hklm:\software\a", "Name", Value("String", "x"))
    registry.write(r"HKLM\Software\A", "NAME", Value("DWord", 1))
    assert registry.values(r"HKLM:\SOFTWARE\A") == {"Name": Value("DWord", 1)}
    assert registry.subkeys(r"HKLM:\SOFTWARE\a") == ["B"]
    registry.make_key(r"HKLM:\SOFTWARE\AB")
    registry.remove_key(r"HKLM:\SOFTWARE\A")
    assert not registry.has_key(r"HKLM:\SOFTWARE\A\B")
    assert registry.has_key(r"HKLM:\SOFTWARE\AB")
    with pytest.raises(RefusedByWindows, match="cannot find key"):
        registry.write(r"HKLM:\SOFTWARE\A", "x", Value("DWord", 1))


SERVICE = MsiService(name="s", display_name="S", command=r"C:\s.exe")


def test_a_package_is_read_back_and_its_bytes_do_not_vary() -> None:
    data = make_msi("P", "1.0", {r"C:\s.exe": b"s"}, [SERVICE])
    assert data == make_msi("P", "1.0", {r"C:\s.exe": b"s"}, [SERVICE])
    assert data.startswith(bytes.fromhex("d0cf11e0a1b11ae1"))
    tables, files = read_msi(data)
    assert (tables.product, tables.version, tables.services, files) == ("P", "1.0", (SERVICE,), {r"C:\s.exe": b"s"})


@pytest.mark.parametrize("data", [b"", b"MZ", make_msi("P", "1", {}, [])[:60], make_msi("P", "1", {}, [])[8:]])
def test_other_bytes_are_no_package(data: bytes) -> None:
    with pytest.raises(NotAPackageError):
        read_msi(data)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    machine = stock_windows(tmp_path, release="2022", cloud="azure")
    for version in ("1.0.0", "2.0.0"):
        data = make_msi("P", version, {r"C:\App\s.exe": version.encode()}, [SERVICE], [r"C:\App\log"])
        machine.files.write(rf"C:\Windows\Temp\{version}.msi", data)
    return machine


@pytest.mark.parametrize(
    ("argument", "runs_as", "groups"),
    [
        ("A=1", r".\agent", ["Administrators"]),
        ("AS_SYSTEM=1", "LocalSystem", None),
        ("AS_SYSTEM=", r".\agent", ["Administrators"]),
    ],
)
def test_a_package_makes_the_account_of_its_service(
    machine: Machine, argument: str, runs_as: str, groups: list[str] | None
) -> None:
    service = SERVICE.model_copy(update={"administrator": "agent", "system_property": "AS_SYSTEM"})
    name, _, value = argument.partition("=")
    install(machine, make_msi("Q", "1.0", {r"C:\s.exe": b"s"}, [service]), {name: value})
    assert machine.registry.text(machine.services.key("s"), "ObjectName") == runs_as
    user = machine.accounts.user("agent")
    assert (user and [group.name for group in machine.accounts.groups_of(user)]) == groups


def test_a_started_service_does_what_it_is_for_once_it_runs(machine: Machine) -> None:
    seen: list[bool] = []
    services = machine.services
    services.on_start["w32time"] = lambda: seen.append(services.is_running("W32Time"))
    services.start("W32Time")
    services.start("W32Time")
    assert seen == [True], "once, when it runs"
    machine.restart()
    assert seen == [True], "a service with start type manual is not started"
    services.configure("W32Time", "Start", Value("DWord", AUTOMATIC))
    machine.restart()
    assert seen == [True, True]
