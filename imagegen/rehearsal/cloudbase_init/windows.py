"""What cloudbase-init's modules see in place of Python's own modules for the operating system: those of a Windows.

They have the same names and forms as Python's. A name that is not here fails the boot: the rehearsal does not know what
it would do on Windows.
"""

from __future__ import annotations

import functools
import inspect
import io
import ntpath
import os
import re
import socket
import sys
import types
import zipfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any

# Calls the process with the model machine: the name of the call, and its arguments.
Call = Callable[..., Any]

_FOLDER = "C:\\Windows\\System32"
# The substitutes that are in Python's own names; Windows has one more.
BUILT_IN = frozenset({"open", "WindowsError"})
_OF_SOCKET = ("inet_aton", "inet_ntoa", "error", "timeout")
_PURE = ("join", "dirname", "basename", "split", "splitext", "isabs", "normpath", "normcase", "splitdrive", "sep")


class UnknownCall(Exception):
    """The rehearsal does not know this call."""


def not_found(*arguments: object) -> FileNotFoundError:
    """Python's error for a file, a key or a value that does not exist, with the number that it has on Windows."""
    error = FileNotFoundError(*arguments)
    setattr(error, "winerror", 2)  # noqa: B010 - exists on Windows only
    return error


class Namespace(types.ModuleType):
    """Some names of a module. Another name is reported, and then missing."""

    def __init__(self, call: Call, title: str, /, **known: Any) -> None:  # noqa: ANN401 - as a module's names
        super().__init__(title)
        bound = {name: _bind(call, f"{title}.{name}", value) for name, value in known.items()}
        self.__dict__.update(bound, _call=call, _title=title)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - as a module's names
        if name.startswith("__"):
            raise AttributeError(name)
        raise report(self._call, f"{self._title}.{name}")


def report(call: Call, what: str) -> UnknownCall:
    """Tell the parent of an unknown call, whatever cloudbase-init then does with the error."""
    call("report_unknown", what)
    return UnknownCall(f"the rehearsal does not know {what}")


def _bind(call: Call, title: str, value: Any) -> Any:  # noqa: ANN401 - as a module's names
    """A function that reports arguments which it does not have: a caller may pass over Python's own error for them."""
    if not isinstance(value, types.FunctionType):
        return value
    signature = inspect.signature(value)

    @functools.wraps(value)
    def bound(*arguments: object, **named: object) -> object:
        try:
            signature.bind(*arguments, **named)
        except TypeError as error:
            raise report(call, f"this call of {title}: {error}") from error
        return value(*arguments, **named)

    return bound


