"""The child process with cloudbase-init: what the rehearsal does not know fails by name, and nothing of it is left."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from imagegen.base.errors import BuildError
from imagegen.build import process
from imagegen.rehearsal.cloudbase_init import run
from imagegen.rehearsal.cloudbase_init.channel import ADDRESS
from imagegen.rehearsal.cloudbase_init.run import Runner
from tests.conftest import REPOSITORY
from tests.e2e.boot_support import make_image
from tests.e2e.cloudbase_init_support import configure
from tests.e2e.rehearsal_support import processes_with

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from imagegen.rehearsal.boot.booted import Image
    from tests.e2e.cloudbase_init_support import Configured

pytestmark = pytest.mark.e2e

# Only a test that fails waits so long.
_HEARD_WITHIN_S = 30

# A plugin of somebody else, as cloudbase-init loads it by the name in its configuration.
_PLUGIN = """\
from cloudbaseinit.osutils import factory
from cloudbaseinit.plugins.common import base, userdatautils

class OwnPlugin(base.BasePlugin):
    def execute(self, service, shared_data):
        system, modules = factory.get_os_utils(), userdatautils
{body}
        return base.PLUGIN_EXECUTION_DONE, False
"""
_SWALLOWED = """\
        try:
            {statement}
        except Exception:
            pass
