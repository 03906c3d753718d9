"""What cloudbase-init's modules see in place of Python's own for the operating system, as the child calls them."""

from __future__ import annotations

import io
import sys
import types
import zipfile
from typing import TYPE_CHECKING, Any

import pytest

from imagegen.rehearsal.cloudbase_init import windows
from imagegen.rehearsal.cloudbase_init.channel import decode, encode
from imagegen.rehearsal.cloudbase_init.child import make_call

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.rehearsal.cloudbase_init.conftest import Calls

_FILE = r"C:\Windows\Temp\a.txt"
_ARGUMENTS = [r"C:\cloudbase-init.exe", "--a"]


class _Loop:
    """Both ends of the channel in one process. What passes is what would be on the line."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._line = b""

    def send(self, value: object) -> None:
        name, arguments, named = decode(encode(value))
        self._line = encode(self._calls.answer(name, *arguments, **named))

    def receive(self) -> Any:  # noqa: ANN401 - each call's own
        return decode(self._line)


@pytest.fixture
def call(calls: Calls) -> windows.Call:
    return make_call(_Loop(calls))  # type: ignore[arg-type] # it has what is used of a channel


@pytest.fixture
def names(call: windows.Call, monkeypatch: pytest.MonkeyPatch) -> types.SimpleNamespace:
    """The substitutes, as a module's names."""
    serial = types.ModuleType("serial")
    vars(serial)["SerialException"] = ValueError
    monkeypatch.setitem(sys.modules, "serial", serial)
    environ = windows.Environment(call("environment"))
    return types.SimpleNamespace(**windows.substitutes(call, environ, _ARGUMENTS), winreg=windows.make_winreg(call))


def test_files_are_written_and_read_as_on_windows(calls: Calls, names: Any) -> None:  # noqa: ANN401 - a module
    with names.open(_FILE, "w") as file:
        file.write("ä\n")
    assert calls.machine.files.read(_FILE) == b"\xe4\r\n"
    with names.open(_FILE, "a", encoding="utf-8") as file:
        file.write("ä")
    assert calls.machine.files.read(_FILE) == b"\xe4\r\n\xc3\xa4"
    with names.open(_FILE, "wb") as file:
        file.write(b"one\r\ntwo")
        file.flush()
        assert calls.machine.files.read(_FILE) == b"one\r\ntwo"
    assert names.open(_FILE).read() == "one\ntwo"
    assert names.open(_FILE, "rb").read() == b"one\r\ntwo"


def test_a_file_is_empty_as_soon_as_it_is_opened(calls: Calls, names: Any) -> None:  # noqa: ANN401 - a module
    calls.machine.files.write(_FILE, b"old")
    with names.open(_FILE, "wb"):
        assert calls.machine.files.read(_FILE) == b""


def test_relative_paths_begin_in_the_folder_of_services(calls: Calls, names: Any) -> None:  # noqa: ANN401 - a module
    with names.open("a.txt", "wb") as file:
        file.write(b"a")
    assert calls.machine.files.read(r"C:\Windows\System32\a.txt") == b"a"
    assert names.os.path.abspath("/a/../b") == "C:\\b"
    assert names.os.getcwd() == r"C:\Windows\System32"


def test_os_changes_the_machine(calls: Calls, names: Any) -> None:  # noqa: ANN401 - a module
    files = calls.machine.files
    names.os.makedirs(r"C:\a\b")
    names.os.makedirs(r"C:\a\b", exist_ok=True)
    with pytest.raises(FileExistsError):
        names.os.makedirs(r"C:\a\b")
    names.open(r"C:\a\b\c", "wb").close()
    assert names.os.listdir(r"C:\a\b") == ["c"]
    names.os.chmod(r"C:\a\b\c", 0o444)
    assert files.is_read_only(r"C:\a\b\c")
    names.os.chmod(r"C:\a\b\c", 0o644)
    names.os.remove(r"C:\a\b\c")
    assert not files.exists(r"C:\a\b\c")
    names.shutil.rmtree(r"C:\a")
    assert not files.exists(r"C:\a")


