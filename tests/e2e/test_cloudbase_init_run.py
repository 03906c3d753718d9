"""The child process with cloudbase-init: what the rehearsal does not know fails by name, and nothing of it is left."""

from __future__ import annotations

import os
import threading
import uuid
from typing import TYPE_CHECKING

import pytest

from imagegen.errors import BuildError
from imagegen.rehearsal.cloudbase_init.run import Runner
from tests.e2e.boot_support import make_image
from tests.e2e.cloudbase_init_support import configure
from tests.e2e.rehearsal_support import processes_with

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from imagegen.rehearsal.boot.boot import Image
    from tests.e2e.cloudbase_init_support import Configured

pytestmark = pytest.mark.e2e

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
    "no wait": ("system.execute_process_as_user('SYSTEM', ['cmd.exe'], wait=False)", "does not wait for"),
    "os": ("modules.os.link('a', 'b')", "os.link"),
    "a path": ("modules.os.path.realpath('a')", "os.path.realpath"),
    "the registry": ("import winreg; winreg.DeleteKey(1, 'a')", "winreg.DeleteKey"),
    "a library of Windows": ("import ctypes; ctypes.windll.kernel32.Beep(1, 1)", "kernel32.Beep"),
    "a module of older versions": ("import netifaces; netifaces.interfaces()", "netifaces.interfaces"),
}


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    return make_image("aws", tmp_path_factory.mktemp("image"))


@pytest.fixture
def mark() -> Iterator[str]:
    """What the environment of each child holds. None may be left, and no thread that answers one."""
    mark, threads = f"mark-{uuid.uuid4()}", threading.active_count()
    yield mark
    assert list(processes_with(mark)) == []
    assert threading.active_count() == threads


def run_plugin(image: Image, folder: Path, mark: str, body: str, timeout_s: float = 60) -> Configured:
    """Run cloudbase-init with one plugin, whose `execute` is `body`."""
    modules = folder / "modules"
    modules.mkdir()
    (modules / "somebody.py").write_text(_PLUGIN.format(body=body))
    runner = Runner(folder, {**os.environ, "MARK": mark}, (modules,), timeout_s=timeout_s)
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
    runner = Runner(tmp_path, {**os.environ, "MARK": mark}, (tmp_path / "modules",))
    found = configure(image, runner, b"", plugins="somebody.OwnPlugin")
    [unknown] = found.unknown
    assert unknown.endswith("somebody.OwnPlugin: it needs win32api")


def test_an_error_outside_the_plugins_is_the_reason_of_the_boot(image: Image, tmp_path: Path, mark: str) -> None:
    runner = Runner(tmp_path, {**os.environ, "MARK": mark})
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
    runner = Runner(tmp_path, {**os.environ, "MARK": mark}, (tmp_path,))
    with pytest.raises(BuildError, match="could not be started") as failed:
        configure(image, runner, b"")
    assert "this Python is broken" in failed.value.details[-1]