"""
# A statement, and how the rehearsal names what it does not know of it.
_UNKNOWN = {
    "a method": ("system.enable_trim(True)", "enable_trim of cloudbase-init's layer"),
    "a later method": ("system.method_of_a_later_version()", "method_of_a_later_version of cloudbase-init's layer"),
    "an argument": ("system.reboot(force=True)", "reboot of cloudbase-init's layer for Windows: got an unexpected"),
    "a private name": ("system.__getattr__('_around')()", "_around of cloudbase-init's layer"),
    "a constant": ("system.SERVICE_STATUS_UNKNOWN", "constant SERVICE_STATUS_UNKNOWN of cloudbase-init's layer"),
    "an argument of another type": ("system.user_exists({1})", "this call of user_exists: Object of type set"),
    "no wait": ("system.execute_process_as_user('SYSTEM', ['cmd.exe'], wait=False)", "does not wait for"),
    "os": ("modules.os.link('a', 'b')", "os.link"),
    "an argument of os": ("modules.os.remove('a', dir_fd=1)", "this call of os.remove"),
    "a mode": ("modules.open('a', 'r+')", "open in mode r+"),
    "a path": ("modules.os.path.realpath('a')", "os.path.realpath"),
    "the registry": ("import winreg; winreg.DeleteKey(1, 'a')", "winreg.DeleteKey"),
    "a library of Windows": ("import ctypes; ctypes.windll.kernel32.Beep(1, 1)", "kernel32.Beep"),
    "a module of older versions": ("import netifaces; netifaces.interfaces()", "netifaces.interfaces"),
}


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    return make_image("aws", tmp_path_factory.mktemp("image"))


@pytest.fixture
def mark(tmp_path: Path) -> Iterator[str]:
    """What the environment of each child holds: the folder for its temporary files.

    No child may be left, and no thread that answers one.
    """
    folder, threads = tmp_path / f"mark-{uuid.uuid4()}", threading.active_count()
    folder.mkdir()
    yield str(folder)
    assert list(processes_with(str(folder))) == []
    assert threading.active_count() == threads


def marked(mark: str) -> dict[str, str]:
    return {**os.environ, "TMPDIR": mark}


def run_plugin(
    image: Image, folder: Path, mark: str, body: str, timeout_s: float = 60, environ: Mapping[str, str] | None = None
) -> Configured:
    """Run cloudbase-init with one plugin, whose `execute` is `body`."""
    modules = folder / "modules"
    modules.mkdir()
    (modules / "somebody.py").write_text(_PLUGIN.format(body=body))
    runner = Runner(folder, {**marked(mark), **(environ or {})}, (modules,), timeout_s=timeout_s)
    return configure(image, runner, b"", plugins="somebody.OwnPlugin")


@pytest.mark.parametrize(("statement", "named"), _UNKNOWN.values(), ids=_UNKNOWN.keys())
def test_what_the_rehearsal_does_not_know_is_reported_even_if_the_error_is_swallowed(
    image: Image, tmp_path: Path, mark: str, statement: str, named: str
) -> None:
    found = run_plugin(image, tmp_path, mark, _SWALLOWED.format(statement=statement))
    assert "Plugins execution done" in found.log
    [unknown] = found.unknown
    assert named in unknown


def test_a_plugin_that_needs_what_only_windows_has_is_named(image: Image, tmp_path: Path, mark: str) -> None:
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "somebody.py").write_text("import cloudbaseinit.utils.windows.x509 as x\nimport win32api\n")
    runner = Runner(tmp_path, marked(mark), (tmp_path / "modules",))
    found = configure(image, runner, b"", plugins="somebody.OwnPlugin")
    [unknown] = found.unknown
    assert unknown.endswith("somebody.OwnPlugin: it needs win32api")


def test_an_error_outside_the_plugins_is_the_reason_of_the_boot(image: Image, tmp_path: Path, mark: str) -> None:
    runner = Runner(tmp_path, marked(mark))
    found = configure(image, runner, b"", logdir=r"C:\missing")
    assert found.crashes == (r"FileNotFoundError: cannot find C:\missing",)


def test_a_killed_child_is_named(image: Image, tmp_path: Path, mark: str) -> None:
    found = run_plugin(image, tmp_path, mark, "        import os; os.kill(os.getpid(), 9)")
    assert found.crashes == ("it was killed by signal 9",)


def test_a_silent_child_ends_in_time(image: Image, tmp_path: Path, mark: str) -> None:
    with pytest.raises(BuildError, match="did not end within 2 s"):
        run_plugin(image, tmp_path, mark, "        import threading; threading.Event().wait()", timeout_s=2)


def test_a_child_that_cannot_start_says_why(image: Image, tmp_path: Path, mark: str) -> None:
    # Python takes it for its own module.
    (tmp_path / "socket.py").write_text("raise ImportError('this Python is broken')\n")
    runner = Runner(tmp_path, marked(mark), (tmp_path,))
    with pytest.raises(BuildError, match="could not be started") as failed:
        configure(image, runner, b"")
    assert "this Python is broken" in failed.value.details[-1]


def test_modules_of_the_current_folder_are_not_pythons(
    image: Image, tmp_path: Path, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "current").mkdir()
    (tmp_path / "current" / "json.py").write_text("raise ImportError('a file of the user')\n")
    monkeypatch.chdir(tmp_path / "current")
    assert "Plugins execution done" in run_plugin(image, tmp_path, mark, "").log


def test_the_child_knows_nothing_of_the_user(image: Image, tmp_path: Path, mark: str) -> None:
    users = {
        "AWS_SECRET_ACCESS_KEY": "a-secret",
        "HTTPS_PROXY": "http://user:a-secret@proxy.example.com",
        # An option for oslo.config, and the language of its messages.
        "OS_DEFAULT__PLUGINS": "cloudbaseinit.plugins.common.mtu.MTUPlugin",
        "LANGUAGE": "de",
        "NETRC": str(tmp_path / "netrc"),
        "PYTHONINSPECT": "1",
    }
    seen = tmp_path / "seen.json"
    body = f"        import json, os, sys; json.dump([dict(os.environ), sys.orig_argv], open({str(seen)!r}, 'w'))"
    assert "Plugins execution done" in run_plugin(image, tmp_path, mark, body, environ=users).log
    environ, argv = json.loads(seen.read_text())
    assert environ["NETRC"] == os.devnull
    assert environ["TMPDIR"] == mark
    assert {name for name, value in environ.items() if value and "proxy" in name.lower()} == {
        *("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY")
    }
    assert set(environ) & {*users, ADDRESS} == {"NETRC"}
    assert [word for word in (*argv, *environ.values()) if "a-secret" in word] == []
    # Python with two options, and the command line of the machine: no secret opens the channel by its arguments.
    assert (argv[1:4], len(argv)) == (["-P", "-m", "imagegen.rehearsal.cloudbase_init.child"], 5)
    assert json.loads(argv[4])[0].endswith("cloudbase-init.exe")


def test_what_the_child_prints_without_end_is_not_kept(
    image: Image, tmp_path: Path, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[str] = []
    real = process.stream

    def stream(*arguments: Any, on_line: Any, **named: Any) -> int:  # noqa: ANN401 - as the original
        def keep(line: str) -> None:
            kept.append(line)
            on_line(line)

        return real(*arguments, on_line=keep, **named)

    monkeypatch.setattr(process, "stream", stream)
    body = "        import os, sys; [os.write(number, b'x' * 65535 + b'\\n') for number in (1, 2) * 50]; print('y')"
    assert "Plugins execution done" in run_plugin(image, tmp_path, mark, body).log
    assert kept == []


# What it sends, and how long it may take for it: only silence is waited for.
@pytest.mark.parametrize(
    ("sent", "patience_s"),
    [(b"", 0.3), (b"x" * 1000, 600), (b'"a wrong secret"\n', 600), (b"\xff\n", 600), (b"{}\n", 600)],
)
def test_another_program_at_the_channel_is_not_answered_and_does_not_stop_the_child(
    image: Image, tmp_path: Path, mark: str, monkeypatch: pytest.MonkeyPatch, sent: bytes, patience_s: float
) -> None:
    real, heard = process.stream, []

    def stream(*arguments: Any, environ: Mapping[str, str], **named: Any) -> int:  # noqa: ANN401 - as the original
        port = int(environ[ADDRESS].split()[0])
        with socket.create_connection(("127.0.0.1", port)) as other:
            other.sendall(sent)
            code = real(*arguments, environ=environ, **named)
            other.settimeout(1)
            try:
                heard.append(other.recv(1000))
            except ConnectionResetError:
                heard.append(b"")
        return code

    monkeypatch.setattr(run, "_HANDSHAKE_S", patience_s)
    monkeypatch.setattr(process, "stream", stream)
    assert "Plugins execution done" in run_plugin(image, tmp_path, mark, "").log
    assert heard == [b""]


class _Pipe:
    """A named pipe of a child, from which its words and its end are heard."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "pipe"
        os.mkfifo(self.path)
        # Without O_NONBLOCK, this would wait for a child that may never come.
        self._end = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)

    def read(self) -> bytes:
        """What somebody wrote, or nothing if everybody who could is gone."""
        ready, _, _ = select.select([self._end], [], [], _HEARD_WITHIN_S)
        assert ready, "nothing was written, and somebody has the pipe open or nobody had"
        return os.read(self._end, 100)

    def is_held(self) -> bool:
        """Whether somebody has it open who wrote nothing more."""
        return not select.select([self._end], [], [], 0)[0]

    def close(self) -> None:
        os.close(self._end)


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[_Pipe]:
    pipe = _Pipe(tmp_path)
    yield pipe
    pipe.close()


