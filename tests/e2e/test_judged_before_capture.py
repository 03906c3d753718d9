"""A report that imagegen does not accept makes no image: no request for one is sent, and the machine is deleted."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
from typing import TYPE_CHECKING

import pytest

from imagegen.base.console import make_console
from imagegen.base.errors import BuildError
from imagegen.base.files import write_tree
from imagegen.build.packer import CloudSide, PackerBuild, VerdictPipe, build_tree
from imagegen.build.tools import find_tools
from imagegen.providers.provider import provider
from imagegen.providers.tags import ACCEPTED, EXPIRES_AT, NEVER, REPORT
from imagegen.rehearsal.clouds.aws import moto_call
from tests.e2e.rehearsal_support import CAPTURES, DEADLINE_S, TARGETS, Heard, rendered, sandbox_of, setup_of

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("tools_are_here")]

_REGION = "us-east-1"
_DELETES = {"aws": "ec2:TerminateInstances", "azure": "DELETE resourcegroups"}


class _Unanswered(VerdictPipe):
    """imagegen hangs, or it and its supervisor were killed."""

    def answer(self) -> None:
        pass


@dataclasses.dataclass(frozen=True)
class _Ended:
    """The requests to the cloud, what the rehearsal found wrong, the message of the error, and the tags of the AMI."""

    notes: set[str]
    faults: list[str]
    message: str
    tags: dict[str, str]


def _build(target: str, folder: Path, said: str | None, *, answers: bool = True) -> _Ended:
    tree = rendered(target)
    if not answers:
        tree.replace("build.pkr.hcl", 'timeout         = "15m"', 'timeout         = "1s"')
    write_tree(tree.files, folder / "tree")
    setup = dataclasses.replace(setup_of(target, folder), tree=lambda: folder / "tree")
    cloud = provider(target)
    tools = find_tools(environ=os.environ, console=make_console(plain=True, quiet=True), needed=[cloud.plugin])
    report = folder / "report.json"
    pipe = VerdictPipe if answers else _Unanswered

    def judge() -> str | None:
        # It is complete when Packer asks.
        assert json.loads(report.read_bytes())["target"] == target
        return said

    with sandbox_of(setup, folder) as sandbox, pipe(folder / "verdict.pipe", judge) as verdict:
        build = functools.partial(
            build_tree,
            tools,
            PackerBuild(
                *(folder / "tree", folder / "packer.log", DEADLINE_S),
                variables={**verdict.variables, "report_file": str(report)},
                cloud=CloudSide(cloud.environment),
                verdict=verdict,
            ),
            environ=sandbox.child_environ(os.environ),
            display=Heard(),
        )
        message = ""
        try:
            build()
        except BuildError as error:
            message = error.message
        made = [ami for ami in moto_call.ec2(_REGION).amis.values() if ami.owner_id == moto_call.ACCOUNT]
        tags = {tag["key"]: tag["value"] for ami in made for tag in ami.get_tags()}
        return _Ended(set(sandbox.network.notes()), sandbox.faults, message, tags)


@pytest.mark.parametrize("target", TARGETS)
def test_a_rejected_report_makes_no_image(target: str, tmp_path: Path) -> None:
    ended = _build(target, tmp_path, "2 resources are missing")
    assert (ended.faults, ended.message) == ([], "no image was made: 2 resources are missing")
    assert not ended.notes & CAPTURES[target]
    assert _DELETES[target] in ended.notes
    assert (tmp_path / "guest-logs.zip").is_file()


def test_without_a_verdict_packer_makes_no_image(tmp_path: Path) -> None:
    ended = _build("aws", tmp_path, None, answers=False)
    assert (ended.faults, ended.message.startswith("Packer failed: ")) == ([], True)
    assert not ended.notes & CAPTURES["aws"]
    assert _DELETES["aws"] in ended.notes


def test_an_accepted_ami_has_its_verdict_from_the_start(tmp_path: Path) -> None:
    """Nothing but Packer ran: imagegen may be killed before it can tag the image."""
    ended = _build("aws", tmp_path, None)
    assert (ended.faults, ended.message) == ([], "")
    assert ended.notes >= CAPTURES["aws"]
    assert (ended.tags[REPORT], ended.tags[EXPIRES_AT]) == (ACCEPTED, NEVER)