class Environment(dict[str, str]):
    """Python's `os.environ` of a Windows: it has the names in capitals, and finds them in any case."""

    def __init__(self, values: Mapping[str, str]) -> None:
        super().__init__({name.upper(): value for name, value in values.items()})

    def __getitem__(self, name: str) -> str:
        return super().__getitem__(name.upper())

    def __contains__(self, name: object) -> bool:
        return super().__contains__(str(name).upper())

    def get(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 - as in `os`
        return super().get(name.upper(), default)


def absolute(path: str) -> str:
    r"""The whole path. A relative one, or one without a drive, means the current folder, C:\Windows\System32."""
    return ntpath.normpath(ntpath.join(_FOLDER, path))


class _WrittenFile(io.BytesIO):
    """A file that is open for writing. Its bytes reach the machine when it is flushed or closed."""

    def __init__(self, call: Call, path: str, before: bytes) -> None:
        super().__init__()
        self._call, self._path = call, path
        self.write(before)
        self._save()

    def _save(self) -> None:
        self._call("write_file", self._path, self.getvalue())

    def flush(self) -> None:
        super().flush()
        if not self.closed:
            self._save()

    def close(self) -> None:
        if not self.closed:
            self._save()
        super().close()


def make_open(call: Call) -> Callable[..., Any]:
    """Python's `open`, for the machine's files."""

    def open_file(path: str, mode: str = "r", encoding: str | None = None) -> Any:  # noqa: ANN401 - binary or text
        kind, whole = mode.replace("b", "").replace("t", ""), absolute(path)
        if kind not in ("r", "w", "a"):
            raise report(call, f"open in mode {mode}")
        if kind == "r":
            raw: io.BytesIO = io.BytesIO(call("read_file", whole))
        else:
            keeps = kind == "a" and call("is_file", whole)
            raw = _WrittenFile(call, whole, call("read_file", whole) if keeps else b"")
        if "b" in mode:
            return raw
        newline = None if kind == "r" else "\r\n"
        return io.TextIOWrapper(raw, encoding=encoding or "cp1252", newline=newline)

    return _bind(call, "open", open_file)  # type: ignore[no-any-return] # it has the same signature


def make_path(call: Call, environ: Environment) -> Namespace:
    """Python's `os.path`."""

    def expandvars(path: str) -> str:
        return re.sub(r"%([^%]+)%", lambda match: environ.get(match[1], match[0]), path)

    return Namespace(
        call,
        "os.path",
        **{name: getattr(ntpath, name) for name in _PURE},
        abspath=absolute,
        expandvars=expandvars,
        exists=lambda path: call("exists", absolute(path)),
        isfile=lambda path: call("is_file", absolute(path)),
        isdir=lambda path: call("is_folder", absolute(path)),
    )


def make_os(call: Call, environ: Environment) -> Namespace:
    """Python's `os`."""

    def makedirs(name: str, mode: int = 0o777, exist_ok: bool = False) -> None:  # noqa: ARG001 - as in `os`
        if call("exists", absolute(name)) and not (exist_ok and call("is_folder", absolute(name))):
            raise FileExistsError(name)
        call("make_folder", absolute(name))

    def chmod(path: str, mode: int) -> None:
        # On Windows only the owner's right to write counts.
        call("set_read_only", absolute(path), not mode & 0o200)

    def remove(path: str) -> None:
        call("remove_file", absolute(path))

    # Of the real module only what is the same on Windows.
    return Namespace(
        call,
        "os",
        path=make_path(call, environ),
        name="nt",
        linesep="\r\n",
        sep="\\",
        environ=environ,
        getenv=environ.get,
        urandom=os.urandom,
        getpid=os.getpid,
        error=OSError,
        makedirs=makedirs,
        mkdir=makedirs,
        chmod=chmod,
        listdir=lambda path: call("list_folder", absolute(path)),
        remove=remove,
        unlink=remove,
        getcwd=lambda: _FOLDER,
    )


def make_winreg(call: Call) -> Namespace:
    """Python's `winreg`, for HKEY_LOCAL_MACHINE."""

    class Key:
        def __init__(self, path: str) -> None:
            self.path = path

        def __enter__(self) -> Key:
            return self

        def __exit__(self, *_: object) -> None:
            """Nothing is open."""

    def whole(key: Key | str, sub_key: str) -> str:
        above = key.path if isinstance(key, Key) else key
        return f"{above}\\{sub_key.strip(chr(92))}"

    def create_key(key: Key | str, sub_key: str) -> Key:
        call("make_key", whole(key, sub_key))
        return Key(whole(key, sub_key))

    def open_key(key: Key | str, sub_key: str, *_: int) -> Key:
        if not call("has_key", whole(key, sub_key)):
            raise not_found(2, "The system cannot find the file specified", sub_key)
        return Key(whole(key, sub_key))

    def set_value(key: Key, name: str, _reserved: int, kind: int, value: object) -> None:
        call("write_value", key.path, name, {1: "String", 4: "DWord"}[kind], value)

    def query_value(key: Key, name: str) -> tuple[object, int]:
        found = call("read_value", key.path, name)
        if found is None:
            raise not_found(2, "The system cannot find the file specified", name)
        return found, 4 if isinstance(found, int) else 1

    numbers = {"REG_SZ": 1, "REG_DWORD": 4, "KEY_READ": 0x20019, "KEY_ALL_ACCESS": 0xF003F}
    functions = {"CreateKey": create_key, "OpenKey": open_key, "SetValueEx": set_value, "QueryValueEx": query_value}
    return Namespace(call, "winreg", HKEY_LOCAL_MACHINE="HKLM:", **numbers, **functions)


class Libraries:
    """`ctypes.windll`: modules declare functions of its libraries when they are imported, and may call none."""

    def __init__(self, call: Call) -> None:
        self._call = call

    def __getattr__(self, library: str) -> Namespace:
        call = self._call

        class Library(Namespace):
            def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - as a module's names
                def function(*_: object) -> None:
                    raise report(call, f"{library}.{name} of Windows")

                setattr(self, name, function)
                return function

        found = Library(call, library)
        setattr(self, library, found)
        return found


class Serial:
    """pyserial's `Serial`: a port whose other end the cloud shows as the machine's console."""

    call: Call

    def __init__(self, port: str, **_: object) -> None:
        self._port = port

    def isOpen(self) -> bool:
        return True

    def write(self, data: bytes) -> None:
        type(self).call("write_serial", self._port, data)

    def flush(self) -> None:
        """Written at once."""

    def close(self) -> None:
        """Nothing is open."""


def substitutes(call: Call, environ: Environment, arguments: list[str]) -> dict[str, Any]:
    """What a module of cloudbase-init finds under these of its global names."""
    opened = make_open(call)
    Serial.call = staticmethod(call)

    def open_zip(file: Any) -> zipfile.ZipFile:  # noqa: ANN401 - a path or an open file
        return _Zip(call, opened(file, "rb") if isinstance(file, str) else file)

    real = sys.modules
    sleep = {"sleep": lambda seconds: call("pass_time", float(seconds)), "time": lambda: call("now")}
    # The rest of `sys` is Python itself, which is the same.
    of_sys = {name: value for name, value in vars(sys).items() if not name.startswith("__")}
    return {
        "open": opened,
        "WindowsError": OSError,
        "os": make_os(call, environ),
        "sys": Namespace(call, "sys", **{**of_sys, "platform": "win32", "argv": arguments}),
        "time": Namespace(call, "time", **sleep),
        # What only computes. The host's network is not the machine's, and its programs are none of Windows.
        "socket": Namespace(call, "socket", **{name: getattr(socket, name) for name in _OF_SOCKET}),
        "subprocess": Namespace(call, "subprocess"),
        "platform": Namespace(call, "platform", node=lambda: call("host_name"), machine=lambda: "AMD64"),
        "tempfile": Namespace(call, "tempfile", gettempdir=lambda: environ["TEMP"]),
        "shutil": Namespace(call, "shutil", rmtree=lambda path: call("remove_folder", absolute(path))),
        "zipfile": Namespace(call, "zipfile", ZipFile=open_zip),
        "serial": Namespace(call, "serial", Serial=Serial, SerialException=real["serial"].SerialException),
    }


class _Zip(zipfile.ZipFile):
    """A zip that unpacks to the machine's disk."""

    def __init__(self, call: Call, file: Any) -> None:  # noqa: ANN401 - as in `zipfile`
        super().__init__(file)
        self._call = call

    def extractall(self, path: Any = None, members: Any = None, pwd: bytes | None = None) -> None:  # noqa: ANN401, ARG002
        for entry in self.infolist():
            whole = absolute(f"{path}\\{entry.filename}".replace("/", "\\"))
            folder = whole if entry.is_dir() else ntpath.dirname(whole)
            self._call("make_folder", folder)
            if not entry.is_dir():
                self._call("write_file", whole, self.read(entry))


def iterate_methods(kind: type) -> Iterator[str]:
    """The names of a class's public methods, with inherited ones."""
    for name in dir(kind):
        if not name.startswith("_") and callable(getattr(kind, name)):
            yield name