def test_a_program_that_the_child_left_behind_does_not_hold_the_boot(
    image: Image, tmp_path: Path, mark: str, pipe: _Pipe
) -> None:
    # In a session of its own it outlives the child, with the child's end of the channel. It ends some day.
    body = f"""\
        import os, signal, threading
        writing = os.open({str(pipe.path)!r}, os.O_WRONLY)
        if not (left := os.fork()):
            os.setsid()
            signal.alarm({_HEARD_WITHIN_S})
            threading.Event().wait()
        os.write(writing, str(left).encode())"""
    assert "Plugins execution done" in run_plugin(image, tmp_path, mark, body).log
    left = int(pipe.read())
    assert pipe.is_held()
    os.kill(left, signal.SIGKILL)
    assert pipe.read() == b""


# A parent of its own, which is killed or interrupted.
_PARENT = """\
import os, pathlib, sys
from tests.e2e.test_cloudbase_init_run import make_image, run_plugin

folder = pathlib.Path(sys.argv[1])
run_plugin(make_image("aws", folder / "image"), folder, os.environ["TMPDIR"], sys.argv[2])
"""
_HANGS = """\
        import os, threading
        os.write(os.open({pipe!r}, os.O_WRONLY), b"here")
        threading.Event().wait()"""
# The machine starts cloudbase-init once more, as a service with an account of its own does, and that one hangs.
_STARTS_ONE_THAT_HANGS = """\
        import json, os, sys
        if not os.path.exists({pipe!r} + "-1"):
            os.mkdir({pipe!r} + "-1")
            system.execute_process(json.loads(sys.argv[1]), False)
            return
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("body", [_HANGS, _STARTS_ONE_THAT_HANGS + _HANGS], ids=["one", "one that another started"])
def test_no_child_outlives_its_parent(
    tmp_path: Path, mark: str, pipe: _Pipe, body: str, number: signal.Signals
) -> None:
    words = [sys.executable, "-c", _PARENT, str(tmp_path), body.format(pipe=str(pipe.path))]
    environ = {**marked(mark), "PYTHONPATH": str(REPOSITORY)}
    with subprocess.Popen(words, env=environ, stderr=subprocess.PIPE) as parent:  # noqa: S603 - this Python
        try:
            assert pipe.read() == b"here"
            # The parent, its supervisors and the children: what is counted afterwards can be seen at all.
            assert len(list(processes_with(mark))) >= 2
            parent.send_signal(number)
            assert pipe.read() == b""
            parent.communicate(timeout=_HEARD_WITHIN_S)
        finally:
            parent.kill()
    assert parent.returncode != 0
    _assert_nothing_left(mark)


def _assert_nothing_left(mark: str) -> None:
    """A supervisor ends after its program."""
    deadline, pause = time.monotonic() + _HEARD_WITHIN_S, threading.Event()
    while left := list(processes_with(mark)):
        assert time.monotonic() < deadline, left
        pause.wait(0.05)