def test_paths_are_those_of_the_machine(names: Any) -> None:  # noqa: ANN401 - a module
    path = names.os.path
    assert [path.exists(it) for it in (r"C:\Windows", r"E:\tag\it", "/etc")] == [True, True, False]
    assert (path.isfile(r"E:\ovf-env.xml"), path.isdir(r"E:\tag")) == (True, True)
    assert path.join("C:\\a", "b") == r"C:\a\b"
    assert path.expandvars(r"%SYSTEMroot%\%nothing%\%TEMP%") == r"C:\Windows\%nothing%\C:\Windows\Temp"


def test_the_environment_is_the_machines_in_any_case(names: Any) -> None:  # noqa: ANN401 - a module
    environ = names.os.environ
    assert (environ["systemdrive"], environ["SystemDrive"], names.os.getenv("SYSTEMDRIVE")) == ("C:", "C:", "C:")
    assert ("windir" in environ, "HOME" in environ) == (True, False)
    assert (names.os.getenv("HOME"), names.os.getenv("HOME", "none"), environ.get("HOME")) == (None, "none", None)
    with pytest.raises(KeyError):
        environ["HOME"]


def test_errors_are_those_of_python_on_windows(names: Any) -> None:  # noqa: ANN401 - a module
    for missing in (names.open, names.os.remove):
        with pytest.raises(names.WindowsError) as failed:
            missing(_FILE)
        assert isinstance(failed.value, FileNotFoundError)
        assert vars(failed.value)["winerror"] == 2
    with pytest.raises(OSError, match="read-only"):
        names.open(r"E:\a", "wb")


def test_the_registry_is_the_machines(calls: Calls, names: Any) -> None:  # noqa: ANN401 - a module
    winreg = names.winreg
    with winreg.CreateKey(winreg.HKEY_LOCAL_MACHINE, "SOFTWARE\\Own\\") as key:
        winreg.SetValueEx(key, "text", 0, winreg.REG_SZ, "a")
        winreg.SetValueEx(key, "number", 0, winreg.REG_DWORD, 7)
    assert calls.machine.registry.number(r"HKLM:\SOFTWARE\Own", "number") == 7
    with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, r"SOFTWARE\own", 0, winreg.KEY_READ) as key:
        assert winreg.QueryValueEx(key, "Text") == ("a", 1)
        assert winreg.QueryValueEx(key, "number") == (7, 4)
        with pytest.raises(FileNotFoundError) as no_value:
            winreg.QueryValueEx(key, "other")
    with pytest.raises(FileNotFoundError) as no_key:
        winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, r"SOFTWARE\Other")
    assert [vars(error.value)["winerror"] for error in (no_value, no_key)] == [2, 2]


def test_time_passes_on_the_machine_only(calls: Calls, names: Any) -> None:  # noqa: ANN401 - a module
    names.time.sleep(3600)
    assert (names.time.time(), calls.machine.up_s) == (3600, 3600)


def test_what_is_told_of_the_machine(calls: Calls, names: Any) -> None:  # noqa: ANN401 - a module
    assert (names.platform.node(), names.platform.machine()) == ("WIN-0A1B2C3D4E5", "AMD64")
    assert (names.sys.platform, names.sys.argv, names.sys.version_info) == ("win32", _ARGUMENTS, sys.version_info)
    assert names.tempfile.gettempdir() == r"C:\Windows\Temp"
    port = names.serial.Serial(port="COM1", baudrate=9600)
    assert port.isOpen()
    port.write(b"ready")
    port.flush()
    port.close()
    assert calls.around.console == {"COM1": b"ready"}


def test_an_archive_is_unpacked_on_the_machine(calls: Calls, names: Any) -> None:  # noqa: ANN401 - a module
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("b/c.txt", b"c")
        archive.mkdir("d")
    calls.machine.files.write(r"C:\Windows\Temp\a.zip", buffer.getvalue())
    with names.zipfile.ZipFile(r"C:\Windows\Temp\a.zip") as found:
        found.extractall(r"C:\a")
    assert calls.machine.files.read(r"C:\a\b\c.txt") == b"c"
    assert calls.machine.files.is_folder(r"C:\a\d")


