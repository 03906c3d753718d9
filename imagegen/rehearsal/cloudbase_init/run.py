"""Runs cloudbase-init once: starts the child, answers its calls, and says how it ended."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import inspect
import json
import secrets
import socket
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from imagegen.build import process
from imagegen.errors import BuildError
from imagegen.rehearsal.boot.model import UnknownCommandError
from imagegen.rehearsal.cloudbase_init.channel import ADDRESS, UNKNOWN, Channel
from imagegen.rehearsal.cloudbase_init.os_layer import CONSTANTS, OsLayer
from imagegen.rehearsal.cloudbase_init.system import SystemCalls
from imagegen.rehearsal.machine.refusal import NoSuchFile, RefusedByWindows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from imagegen.rehearsal.cloudbase_init.system import Surroundings

_CHILD = "imagegen.rehearsal.cloudbase_init.child"
_POLL_S = 0.1
_HANDSHAKE_S = 5.0
_OS = "os_"
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

    def run(self, around: Surroundings, command_line: Sequence[str], proxy: str) -> int:
        """Run `command_line`, as a service of the machine has it, and return the exit code.

        Its HTTP requests go through `proxy`, which is the machine's network.
        """
        ended, secret = threading.Event(), secrets.token_hex(32)
        with contextlib.ExitStack() as closing:
            # Not a socket in a folder: the system limits such a path to about 100 characters.
            listener = closing.enter_context(socket.create_server(("127.0.0.1", 0)))
            answering = closing.enter_context(concurrent.futures.ThreadPoolExecutor(1))
            closing.callback(ended.set)
            answers = answering.submit(_answer_calls, listener, secret, around, ended)
            argv = [sys.executable, "-m", _CHILD, json.dumps(list(command_line))]
            environ = self._child_environ(proxy) | {ADDRESS: f"{listener.getsockname()[1]} {secret}"}
            try:
                completed = process.run(argv, environ=environ, timeout=self.timeout_s)
            except TimeoutError as overdue:
                raise BuildError(
                    f"cloudbase-init did not end within {self.timeout_s:g} s in the rehearsal"
                ) from overdue
            ended.set()
            answers.result()
        if not around.version:
            lines = (completed.stdout + completed.stderr).splitlines()[-5:]
            raise BuildError("cloudbase-init could not be started in the rehearsal", details=lines)
        if completed.returncode < 0:
            around.crash = f"it was killed by signal {-completed.returncode}"
        return completed.returncode

    def _child_environ(self, proxy: str) -> dict[str, str]:
        modules = [*self.modules, *_OWN]
        return {
            **self.environ,
            "PYTHONPATH": ":".join(map(str, modules)),
            **dict.fromkeys(("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"), proxy),
            **dict.fromkeys(("no_proxy", "NO_PROXY"), ""),
        }


def _answer_calls(listener: socket.socket, secret: str, around: Surroundings, ended: threading.Event) -> None:
    """Answer the calls of the child with the secret, until it closes its end or ends without having opened it."""
    listener.settimeout(_POLL_S)
    while not ended.is_set():
        try:
            end, _ = listener.accept()
        except TimeoutError:
            continue
        channel = Channel(end)
        with contextlib.closing(channel):
            if not _knows_secret(end, channel, secret):
                continue
            system, layer = SystemCalls(around), OsLayer(around)
            # A child that is killed reads no answer.
            with contextlib.suppress(ConnectionError):
                while (call := channel.receive()) is not None:
                    channel.send(_answer(call, system, layer, around))
        return


def _knows_secret(end: socket.socket, channel: Channel, secret: str) -> bool:
    """Whether the other end is the child, and not another program of this machine."""
    end.settimeout(_HANDSHAKE_S)
    try:
        return secrets.compare_digest(str(channel.receive()), secret)
    except (OSError, ValueError):
        return False
    finally:
        end.settimeout(None)


def _answer(call: Any, system: SystemCalls, layer: OsLayer, around: Surroundings) -> dict[str, Any]:  # noqa: ANN401 - JSON
    name, arguments, named = call
    if name == "constants":
        return {"value": CONSTANTS}
    owner, method = (layer, name.removeprefix(_OS)) if name.startswith(_OS) else (system, name)
    function = getattr(owner, method, None) if not method.startswith("_") else None
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
