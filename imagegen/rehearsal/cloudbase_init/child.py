"""The child: cloudbase-init as it is installed for this Python, with the model machine as its operating system.

It needs cloudbase-init and Python only. Its argument is the command line that Windows would start, as JSON; where the
channel is, and the secret that opens it, are in its environment, which other users cannot read.
"""

from __future__ import annotations

import contextlib
import ctypes
import datetime
import functools
import importlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import io
import json
import os
import socket
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

from imagegen.rehearsal.cloudbase_init import windows
from imagegen.rehearsal.cloudbase_init.channel import ADDRESS, OS, UNKNOWN, X509, Channel

_PACKAGE = "cloudbaseinit"
_LIBRARIES = ("oslo_log.log", "requests", "serial")
_TUPLES = (
    *("execute_", "get_file_version", "get_default_gateway", "get_current_user", "reset_service_password"),
    "create_self_signed_cert",
)


class _Binding(importlib.abc.MetaPathFinder):
    """Puts the substitutes into each module of cloudbase-init as soon as it is imported."""

    def __init__(self, substitutes: dict[str, Any]) -> None:
        self._substitutes = substitutes

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not fullname.startswith(f"{_PACKAGE}."):
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def execute_and_bind(module: types.ModuleType) -> None:
            execute(module)
            for name, value in self._substitutes.items():
                if name in windows.BUILT_IN or isinstance(vars(module).get(name), types.ModuleType):
                    setattr(module, name, value)

        spec.loader.exec_module = execute_and_bind  # type: ignore[method-assign] # only this module's own loader
        return spec


def make_call(channel: Channel) -> windows.Call:
    def call(name: str, *arguments: object, **named: object) -> Any:  # noqa: ANN401 - each call's own
        try:
            channel.send([name, list(arguments), named])
        except TypeError as error:
            # Only Python's own simple types, which is all that cloudbase-init passes.
            raise windows.report(call, f"this call of {name.removeprefix(OS).removeprefix(X509)}: {error}") from error
        answer = channel.receive()
        if answer is None:
            raise SystemExit("the process with the machine is gone")
        if "value" in answer:
            return answer["value"]
        if answer["kind"] == "missing":
            raise windows.not_found(answer["error"])
        if answer["kind"] == UNKNOWN:
            raise windows.UnknownCall(answer["error"])
        if name.startswith(X509):
            raise _crypto_error(answer["error"])
        if name.startswith(OS):
            raise importlib.import_module(f"{_PACKAGE}.exception").CloudbaseInitException(answer["error"])
        raise OSError(answer["error"])

    return call


def _crypto_error(text: str) -> Exception:
    """cloudbase-init's error for what CryptoAPI refuses, which asks Windows for its number when it is made."""
    kind: type[Exception] = importlib.import_module(f"{_PACKAGE}.utils.windows.cryptoapi").CryptoAPIException
    return type(kind.__name__, (kind,), {"_get_windows_error": lambda _: text})()  # type: ignore[no-any-return] # mypy takes the class for any


def _forward(call: windows.Call, prefix: str, name: str) -> Any:  # noqa: ANN401 - a method
    return lambda _, *arguments, **named: _results(name, call(f"{prefix}{name}", *arguments, **named))


def _bind_certificates(call: windows.Call) -> None:
    """Replace cloudbase-init's manager of certificates, which calls CryptoAPI with the memory that this wants."""
    module, name = "utils.windows.x509", "CryptoAPICertManager"
    theirs = getattr(importlib.import_module(f"{_PACKAGE}.{module}"), name)
    own = {method: _forward(call, X509, method) for method in windows.iterate_methods(theirs)}

    def report_name(_: object, other: str) -> Any:  # noqa: ANN401 - a method
        raise windows.report(call, f"{other} of cloudbase-init's {name}")

    _replace(module, name, type(name, (), {**own, "__getattr__": report_name}))


def _bind_system(call: windows.Call) -> None:
    """Replace the layer under cloudbase-init: its own class for Windows, and what it asks of DHCP and of disks."""
    base = importlib.import_module(f"{_PACKAGE}.osutils.base").BaseOSUtils

    def forward(name: str) -> Any:  # noqa: ANN401 - a method
        return _forward(call, OS, name)

    # The base has this one in full, on random bytes of Python's.
    own = {name: forward(name) for name in windows.iterate_methods(base) if name != "generate_random_password"}

    def method_of_windows(system: object, name: str) -> Any:  # noqa: ANN401 - a method
        if name.isupper():
            raise windows.report(call, f"constant {name} of cloudbase-init's layer for Windows")
        if name.startswith("__"):
            raise AttributeError(name)
        return functools.partial(forward(name), system)

    own |= {"__getattr__": method_of_windows, **call("constants")}
    system = type("ModelWindows", (base,), own)()
    _replace("osutils.factory", "get_os_utils", lambda: system)

    def dhcp_options(dhcp_host: str | None = None, requested_options: Sequence[int] = (), **_: object) -> Any:  # noqa: ANN401
        found = call("dhcp_options", dhcp_host, list(requested_options))
        return None if found is None else {int(number): data for number, data in found.items()}

    _replace("utils.dhcp", "get_dhcp_options", dhcp_options)
    storage = windows.Namespace(
        call, "the storage manager", extend_volumes=lambda indexes=None: call("extend_volumes", indexes)
    )
    _replace("utils.windows.storage.factory", "get_storage_manager", lambda: storage)


