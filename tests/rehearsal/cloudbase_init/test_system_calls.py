"""The calls for files, registry, clock and console: their answers, and the machine afterwards."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from imagegen.rehearsal.cloudbase_init.system import SystemCalls
from imagegen.rehearsal.machine.registry import Value
from tests.rehearsal.cloudbase_init.conftest import PROGRAM

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.rehearsal.cloudbase_init.conftest import Calls

_KEY = r"HKLM:\SOFTWARE\Test"
_FILE = r"C:\Windows\Temp\a.txt"
_WRITTEN = ("write_file", _FILE, b"a\x00\xff")


@dataclasses.dataclass(frozen=True)
class Case:
    """A call after those of `given`: its answer, and what `look` then finds."""

    call: tuple[object, ...]
    value: object = None
    given: tuple[tuple[object, ...], ...] = ()
    look: Callable[[Calls], object] = lambda _: None
    found: object = None


def _content(path: str) -> Callable[[Calls], object]:
    return lambda calls: calls.machine.files.read(path) if calls.machine.files.is_file(path) else None


CASES = {
    "it started": Case(("started", "1.1.4"), look=lambda calls: calls.around.version, found="1.1.4"),
    "something unknown": Case(
        ("report_unknown", "os.link"),
        look=lambda calls: calls.around.unknown,
        found=["the rehearsal does not know os.link"],
    ),
    "it crashed": Case(("report_crash", "ValueError: a"), look=lambda calls: calls.around.crash, found="ValueError: a"),
    "the host's path of a file": Case(("host_path", _FILE.upper()), value=b"a\x00\xff", given=(_WRITTEN,)),
    "the host name": Case(("host_name",), value="WIN-0A1B2C3D4E5"),
    "a wait": Case(("pass_time", 30.5), look=lambda calls: calls.machine.up_s, found=30.5),
    "the time": Case(("now",), value=30.5, given=(("pass_time", 30.5),)),
    "the console": Case(
        ("write_serial", "COM1", b"b"),
        given=(("write_serial", "COM1", b"a"), ("write_serial", "COM2", b"c")),
        look=lambda calls: calls.around.console,
        found={"COM1": b"ab", "COM2": b"c"},
    ),
    "a file is there": Case(("exists", _FILE), value=True, given=(_WRITTEN,)),
    "a file is not there": Case(("exists", _FILE), value=False),
    "a drive is there": Case(("exists", "E:\\"), value=True),
    "a drive is not there": Case(("exists", "F:\\"), value=False),
    "a folder of a drive": Case(("exists", r"E:\tag"), value=True),
    "not a part of a name of a drive": Case(("exists", r"E:\ta"), value=False),
    "a file": Case(("is_file", PROGRAM), value=True),
    "a folder is no file": Case(("is_file", r"C:\Windows"), value=False),
    "a file of a drive": Case(("is_file", r"E:\tag\it"), value=True),
    "a file of a drive in another case": Case(("is_file", r"e:\OVF-ENV.xml"), value=True),
    "a folder of a drive is no file": Case(("is_file", r"E:\tag"), value=False),
    "a folder": Case(("is_folder", r"C:\Windows"), value=True),
    "a file is no folder": Case(("is_folder", PROGRAM), value=False),
    "a drive as a folder": Case(("is_folder", "E:\\"), value=True),
    "a file of a drive is no folder": Case(("is_folder", r"E:\ovf-env.xml"), value=False),
    "no folder of a drive": Case(("is_folder", r"E:\other"), value=False),
    "bytes": Case(("read_file", _FILE), value=b"a\x00\xff", given=(_WRITTEN,)),
    "bytes of a drive": Case(("read_file", r"E:\OVF-env.xml"), value=b"<xml/>"),
    "bytes written": Case(_WRITTEN, look=_content(_FILE), found=b"a\x00\xff"),
    "a new folder and those above": Case(
        ("make_folder", r"C:\a\b"), look=lambda calls: calls.machine.files.is_folder(r"C:\a\b"), found=True
    ),
    "the names in a folder": Case(("list_folder", r"C:\Windows\Temp"), value=["a.txt"], given=(_WRITTEN,)),
    "a file removed": Case(("remove_file", _FILE), given=(_WRITTEN,), look=_content(_FILE)),
    "a folder removed with its files": Case(
        ("remove_folder", r"C:\Windows\Temp"),
        given=(_WRITTEN,),
        look=lambda calls: calls.machine.files.exists(r"C:\Windows\Temp"),
        found=False,
    ),
    "a file for reading only": Case(
        ("set_read_only", _FILE, True),
        given=(_WRITTEN,),
        look=lambda calls: calls.machine.files.is_read_only(_FILE),
        found=True,
    ),
    "a file for writing again": Case(
        ("set_read_only", _FILE, False),
        given=(_WRITTEN, ("set_read_only", _FILE, True)),
        look=lambda calls: calls.machine.files.is_read_only(_FILE),
        found=False,
    ),
    "a new key": Case(("make_key", _KEY), look=lambda calls: calls.machine.registry.has_key(_KEY), found=True),
    "a key": Case(("has_key", _KEY.upper()), value=True, given=(("make_key", _KEY),)),
    "no key": Case(("has_key", _KEY), value=False),
    "a value": Case(
        ("read_value", _KEY, "A"), value="b", given=(("make_key", _KEY), ("write_value", _KEY, "a", "String", "b"))
    ),
    "no value": Case(("read_value", _KEY, "a"), given=(("make_key", _KEY),)),
    "a value written": Case(
        ("write_value", _KEY, "a", "DWord", 7),
        given=(("make_key", _KEY),),
        look=lambda calls: calls.machine.registry.value(_KEY, "a"),
        found=Value("DWord", 7),
    ),
    "the options of DHCP": Case(("dhcp_options", None, [245]), value={"245": b"\xa8\x3f\x81\x10"}),
    "volumes that fill the disk": Case(("extend_volumes", None)),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_call_has_its_answer_and_its_effect(calls: Calls, case: Case) -> None:
    for name, *arguments in case.given:
        calls(str(name), *arguments)
    value = calls(str(case.call[0]), *case.call[1:])
    assert (Path(value).read_bytes() if case.call[0] == "host_path" else value) == case.value
    assert case.look(calls) == case.found


def test_every_call_has_a_case() -> None:
    methods = {name for name in vars(SystemCalls) if not name.startswith("_")}
    assert methods - {str(case.call[0]) for case in CASES.values()} == {"environment"}


def test_its_environment_is_the_machines_own(calls: Calls) -> None:
    calls.machine.registry.write(
        r"HKLM:\SYSTEM\CurrentControlSet\Control\Session Manager\Environment",
        "OWN",
        Value("ExpandString", r"%windir%\own"),
    )
    found = calls("environment")
    assert found["OWN"] == r"C:\Windows\own"
    assert {name: found[name] for name in ("SystemDrive", "windir", "TEMP", "COMPUTERNAME")} == {
        "SystemDrive": "C:",
        "windir": r"C:\Windows",
        "TEMP": r"C:\Windows\Temp",
        "COMPUTERNAME": "WIN-0A1B2C3D4E5",
    }


FAILURES: dict[str, tuple[tuple[Any, ...], str, str]] = {
    "no such file": (("read_file", _FILE), "missing", "a.txt"),
    "no such file of a drive": (("read_file", r"E:\other"), "missing", r"E:\other"),
    "no such drive": (("read_file", r"F:\other"), "missing", r"F:\other"),
    "no such file for the host": (("host_path", _FILE), "missing", "a.txt"),
    "no file to remove": (("remove_file", _FILE), "missing", "a.txt"),
    "a folder to remove as a file": (("remove_file", r"C:\Windows\Temp"), "missing", "Temp"),
    "no folder to remove": (("remove_folder", r"C:\missing"), "refused", "missing"),
    "no folder to look into": (("list_folder", r"C:\missing"), "refused", "missing"),
    "a drive to look into": (("list_folder", "E:\\"), "refused", "drive E: is read-only"),
    "a file on a drive": (("write_file", r"E:\a", b""), "refused", "drive E: is read-only"),
    "a folder on a drive": (("make_folder", r"E:\a"), "refused", "drive E: is read-only"),
    "a file in no folder": (("write_file", r"C:\missing\a", b""), "refused", "missing"),
    "no file to protect": (("set_read_only", _FILE, True), "refused", "a.txt"),
    "a path that is not whole": (("exists", "a.txt"), "refused", "not an absolute path"),
    "a value of no key": (("write_value", _KEY, "a", "DWord", 1), "refused", "Test"),
    "a value of another type": (("write_value", r"HKLM:\SOFTWARE", "a", "DWord", "1"), "refused", "cannot hold"),
    "single volumes": (("extend_volumes", [1]), "unknown", "volumes [1]"),
    "no such call": (("format_disk",), "unknown", "does not know format_disk"),
    "an attribute": (("_files",), "unknown", "does not know _files"),
    "too many arguments": (("now", 1), "unknown", "this call of now"),
}


@pytest.mark.parametrize(("call", "kind", "named"), FAILURES.values(), ids=FAILURES.keys())
def test_a_failed_call_says_why(calls: Calls, call: tuple[Any, ...], kind: str, named: str) -> None:
    found = calls.answer(*call)
    assert found["kind"] == kind
    assert named in found["error"]
    assert calls.around.unknown == ([found["error"]] if kind == "unknown" else [])


def test_windows_protects_what_was_made_for_reading_only(calls: Calls) -> None:
    calls(*_WRITTEN)
    calls("set_read_only", _FILE, True)
    assert calls.answer("write_file", _FILE, b"b")["kind"] == "refused"
    assert calls("read_file", _FILE) == b"a\x00\xff"
