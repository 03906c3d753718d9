"""What the real cloudbase-init does not do with user data, in each of its versions; docs/operator-guide.md says so."""

from __future__ import annotations

import base64
import functools
import gzip
from typing import TYPE_CHECKING

import pytest

from imagegen.rehearsal.boot.boot import boot_image
from imagegen.rehearsal.boot.user_data import UserData
from imagegen.rehearsal.machine.access import ADMINISTRATORS, effective
from tests.e2e.boot_support import make_image
from tests.e2e.cloudbase_init_support import VERSIONS, configure, make_runner

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from imagegen.rehearsal.boot.booted import Image
    from tests.e2e.cloudbase_init_support import Configured

pytestmark = pytest.mark.e2e

TOKEN = "abcdef.0123456789abcdef"  # noqa: S105 - of no cluster
TEXT = b"the same text\n" * 20
ZIPPED = base64.b64encode(gzip.compress(TEXT, mtime=0)).decode()
SERIAL = {"logging_serial_port_settings": "COM1,115200,N,8"}
CLOUD_CONFIG = f"""#cloud-config
bootcmd:
  - cmd /c echo early > C:\\Windows\\Temp\\early.txt
write_files:
- content: {TOKEN}
- path: C:\\k\\zipped.txt
  encoding: gzip
  content: {ZIPPED}
- path: C:\\k\\unzipped.txt
  encoding: gzip+base64
  content: {ZIPPED}
- path: C:\\k\\owned.txt
  owner: capi:Users
  permissions: '0600'
  content: text
- path: C:\\k\\template.txt
  content: '{{{{ ds.meta_data["local_hostname"] }}}}'
users:
- name: operator
  lock_passwd: true
  sudo: ALL=(ALL) NOPASSWD:ALL
runcmd:
- cd C:\\none
- echo after> C:\\Windows\\Temp\\after.txt
- exit 5
"""
PARTS = {
    "text/cloud-config": CLOUD_CONFIG,
    "text/cloud-boothook": "#!/bin/sh\necho hook > C:\\Windows\\Temp\\hook.txt\n",
    "text/x-shellscript": "rem cmd\necho unnamed > C:\\Windows\\Temp\\unnamed.txt\n",
    'text/x-shellscript; name="named.cmd"': "@echo off\necho named > C:\\Windows\\Temp\\named.txt\n",
}


def multi_part(parts: dict[str, str]) -> bytes:
    head = 'Content-Type: multipart/mixed; boundary="next"\nMIME-Version: 1.0\n\n'
    body = "".join(f"--next\nContent-Type: {kind}\nMIME-Version: 1.0\n\n{text}\n" for kind, text in parts.items())
    return f"{head}{body}--next--\n".encode()


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    return make_image("aws", tmp_path_factory.mktemp("image"))


@pytest.fixture(scope="module")
def configured(
    image: Image, cloudbase_init_cache: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Configured]:
    """A machine that a version of cloudbase-init set up with all of the above, in several parts."""

    @functools.cache
    def run(version: str) -> Configured:
        runner = make_runner(version, cloudbase_init_cache, tmp_path_factory.mktemp("node"))
        # An option that cloudbase-init does not have.
        return configure(image, runner, multi_part(PARTS), verbose="true")

    return run


@pytest.mark.parametrize("version", VERSIONS)
def test_verbose_is_no_option(configured: Callable[[str], Configured], version: str) -> None:
    found = configured(version)
    assert found.unknown == ()
    assert "Plugins execution done" in found.log
    assert " DEBUG " not in found.log


@pytest.mark.parametrize("version", VERSIONS)
def test_a_file_without_a_path_is_logged_with_its_content(
    configured: Callable[[str], Configured], version: str
) -> None:
    [line] = [line for line in configured(version).log.splitlines() if TOKEN in line]
    assert " WARNING " in line
    assert "Missing required keys from file information" in line


@pytest.mark.parametrize("version", VERSIONS)
def test_gzip_is_unpacked_only_where_the_encoding_says_base64_too(
    configured: Callable[[str], Configured], version: str
) -> None:
    found = configured(version)
    assert found.machine.files.read(r"C:\k\zipped.txt") == ZIPPED.encode()
    assert "Fail to decompress gzip content." in found.log
    assert found.machine.files.read(r"C:\k\unzipped.txt") == TEXT