def _older_modules(call: windows.Call) -> dict[str, types.ModuleType]:
    """What cloudbase-init before 1.1.7 imports, and the installed one does not bring.

    `netifaces` asks the host for its network, and `imp` is gone from Python 3.12.
    """
    known: dict[str, dict[str, object]] = {"netifaces": {}, "imp": {}, "pytz": {"utc": datetime.UTC}}
    return {name: windows.Namespace(call, name, **names) for name, names in known.items()}


def _replace(module: str, name: str, function: Callable[..., Any]) -> None:
    setattr(importlib.import_module(f"{_PACKAGE}.{module}"), name, function)


def _results(name: str, value: Any) -> Any:  # noqa: ANN401 - each call's own
    """JSON has no tuples: the results of programs, and those that cloudbase-init formats or takes apart."""
    return tuple(value) if isinstance(value, list) and name.startswith(_TUPLES) else value


def _parse_from_machine(call: windows.Call) -> Any:  # noqa: ANN401 - a function
    parse = importlib.import_module("untangle").parse

    def parse_xml(source: Any) -> Any:  # noqa: ANN401 - as in untangle
        if isinstance(source, str):
            source = io.StringIO(call("read_file", windows.absolute(source)).decode("utf-8-sig"))
        return parse(source)

    return parse_xml


def _need_plugins(conf: Any, call: windows.Call) -> None:  # noqa: ANN401 - oslo's
    """cloudbase-init only logs a class that cannot be imported. Here it may be one that exists on Windows only."""
    for path in (*conf.plugins, *conf.metadata_services, *conf.user_data_plugins):
        module, _, _name = path.rpartition(".")
        try:
            importlib.import_module(module)
        except ImportError as error:
            missing = error.name or ""
            if not missing.startswith(_PACKAGE):
                raise windows.report(call, f"{path}: it needs {missing or error}") from error


def _bind_python(call: windows.Call, command_line: list[str]) -> None:
    """Replace what cloudbase-init's modules see of Python and of the libraries that it brings."""
    environ = windows.Environment(call("environment"))
    # Libraries look for what only Windows has when they are imported: these are on the host.
    for library in _LIBRARIES:
        importlib.import_module(library)
    sys.modules |= {"winreg": windows.make_winreg(call), **_older_modules(call)}
    # cloudbase-init before 1.1.7 asks for `winreg` under a name that exists on Windows only.
    with contextlib.suppress(ImportError):
        six = importlib.import_module("six")
        six.add_move(six.MovedModule("winreg", "_winreg"))
    libraries = windows.Libraries(call)
    # Windows' own, and the C library that only Windows has under this name.
    setattr(ctypes, "windll", libraries)  # noqa: B010 - exists on Windows only
    setattr(ctypes.cdll, "msvcrt", libraries.msvcrt)  # noqa: B010 - the same
    known = windows.substitutes(call, environ, command_line)
    known["untangle"] = windows.Namespace(call, "untangle", parse=_parse_from_machine(call))
    sys.meta_path.insert(0, _Binding(known))


def _configure_host(call: windows.Call, command_line: list[str]) -> None:
    """What cloudbase-init's own `main` does, with its files where the host keeps them."""
    init = importlib.import_module(f"{_PACKAGE}.init")
    logging = importlib.import_module(f"{_PACKAGE}.utils.log")
    conf = importlib.import_module(f"{_PACKAGE}.conf").CONF
    _bind_system(call)
    _bind_certificates(call)
    host = [call("host_path", one) if one.lower().endswith(".conf") else one for one in command_line[1:]]
    conf(host)
    # cloudbase-init's own options for this have the old names; both are the same.
    if conf.log_dir or conf.log_file:
        conf.set_override("log_dir", call("host_path", conf.log_dir or "C:\\Windows\\System32"))
    logging.setup(_PACKAGE)
    _need_plugins(conf, call)
    try:
        init.InitManager().configure_host()
    except Exception as error:
        logging.log.getLogger(_PACKAGE).exception(error)
        raise


def _discard_output() -> None:
    """What runs here may print without end, and the parent keeps what it reads. Errors reach it as calls."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        # A copy stays open, because the parent can stop the child only while there is output to wait for.
        os.dup(descriptor)
        os.dup2(nowhere, descriptor)
    os.close(nowhere)


def main() -> None:
    command_line = json.loads(sys.argv[1])
    port, _, secret = os.environ.pop(ADDRESS).partition(" ")
    channel = Channel(socket.create_connection(("127.0.0.1", int(port))))
    channel.send(secret)
    call = make_call(channel)
    call("started", importlib.metadata.version("cloudbase-init"))
    _discard_output()
    try:
        _bind_python(call, command_line)
        _configure_host(call, command_line)
    except Exception as error:
        call("report_crash", f"{type(error).__name__}: {error}")
        raise


if __name__ == "__main__":
    main()
