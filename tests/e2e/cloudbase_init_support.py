"""Shared code of the tests that run the real cloudbase-init: its versions side by side, and a node that it sets up."""

from __future__ import annotations

import dataclasses
import io
import os
from typing import TYPE_CHECKING

from imagegen.base.console import Console
from imagegen.rehearsal.boot.link_local import LinkLocal
from imagegen.rehearsal.boot.node import Node, Outside
from imagegen.rehearsal.cloudbase_init.run import Runner
from imagegen.rehearsal.cloudbase_init.versions import choose_version
from imagegen.rehearsal.clouds import guest_agents, stand_in

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from imagegen.rehearsal.boot.booted import Image
    from imagegen.rehearsal.machine.windows import Machine

_FOLDER = r"C:\Program Files\Cloudbase Solutions\Cloudbase-Init"
_CONF, _LOG = rf"{_FOLDER}\conf\cloudbase-init.conf", rf"{_FOLDER}\log\cloudbase-init.log"
# The oldest that people still install, the one that the catalogue calls the newest, and the newest on PyPI.
VERSIONS = ("1.1.4", "1.1.8", "1.1.9")


def make_runner(version: str, cache: Path, scratch: Path) -> Runner:
    """A runner of a version, from PyPI where it is not the installed one."""
    environ = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    choice = choose_version(version, environ=environ, console=Console(io.StringIO(), plain=True))
    assert (choice.version, choice.reason) == (version, "")
    return Runner(scratch, os.environ, choice.modules)


@dataclasses.dataclass(frozen=True)
class Configured:
    """A machine after its first boot, without a cluster."""

    machine: Machine
    log: str
    console: Mapping[str, bytes]
    unknown: tuple[str, ...]
    crashes: tuple[str, ...]


def configure(image: Image, runner: Runner, user_data: bytes, **options: str) -> Configured:
    """Boot a node with this user data, and with these `options` for cloudbase-init's service."""
    cloud = stand_in(image.spec.provider)
    instance = cloud.make_instance(user_data)
    machine = image.machine.copy(runner.scratch / "node")
    platform = cloud.make_platform(instance, lambda: machine.age_s)
    conf = machine.files.read(_CONF).decode().splitlines()
    kept = [line for line in conf if line.partition("=")[0].strip() not in options]
    changed = [f"{name}={value}" for name, value in options.items()]
    at = kept.index("[DEFAULT]") + 1
    machine.files.write(_CONF, "\n".join([*kept[:at], *changed, *kept[at:]]).encode())
    agents = guest_agents(image.spec.provider)
    with LinkLocal(platform.hosts) as link:
        node = Node(machine, instance, Outside(platform, runner, link.url), agents)
        node.start_first()
    log = machine.files.read(_LOG).decode("utf-8", "replace") if machine.files.is_file(_LOG) else ""
    return Configured(machine, log, node.runs.console, tuple(node.runs.unknown), tuple(node.runs.crashes))