@pytest.mark.parametrize("version", VERSIONS)
def test_a_script_without_a_file_name_fails_and_one_with_a_name_runs(
    configured: Callable[[str], Configured], version: str
) -> None:
    found = configured(version)
    assert "Exception during multipart part handling: text/x-shellscript, None" in found.log
    assert "TypeError" in found.log
    assert not found.machine.files.exists(r"C:\Windows\Temp\unnamed.txt")
    assert found.machine.files.read(r"C:\Windows\Temp\named.txt").strip() == b"named"


@pytest.mark.parametrize("version", VERSIONS)
def test_bootcmd_owner_lock_passwd_and_sudo_are_not_done(configured: Callable[[str], Configured], version: str) -> None:
    found = configured(version)
    files, accounts = found.machine.files, found.machine.accounts
    assert "Plugin 'bootcmd' is currently not supported" in found.log
    assert not files.exists(r"C:\Windows\Temp\early.txt")
    # It has the rights of its folder, as a file without `owner` and `permissions` has.
    assert effective(files, r"C:\k\owned.txt").entries == effective(files, r"C:\k\unzipped.txt").entries
    operator = accounts.need_user("operator")
    assert operator.enabled
    assert ADMINISTRATORS not in accounts.token("operator")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_command_that_fails_stops_nothing_and_fails_nothing(
    configured: Callable[[str], Configured], version: str
) -> None:
    found = configured(version)
    assert found.machine.files.exists(r"C:\Windows\Temp\after.txt")
    assert "User_data script ended with return code: 5" in found.log
    assert "Plugins execution done" in found.log


@pytest.mark.parametrize("version", VERSIONS)
def test_templates_are_left_as_they_are_and_a_boothook_does_not_run(
    configured: Callable[[str], Configured], version: str
) -> None:
    found = configured(version)
    assert found.machine.files.read(r"C:\k\template.txt") == b'{{ ds.meta_data["local_hostname"] }}'
    assert "text/cloud-boothook content is currently not supported" in found.log
    assert not found.machine.files.exists(r"C:\Windows\Temp\hook.txt")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_template_of_one_part_is_rendered(
    image: Image, cloudbase_init_cache: Path, tmp_path: Path, version: str
) -> None:
    text = (
        b"## template: jinja\n#cloud-config\nwrite_files:\n- {path: 'C:/k/a.txt', content: '{{ v1.local_hostname }}'}\n"
    )
    found = configure(image, make_runner(version, cloudbase_init_cache, tmp_path), text)
    assert found.machine.files.read(r"C:\k\a.txt") == b"ip-10-0-0-7.ec2.internal"


@pytest.mark.parametrize("debug", ["false", "true"])
@pytest.mark.parametrize("version", VERSIONS)
def test_the_serial_port_gets_the_output_of_scripts_only_with_debug(
    image: Image, cloudbase_init_cache: Path, tmp_path: Path, version: str, debug: str
) -> None:
    runner = make_runner(version, cloudbase_init_cache, tmp_path)
    text = f"#cloud-config\nruncmd:\n- echo {TOKEN}\n".encode()
    found = configure(image, runner, text, **SERIAL, debug=debug)
    assert b"Plugins execution done" in found.console["COM1"]
    assert (TOKEN.encode() in found.console["COM1"]) == (debug == "true")
    assert (TOKEN in found.log) == (debug == "true")


def test_a_boot_fails_by_the_secret_in_the_log(image: Image, cloudbase_init_cache: Path, tmp_path: Path) -> None:
    text = f"#cloud-config\nwrite_files:\n- content: {TOKEN}\n".encode()
    runner = make_runner(VERSIONS[-1], cloudbase_init_cache, tmp_path)
    booted = boot_image(image, runner, make_data=lambda _: UserData(text, (TOKEN,)))
    [fault] = [fault for fault in booted.faults if fault.startswith("secrets")]
    assert "B8" in fault
    assert "cloudbase-init.log" in fault
