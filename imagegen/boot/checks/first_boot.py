"""What must be so after the first boot: Windows Setup, cloudbase-init, its user data and its report to the cloud."""

from collections.abc import Iterator
from typing import Final

from imagegen.boot.check import Check, say, some
from imagegen.boot.facts import Finding, NodeFacts
from imagegen.boot.log import USER_DATA

_HOST_NAME: Final = "SetHostNamePlugin"


def _setup(facts: NodeFacts) -> Iterator[Finding]:
    found = facts.setup
    if found.failure:
        yield found.failure
    elif not found.ran_complete_script:
        yield say(
            "the image has no SetupComplete.cmd, so Windows Setup starts neither first-boot.ps1 nor cloudbase-init"
        )
    elif found.first_boot is None:
        yield say("SetupComplete.cmd did not start first-boot.ps1")
    elif found.first_boot:
        yield say(f"first-boot.ps1 could not do everything: {some(found.first_boot)}")


def _cloudbase_init(facts: NodeFacts) -> Iterator[Finding]:
    found = facts.cloudbase_init
    if not found.version:
        yield say(f"cloudbase-init did not run: {found.crash or 'nothing started its service'}")
        return
    if found.started_early:
        yield say("cloudbase-init was started before Windows Setup had ended: its service is automatic in the image")
    yield from found.complaints
    if not found.has_metadata:
        answers = f". The cloud refused its requests: {some(facts.cloud.unanswered)}" if facts.cloud.unanswered else ""
        configured = ", ".join(found.services) or "none"
        yield say(f"cloudbase-init found no metadata service that answers. Configured: {configured}{answers}")
        return
    if found.crash:
        yield say(f"cloudbase-init did not come to its end: {found.crash}")
        return
    if found.restarts_forever:
        yield say("cloudbase-init asks for a restart at every start")
    elif not found.is_done:
        yield say("cloudbase-init did not come to its end")
    named = " ".join(one.text for one in found.complaints)
    for name, end in found.plugins.items():
        # The check of user data judges this one.
        if end != "done" and name != USER_DATA and name not in named:
            yield say(f"{name} failed" if end == "failed" else f"{name} did not run")


def _user_data(facts: NodeFacts) -> Iterator[Finding]:
    found = facts.cloudbase_init
    reasons = [
        say(
            f"a template in {path} was not rendered: cloudbase-init renders templates in user data of one part "
            "only. Write the values out",
            "B2",
        )
        for path in facts.unrendered
    ]
    reasons += [
        say(f"the <{tag}> script of the user data ran twice: the cloud's own agent runs such a script too", "B5")
        for tag in facts.scripts_of_agents
    ]
    reasons += found.user_data_complaints
    yield from reasons
    end = found.plugins.get(USER_DATA)
    if not found.version:
        yield say("no user data ran, because cloudbase-init did not run")
    elif end is None:
        yield say(f"no user data ran: the list of plugins has no {USER_DATA}")
    elif end == "not run" or (end == "failed" and not reasons):
        yield say(f"{USER_DATA} failed" if end == "failed" else f"no user data ran: {USER_DATA} did not run")


def _ready(facts: NodeFacts) -> Iterator[Finding]:
    refusal, off = facts.cloud.refusal, facts.cloudbase_init.unreported
    if refusal and off and facts.cloudbase_init.version:
        yield say(f"cloudbase-init does not report to the cloud: {' and '.join(off)} must be true", "B1")
    if refusal:
        yield say(f"the cloud says: {refusal}")


def _host_name(facts: NodeFacts) -> Iterator[Finding]:
    if facts.host_name.lower() == facts.wanted_host_name.lower():
        return
    if facts.cloudbase_init.version and _HOST_NAME not in facts.cloudbase_init.plugins:
        yield say(f"the list of plugins has no {_HOST_NAME}")
    yield say(f"the host name is {facts.host_name}, and the cloud gave {facts.wanted_host_name}")


CHECKS: Final = (
    Check("setup", "Windows Setup ended, and first-boot.ps1 did everything", _setup),
    Check("cloudbase-init", "cloudbase-init ran once and ended", _cloudbase_init),
    Check("user-data", "the user data ran", _user_data),
    Check("ready", "the cloud takes the machine for ready", _ready, lambda facts: facts.cloud.wants_report),
    Check("host-name", "the host name is the cloud's", _host_name),
    Check(
        "signed-scripts",
        "PowerShell ran only signed scripts, and refused none",
        lambda facts: [say(some(facts.refused_scripts or ()))] if facts.refused_scripts else [],
        lambda facts: facts.refused_scripts is not None,
    ),
)
