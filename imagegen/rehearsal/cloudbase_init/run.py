"""Runs cloudbase-init once: starts the child, answers its calls, and says how it ended."""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import dataclasses
import inspect
import json
import os
import secrets
import socket
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from imagegen.base.errors import BuildError
from imagegen.build import process
from imagegen.build.supervisor import Grace
from imagegen.rehearsal.boot.model import UnknownCommandError
from imagegen.rehearsal.cloudbase_init.certificates import CertificateCalls
from imagegen.rehearsal.cloudbase_init.channel import ADDRESS, OS, UNKNOWN, X509, Channel
from imagegen.rehearsal.cloudbase_init.os_layer import CONSTANTS, OsLayer
from imagegen.rehearsal.cloudbase_init.system import SystemCalls
from imagegen.rehearsal.machine.refusal import NoSuchFile, RefusedByWindows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from imagegen.rehearsal.cloudbase_init.system import Surroundings

_CHILD = "imagegen.rehearsal.cloudbase_init.child"
_POLL_S = 0.1
_HANDSHAKE_S = 5.0
# It has nothing to clean up.
_NO_GRACE = Grace()
_SHOWN_LINES = 5
# The secret as JSON, and some room.
_HANDSHAKE_BYTES = 256
# The user's other variables hold secrets, and settings of cloudbase-init's libraries: oslo.config takes options from
# variables, and its messages come in the user's language.
_KEPT = ("TMPDIR", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
# Where the child finds its own modules.
_OWN = (Path(__file__).parents[3],)


@dataclasses.dataclass(frozen=True)
class Runner:
    """How a child is started: with which variables and modules it runs. `scratch` is for the booted machine's disk."""

    scratch: Path
    environ: Mapping[str, str]
    modules: tuple[Path, ...] = ()
    """Folders with another cloudbase-init than the installed one."""
    reason: str = ""
    """Why this cloudbase-init is not the image's version. Empty if it is."""
    timeout_s: float = 120.0
    """In real time: all waits on the machine are skipped."""
    _running: list[_Calls] = dataclasses.field(default_factory=list, init=False, repr=False)
    """A child may make the machine start another one, which runs on the thread that answers the first."""

    def run(self, around: Surroundings, command_line: Sequence[str], proxy: str) -> int:
        """Run `command_line`, as a service of the machine has it, and return the exit code.

        Its HTTP requests go through `proxy`, which is the machine's network.
        """
        secret = secrets.token_hex(32)
        said: collections.deque[str] = collections.deque(maxlen=_SHOWN_LINES)
        with contextlib.ExitStack() as closing:
            # Not a socket in a folder: the system limits such a path to about 100 characters.
            listener = closing.enter_context(socket.create_server(("127.0.0.1", 0)))
            calls, outer = _Calls(listener, secret, around), tuple(self._running)
            self._running.append(calls)
            closing.callback(self._running.remove, calls)
            answering = closing.enter_context(concurrent.futures.ThreadPoolExecutor(1))
            closing.enter_context(calls)
            answers = answering.submit(calls.answer_all)
            try:
                code = process.stream(
                    # Without -P, Python takes modules of the user's current folder for its own.
                    [sys.executable, "-P", "-m", _CHILD, json.dumps(list(command_line))],
                    environ=self._child_environ(proxy) | {ADDRESS: f"{listener.getsockname()[1]} {secret}"},
                    cwd=None,
                    timeout=self.timeout_s,
                    on_line=said.append,
                    supervision=process.Supervision(watch=lambda: _check_stopped(outer), grace=_NO_GRACE),
                )
            except TimeoutError as overdue:
                raise BuildError(
                    f"cloudbase-init did not end within {self.timeout_s:g} s in the rehearsal"
                ) from overdue
            calls.hang_up()
            answers.result()
        if not around.version:
            raise BuildError("cloudbase-init could not be started in the rehearsal", details=[*said])
        if code < 0:
            around.crash = f"it was killed by signal {-code}"
        return code

    def _child_environ(self, proxy: str) -> dict[str, str]:
        modules = [*self.modules, *_OWN]
        return {
            **{name: self.environ[name] for name in _KEPT if name in self.environ},
            "PYTHONPATH": os.pathsep.join(map(str, modules)),
            "PYTHONUTF8": "1",
            # Otherwise the passwords of the user's ~/.netrc go to the stand-ins.
            "NETRC": os.devnull,
            **dict.fromkeys(("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"), proxy),
            **dict.fromkeys(("no_proxy", "NO_PROXY"), ""),
        }


def _check_stopped(outer: Sequence[_Calls]) -> None:
    if any(calls.were_stopped for calls in outer):
        raise BuildError("cloudbase-init was stopped, because the one that started it was stopped")


class _Calls:
    """The calls of one child, which are answered until it closes its end, or until `hang_up`."""

    def __init__(self, listener: socket.socket, secret: str, around: Surroundings) -> None:
        self._listener = listener
        self._secret = secret
        self._around = around
        self._lock = threading.Lock()
        self._ended = False
        self.were_stopped = False
        """Whether an error or Ctrl-C ended the run of the child."""
        self._end: socket.socket | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.were_stopped = kind is not None
        self.hang_up()

    def answer_all(self) -> None:
        self._listener.settimeout(_POLL_S)
        while not self._ended:
            try:
                end, _ = self._listener.accept()
            except TimeoutError:
                continue
            with self._opened(end) as channel:
                if not self._knows_secret(end, channel):
                    continue
                owners = make_owners(self._around)
                # A child that is killed reads no answer.
                with contextlib.suppress(ConnectionError):
                    while (call := channel.receive()) is not None:
                        channel.send(answer(call, owners, self._around))
            return

    def hang_up(self) -> None:
        """Receive no more: something that the child started may hold its end open, and another program may dawdle."""
        with self._lock:
            self._ended = True
            if self._end is not None:
                # The other end may have closed it.
                with contextlib.suppress(OSError):
                    self._end.shutdown(socket.SHUT_RDWR)

    @contextlib.contextmanager
    def _opened(self, end: socket.socket) -> Iterator[Channel]:
        with contextlib.closing(Channel(end)) as channel:
            with self._lock:
                self._end = end
                if self._ended:
                    end.shutdown(socket.SHUT_RDWR)
            try:
                yield channel
            finally:
                with self._lock:
                    self._end = None

    def _knows_secret(self, end: socket.socket, channel: Channel) -> bool:
        """Whether the other end is the child, and not another program of this machine."""
        end.settimeout(_HANDSHAKE_S)
        try:
            return secrets.compare_digest(str(channel.receive(_HANDSHAKE_BYTES)).encode(), self._secret.encode())
        except (OSError, ValueError):
            return False
        finally:
            end.settimeout(None)


def make_owners(around: Surroundings) -> dict[str, object]:
    """Who answers the calls, by the prefix of their names; the others have none."""
    return {OS: OsLayer(around), X509: CertificateCalls(around), "": SystemCalls(around)}


def answer(call: Any, owners: Mapping[str, object], around: Surroundings) -> dict[str, Any]:  # noqa: ANN401 - JSON
    """What the child is told of a call: its value, or the kind of its error and what it says."""
    name, arguments, named = call
    if name == "constants":
        return {"value": CONSTANTS}
    prefix = next(one for one in owners if name.startswith(one))
    method = name.removeprefix(prefix)
    function = getattr(owners[prefix], method, None) if not method.startswith("_") else None
    try:
        if function is None:
            raise UnknownCommandError(f"the rehearsal does not know {method} of cloudbase-init's layer for Windows")
        try:
            inspect.signature(function).bind(*arguments, **named)
        except TypeError as error:
            raise UnknownCommandError(
                f"the rehearsal does not know this call of {method} of cloudbase-init's layer for Windows: {error}"
            ) from error
        return {"value": function(*arguments, **named)}
    except NoSuchFile as error:
        return {"kind": "missing", "error": str(error)}
    except RefusedByWindows as error:
        return {"kind": "refused", "error": str(error)}
    except UnknownCommandError as error:
        around.unknown.append(str(error))
        return {"kind": UNKNOWN, "error": str(error)}