def test_addresses_are_computed_without_the_hosts_network(names: Any) -> None:  # noqa: ANN401 - a module
    assert names.socket.inet_ntoa(b"\xa8\x3f\x81\x10") == "168.63.129.16"


UNKNOWN: dict[str, tuple[Callable[[Any], object], str]] = {
    "a mode": (lambda names: names.open(_FILE, "x"), "open in mode x"),
    "a mode for both": (lambda names: names.open(_FILE, "r+b"), "open in mode r+b"),
    "an option of open": (lambda names: names.open(_FILE, newline=""), "open: got an unexpected keyword argument"),
    "no path": (lambda names: names.open(), "open: missing a required argument"),
    "os": (lambda names: names.os.link("a", "b"), "os.link"),
    "an option of os": (lambda names: names.os.remove("a", dir_fd=3), "this call of os.remove"),
    "a path": (lambda names: names.os.path.realpath("a"), "os.path.realpath"),
    "an option of shutil": (lambda names: names.shutil.rmtree("a", ignore_errors=True), "this call of shutil.rmtree"),
    "an archive to write": (lambda names: names.zipfile.ZipFile(_FILE, "w"), "this call of zipfile.ZipFile"),
    "a program of the host": (lambda names: names.subprocess.Popen(["true"]), "subprocess.Popen"),
    "the host's network": (lambda names: names.socket.socket(), "socket.socket"),
    "the host's name": (lambda names: names.socket.gethostname(), "socket.gethostname"),
    "a temporary folder": (lambda names: names.tempfile.mkdtemp(), "tempfile.mkdtemp"),
    "the registry": (lambda names: names.winreg.DeleteKey("HKLM:", "a"), "winreg.DeleteKey"),
}


@pytest.mark.parametrize(("use", "named"), UNKNOWN.values(), ids=UNKNOWN.keys())
def test_what_is_not_known_is_reported_before_it_fails(
    calls: Calls,
    names: Any,  # noqa: ANN401 - a module
    use: Callable[[Any], object],
    named: str,
) -> None:
    with pytest.raises(windows.UnknownCall):
        use(names)
    [unknown] = calls.around.unknown
    assert named in unknown


def test_what_python_itself_asks_of_a_module_is_not_reported(calls: Calls, names: Any) -> None:  # noqa: ANN401 - a module
    assert not hasattr(names.os, "__path__")
    assert calls.around.unknown == []


def test_functions_of_windows_may_be_declared_and_not_called(calls: Calls, call: windows.Call) -> None:
    beep = windows.Libraries(call).kernel32.Beep
    beep.argtypes = [int]
    assert calls.around.unknown == []
    with pytest.raises(windows.UnknownCall):
        beep(1)
    assert calls.around.unknown == ["the rehearsal does not know kernel32.Beep of Windows"]


def test_an_argument_that_no_line_can_hold_is_reported(calls: Calls, call: windows.Call) -> None:
    with pytest.raises(windows.UnknownCall):
        call("os_set_config_value", "a", {1, 2})
    [unknown] = calls.around.unknown
    assert "this call of set_config_value: Object of type set" in unknown
    assert calls("os_get_config_value", "a") is None


def test_an_error_of_the_layer_is_cloudbase_inits_own(call: windows.Call) -> None:
    with pytest.raises(Exception, match="no account anne") as failed:
        call("os_rename_user", "anne", "bob")
    assert type(failed.value).__module__ == "cloudbaseinit.exception"


def test_without_the_process_with_the_machine_the_child_ends() -> None:
    closed = types.SimpleNamespace(send=lambda _: None, receive=lambda: None)
    with pytest.raises(SystemExit, match="is gone"):
        make_call(closed)("now")  # type: ignore[arg-type] # a channel whose other end is closed


@pytest.mark.parametrize(
    "value", [None, 1.5, "ä\udcff", b"\x00\xff", [1, (b"a",)], {"a": {"b": b"c"}}, {"$bytes": "a", "b": 1}]
)
def test_values_pass_the_channel(value: object) -> None:
    line = encode(value)
    assert line.count(b"\n") == 1
    assert decode(line) == ([1, [b"a"]] if isinstance(value, list) else value)
