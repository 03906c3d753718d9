"""What must not be left on the machine, and what a second boot must not change."""

from collections.abc import Callable, Iterator
from typing import Final

from imagegen.boot.check import Check, say, some
from imagegen.boot.facts import Finding, NodeFacts
from imagegen.boot.guarded import Guarded, find_open, may_change


def _secrets(facts: NodeFacts) -> Iterator[Finding]:
    if facts.key_leaks:
        yield say(f"the private key of a certificate is in {some(facts.key_leaks)}")
    if not facts.leaks:
        return
    found = facts.cloudbase_init
    in_log = found.log.lower() in map(str.lower, facts.leaks)
    if in_log and found.debug:
        yield say("cloudbase-init writes user data into its log, because debug is true", "B7")
    elif in_log:
        yield say("cloudbase-init writes user data that it cannot use into its log", "B8")
    yield say(f"a secret of the user data is in {some(facts.leaks)}")


def _own_files(facts: NodeFacts) -> Iterator[Finding]:
    for file in facts.own_files:
        if file.state != "there":
            yield say(f"{file.path} is missing" if file.state == "missing" else f"{file.path} has other content")
        for access in filter(may_change, file.access):
            yield say(f"others than administrators may change {file.path} ({access.sid}: {access.rights})")


def _builder(facts: NodeFacts) -> Iterator[Finding]:
    found = facts.builder
    for what, names, row in (
        ("a WinRM listener", found.listeners, ""),
        ("a certificate of the builder", found.certificates, ""),
        ("a firewall rule for WinRM", found.rules, ""),
        ("an account of the builder that can log on", found.accounts, "B12"),
        ("the profile of an account of the builder", found.profiles, "B12"),
    ):
        if names:
            yield say(f"{what} is left: {some(names)}", row)


def _second_boot(facts: NodeFacts) -> Iterator[Finding]:
    if facts.commands_of_restart:
        yield say(f"a second boot ran {some(facts.commands_of_restart)}")
    if facts.changed_by_restart:
        yield say(f"a second boot changed {some(facts.changed_by_restart)}")
    if facts.user_data_of_restart and not facts.commands_of_restart:
        yield say("a second boot ran the user data again")


_DRIFT: Final = 5


def _drift(facts: NodeFacts) -> Iterator[Finding]:
    if facts.drift is None:
        return
    drift = facts.drift
    if drift.found:
        yield say(f"a node that only joined has drifted: {some(drift.found)}")
    if bool(drift.found) is (drift.exit_code == 0):
        yield say(f"-Check ended with {drift.exit_code}, and found {len(drift.found)} resources that have drifted")
    if [found.partition(":")[2] for found in drift.found_planted] != [drift.planted] or drift.planted_code != _DRIFT:
        found = some(drift.found_planted) or "nothing"
        yield say(f"{drift.planted} was changed, and -Check found {found} and ended with {drift.planted_code}")


def _rejoin(facts: NodeFacts) -> Iterator[Finding]:
    if facts.rejoin is None:
        return
    rejoin = facts.rejoin
    if rejoin.failure:
        yield say(f"a command failed: {rejoin.failure}")
    if rejoin.left:
        yield say(f"reset-node.ps1 left {some(rejoin.left)}")
    if not rejoin.is_up or rejoin.nodes != (facts.wanted_node,):
        yield say(f"the node did not come up again (registered: {some(rejoin.nodes) or 'nothing'})")
    if rejoin.drifted:
        yield say(f"the node is no longer as its image: {some(rejoin.drifted)}")


def _upgrade(facts: NodeFacts) -> Iterator[Finding]:
    if facts.upgrade is None:
        return
    upgrade = facts.upgrade
    if upgrade.failure:
        yield say(f"a command failed: {upgrade.failure}")
    if upgrade.version != upgrade.wanted:
        yield say(
            f"the node runs {f'kubelet {upgrade.version}' if upgrade.version else 'no kubelet'}, not {upgrade.wanted}"
        )


def make_folder_check(guarded: tuple[Guarded, ...]) -> Check:
    return Check("closed-folders", "the node's folders are closed to Users", _open_folders(guarded))


def _open_folders(guarded: tuple[Guarded, ...]) -> Callable[[NodeFacts], Iterator[Finding]]:
    def find(facts: NodeFacts) -> Iterator[Finding]:
        by_row: dict[str, list[str]] = {}
        for row, access in find_open(guarded, facts.access):
            by_row.setdefault(row, []).append(f"{access.path} ({access.sid}: {access.rights})")
        for row, found in by_row.items():
            yield say(f"others than administrators may read or write {some(found)}", row)

    return find


CHECKS: Final = (
    Check("secrets", "no secret of the user data is in a log", _secrets),
    Check(
        "own-files",
        "the programs and scripts of the config are there, and only administrators can change them",
        _own_files,
        lambda facts: bool(facts.own_files),
    ),
    Check("builder", "nothing of the builder's access is left", _builder),
    Check("second-boot", "a second boot changes nothing", _second_boot),
    Check(
        "drift",
        "start.ps1 -Check finds no drift on the node, and finds a file that was changed",
        _drift,
        lambda facts: facts.drift is not None,
    ),
    Check(
        "rejoin",
        "after reset-node.ps1 the node joins again",
        _rejoin,
        lambda facts: facts.rejoin is not None,
    ),
    Check(
        "upgrade",
        "with the next patch release of kubelet in its place, the node runs it",
        _upgrade,
        lambda facts: facts.upgrade is not None,
    ),
)
