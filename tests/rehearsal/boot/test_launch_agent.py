"""EC2Launch on a node: it follows its configuration, and runs the scripts in user data whatever that says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imagegen.base.contents import ROLES
from imagegen.rehearsal.boot.model import UnknownCommandError
from imagegen.rehearsal.boot.windows_setup import run_setup
from imagegen.rehearsal.clouds.aws.launch_agent import CONFIG, PROGRAM, RUN_ONCE, SCRIPTS, run_launch_agent
from tests.rehearsal.boot.conftest import put_file

if TYPE_CHECKING:
    from imagegen.rehearsal.boot.shell import Shell
    from imagegen.rehearsal.machine import Machine

SHIPPED = ROLES.parents[1] / "imagegen" / "providers" / "aws" / "catalogue" / "agent-config.yml"
SCRIPTED = b"""#cloud-config
<powershell>
Get-Process
</powershell>
<script>
@echo one> C:\\Windows\\Temp\\one.txt
</script>
"""


def names(machine: Machine) -> list[str]:
    return [name for name in machine.files.names(r"C:\Windows\Temp") if name.endswith(".txt")]


@pytest.fixture
def node(aws: Machine, shell: Shell) -> Machine:
    """A machine of EC2 after Windows Setup, with the configuration that imagegen writes."""
    put_file(aws, CONFIG, SHIPPED.read_bytes())
    run_setup(aws, shell)
    return aws


def test_it_sets_a_random_password_once_and_no_name(node: Machine, shell: Shell) -> None:
    user = node.accounts.need_user("Administrator")
    user.enabled, password, name = False, user.password, node.host_name
    assert run_launch_agent(node, b"#cloud-config\n", shell.run) == []
    assert user.enabled
    assert user.password != password
    second = user.password
    assert run_launch_agent(node, b"", shell.run) == []
    node.restart()
    assert (user.password, node.host_name) == (second, name)


def test_it_runs_scripts_of_user_data_whatever_its_configuration_says(node: Machine, shell: Shell) -> None:
    assert run_launch_agent(node, SCRIPTED, shell.run) == ["script", "powershell"]
    assert names(node) == ["one.txt"]
    assert node.files.names(SCRIPTS) == []
    for name in names(node):
        node.files.remove(rf"C:\Windows\Temp\{name}")
    assert run_launch_agent(node, SCRIPTED, shell.run) == [], "at the first start only"
    assert run_launch_agent(node, SCRIPTED + b"<persist>true</persist>", shell.run) == ["script", "powershell"]
    assert names(node) == ["one.txt"]


def test_without_its_service_it_does_nothing(node: Machine, shell: Shell) -> None:
    node.services.stop("Amazon EC2Launch")
    assert run_launch_agent(node, SCRIPTED, shell.run) == []
    assert not node.files.exists(RUN_ONCE)


@pytest.mark.parametrize("line", ["internal other --username Administrator", "internal randomize-password", "run"])
def test_its_program_does_nothing_else(node: Machine, shell: Shell, line: str) -> None:
    with pytest.raises(UnknownCommandError, match=line):
        shell.run_line(node, f'"{PROGRAM}" {line}')


def test_its_program_needs_the_account(node: Machine, shell: Shell) -> None:
    ended = shell.run_line(node, f'"{PROGRAM}" internal randomize-password --username nobody')
    assert (ended.exit_code, "there is no account nobody" in ended.output) == (1, True)


@pytest.mark.parametrize(
    ("old", "new", "user_data", "message"),
    [
        ("startSsm", "setHostName", b"", "the task setHostName"),
        ("type: random", "type: static", b"", "only with a random password"),
        ("stage: boot", "stage: later", b"", "the stage later"),
        ("config:", "other:", b"", "cannot read"),
        ("", "", b"version: 1.0\ntasks:\n- task: executeScript\n", "a list of tasks"),
    ],
)
def test_what_it_does_not_know_is_refused(
    node: Machine, shell: Shell, old: str, new: str, user_data: bytes, message: str
) -> None:
    node.files.write(CONFIG, SHIPPED.read_text().replace(old, new).encode())
    with pytest.raises(UnknownCommandError, match=message):
        run_launch_agent(node, user_data, shell.run)
