"""Reads the configuration with which the service of cloudbase-init runs, and judges the first boot."""

from __future__ import annotations

import configparser
import dataclasses
import gzip
import itertools
import ntpath
import re
from typing import TYPE_CHECKING, Final

from imagegen.boot.check import Check, say, some
from imagegen.boot.log import USER_DATA, find_complaints, find_user_data_complaints, has_metadata, judge_plugins

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imagegen.boot.log import PluginEnd
    from imagegen.boot.node import Finding, Node

SERVICE: Final = "cloudbase-init"
HOST_NAME_PLUGIN: Final = "SetHostNamePlugin"
# SetupComplete.cmd writes the output of first-boot.ps1 to it.
FIRST_BOOT_LOG: Final = r"C:\Windows\Setup\Scripts\first-boot.log"
USER_DATA_FOLDER: Final = r"C:\run"
_REPORTS: Final = ("metadata_report_provisioning_started", "metadata_report_provisioning_completed")
# What cloudbase-init reads as true.
_ON: Final = ("true", "1", "on", "yes")
_NETBIOS_LENGTH: Final = 15
_GZIP: Final = b"\x1f\x8b"
_TEMPLATE: Final = re.compile(rb"\{\{.*?\}\}")
# The key `name` of a mapping: items of the lists in user data have names of other things.
_NODE_NAME: Final = re.compile(rb"(?m)^ +name: *['\"]?(?P<name>[^\n]*?)['\"]?[ \r]*$")


@dataclasses.dataclass(frozen=True)
class Settings:
    """The configuration of the service. Without a file that can be read it is empty."""

    conf: str
    log: str
    plugins: tuple[str, ...]
    """The configured plugins, by class name."""
    services: tuple[str, ...]
    """The configured metadata services, by class name."""
    unreported: tuple[str, ...]
    """The options for reports to the cloud that are off. None where the configuration cannot be read."""
    debug: bool


def words(command: str) -> list[str]:
    """The arguments of a command line without quotes."""
    return [word.replace('"', "") for word in re.findall(r'(?:"[^"]*"|[^\s"])+', command)]


def read_text(node: Node, path: str) -> str:
    """The text of a file; empty if there is none."""
    return (node.read(path) or b"").decode("utf-8", "replace") if path else ""


def read_settings(node: Node) -> Settings:
    """Read the configuration that the service's command line names."""
    service = node.service(SERVICE)
    following = dict(itertools.pairwise(words(service.command if service else "")))
    conf = following.get("--config-file", "")
    text = read_text(node, conf)
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(text)
    except configparser.Error:
        # cloudbase-init itself ends with an error at such a file.
        text = ""
    values = parser["DEFAULT"]

    def is_on(name: str) -> bool:
        return values.get(name, "").strip().lower() in _ON

    return Settings(
        conf=conf,
        log=ntpath.join(values.get("logdir", ""), values.get("logfile", "")),
        plugins=_class_names(values.get("plugins", "")),
        services=_class_names(values.get("metadata_services", "")),
        unreported=tuple(name for name in _REPORTS if text and not is_on(name)),
        debug=is_on("debug"),
    )


def _class_names(paths: str) -> tuple[str, ...]:
    return tuple(name for path in paths.split(",") if (name := path.rpartition(".")[2].strip()))


def plugin_ends(node: Node) -> dict[str, PluginEnd]:
    """What each configured plugin has done on this machine, in their order."""
    return judge_plugins(read_settings(node).plugins, node.first.log)


def wanted_host_name(node: Node) -> str:
    """The name that the machine must have."""
    label = node.given.host_name.partition(".")[0]
    return label[:_NETBIOS_LENGTH] if node.spec.config.host_names.netbios_compatible else label


def wanted_node(node: Node) -> str:
    """The name under which the machine has to join: that of the user data, and without one its own."""
    text = node.given.user_data
    plain = gzip.decompress(text) if text.startswith(_GZIP) else text
    found = _NODE_NAME.search(plain)
    if found is None:
        return wanted_host_name(node).lower()
    return node.given.host_name if b"{{" in found["name"] else found["name"].decode()


