"""The rules for wins. Pure. Those about HostProcess containers are in `nodes`."""

import ntpath
from collections.abc import Iterator
from typing import Final

from imagegen.base.errors import ConfigError
from imagegen.catalog.facts import numbers, table
from imagegen.config.yaml import parse_yaml
from imagegen.rules.rule import ERROR, Finding, RuleInput, rule

_POLICY: Final = ("wins", "policy")


@rule("wins-has-a-pipe", ERROR, "wins must have the named pipe that pods connect to")
def wins_has_a_pipe(given: RuleInput) -> Iterator[Finding]:
    wins, before = given.config.wins, table("wins")["before"]
    if wins and numbers(wins.version) >= numbers(before):
        yield Finding(
            ("wins", "version"),
            f"wins has no named pipe from {before} on, so it starts no program for pods, such as kube-proxy or flannel",
            f"choose a version before {before}",
        )


@rule("wins-has-programs", ERROR, "wins must have at least one program to start")
def wins_has_programs(given: RuleInput) -> Iterator[Finding]:
    """An empty list would allow every program."""
    config = given.config
    facts = next((spec.facts.wins for spec in given.specs.values()), None)
    if config.wins and not config.wins.policy and facts is not None and not facts.programs:
        yield Finding(
            ("wins",),
            f"with kube_proxy: {config.kube_proxy} and cni.plugin: {config.cni.plugin}, no program of imagegen needs "
            "wins",
            "leave wins out, or name your programs in wins.policy",
        )


@rule(
    "wins-policy",
    ERROR,
    "wins.policy must name the programs that pods may start",
    why="wins starts every program, as SYSTEM, if it finds no list",
)
def wins_policy(given: RuleInput) -> Iterator[Finding]:
    wins = given.config.wins
    spec = next(iter(given.specs.values()), None)
    file = spec.own_files.get("wins.policy") if spec else None
    if wins is None or file is None or spec is None or spec.facts.wins is None:
        return
    key = spec.facts.wins.white_list
    try:
        content = parse_yaml(file.data, str(wins.policy)).data
    except ConfigError as error:
        found = "; ".join(problem.message for problem in error.problems) or error.message
        yield Finding(_POLICY, f"{wins.policy} cannot be read: {found}", error.hint or "write it as YAML")
        return
    listed = content.get(key) if isinstance(content, dict) else None
    programs = listed.get("processPaths") if isinstance(listed, dict) else None
    if not isinstance(programs, list) or not programs:
        yield Finding(
            _POLICY,
            f"{wins.policy} has no list {key}.processPaths, without which wins {wins.version} starts every program",
            f"write {key}, and below it processPaths with at least one program",
        )
        return
    for program in programs:
        if not isinstance(program, str) or not ntpath.splitdrive(program)[0] or not ntpath.isabs(program):
            yield Finding(
                _POLICY,
                f"{wins.policy} has the program {program!r}, which is not an absolute path, so no pod can start it",
                'write its whole path, for example "C:\\\\k\\\\kube-proxy\\\\kube-proxy.exe"',
            )
    upgrade = content.get("upgrade")
    if spec.facts.wins.replaces_itself and (not isinstance(upgrade, dict) or upgrade.get("mode") != "none"):
        yield Finding(
            _POLICY,
            f"{wins.policy} lets wins {wins.version} replace its own program by another one",
            "write upgrade: {mode: none}",
        )
    pipe = table("wins")["pipe"]
    if content.get("listen", pipe) != pipe:
        yield Finding(
            _POLICY,
            f"{wins.policy} has the pipe {content['listen']!r}, but the wins in pods connects to {pipe}",
            "leave listen out",
        )