def _setup(node: Node) -> Iterator[Finding]:
    found = node.first
    if found.setup_failure:
        yield found.setup_failure
    elif not found.ran_complete_script:
        yield say(
            "the image has no SetupComplete.cmd, so Windows Setup starts neither first-boot.ps1 nor cloudbase-init"
        )
    elif node.read(FIRST_BOOT_LOG) is None:
        yield say("SetupComplete.cmd did not start first-boot.ps1")
    elif lines := [line.strip() for line in read_text(node, FIRST_BOOT_LOG).splitlines() if line.strip()]:
        reasons = (line.removeprefix("failed: ") for line in lines)
        yield say(f"first-boot.ps1 could not do everything: {some(reasons)}")


def _cloudbase_init(node: Node) -> Iterator[Finding]:
    found = node.first
    if not found.version:
        yield say(f"cloudbase-init did not run: {found.crash or 'nothing started its service'}")
        return
    if found.started_early:
        yield say("cloudbase-init was started before Windows Setup had ended: its service is automatic in the image")
    complaints = find_complaints(found.log, has_keys=node.given.has_keys)
    yield from complaints
    if not has_metadata(found.log):
        refused = node.given.unanswered
        answers = f". The cloud refused its requests: {some(refused)}" if refused else ""
        configured = ", ".join(read_settings(node).services) or "none"
        yield say(f"cloudbase-init found no metadata service that answers. Configured: {configured}{answers}")
        return
    if found.crash:
        yield say(f"cloudbase-init did not come to its end: {found.crash}")
        return
    if found.restarts_forever:
        yield say("cloudbase-init asks for a restart at every start")
    elif not found.is_done:
        yield say("cloudbase-init did not come to its end")
    named = " ".join(one.text for one in complaints)
    for name, end in plugin_ends(node).items():
        # The check of user data judges this one.
        if end != "done" and name != USER_DATA and name not in named:
            yield say(f"{name} failed" if end == "failed" else f"{name} did not run")


def _user_data(node: Node) -> Iterator[Finding]:
    found = node.first
    reasons = [
        say(
            f"a template in {path} was not rendered: cloudbase-init renders templates in user data of one part "
            "only. Write the values out",
            "B2",
        )
        for path in node.below(USER_DATA_FOLDER)
        if _TEMPLATE.search(node.read(path) or b"")
    ]
    reasons += [
        say(f"the <{tag}> script of the user data ran twice: the cloud's own agent runs such a script too", "B5")
        for tag in dict.fromkeys(found.scripts_of_agents)
    ]
    reasons += find_user_data_complaints(found.log)
    yield from reasons
    end = plugin_ends(node).get(USER_DATA)
    if not found.version:
        yield say("no user data ran, because cloudbase-init did not run")
    elif end is None:
        yield say(f"no user data ran: the list of plugins has no {USER_DATA}")
    elif end == "not run" or (end == "failed" and not reasons):
        yield say(f"{USER_DATA} failed" if end == "failed" else f"no user data ran: {USER_DATA} did not run")


def _ready(node: Node) -> Iterator[Finding]:
    refusal, off = node.given.refusal, read_settings(node).unreported
    if not node.given.wants_report or not refusal:
        return
    if off and node.first.version:
        yield say(f"cloudbase-init does not report to the cloud: {' and '.join(off)} must be true", "B1")
    yield say(f"the cloud says: {refusal}")


def _host_name(node: Node) -> Iterator[Finding]:
    wanted = wanted_host_name(node)
    if node.host_name.lower() == wanted.lower():
        return
    if node.first.version and HOST_NAME_PLUGIN not in read_settings(node).plugins:
        yield say(f"the list of plugins has no {HOST_NAME_PLUGIN}")
    yield say(f"the host name is {node.host_name}, and the cloud gave {wanted}")


def _signed_scripts(node: Node) -> Iterator[Finding]:
    if node.refused:
        yield say(some(f"{path}: {why}" for path, why in node.refused.items()))


SETUP: Final = Check("setup", "Windows Setup ended, and SetupComplete.cmd ran to its end", _setup)
CHECKS: Final = (
    Check("cloudbase-init", "cloudbase-init ran once and ended", _cloudbase_init),
    Check("user-data", "the user data ran", _user_data),
    Check("ready", "the cloud has nothing against the machine", _ready),
    Check("host-name", "the host name is the cloud's", _host_name),
    Check(
        "signed-scripts",
        "PowerShell refused no script",
        _signed_scripts,
        lambda spec: spec.facts.all_signed,
    ),
)
