"""A power cut at any moment of a build: what is left is named, and the janitor removes all of it and nothing else."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import datetime
import io
import json
import os
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from imagegen import pipeline
from imagegen.base.console import Console
from imagegen.base.files import write_tree
from imagegen.build.tools import find_tools
from imagegen.fetch.lock import lock_bytes
from imagegen.leftovers import sweep
from imagegen.leftovers.journal import CLEANED, recorded
from imagegen.leftovers.sweep import read_runs, warn_of_leftovers
from imagegen.plan import loading
from imagegen.providers.azure.leftovers import DELETED_VAULT
from imagegen.providers.provider import provider
from imagegen.providers.tags import EXPIRES_AT, NEVER, RUN_ID
from imagegen.rehearsal.clouds.aws.cloud import AwsOptions
from imagegen.rehearsal.clouds.aws.tagging import tag_specifications
from imagegen.rehearsal.clouds.azure.cloud import AzureOptions
from imagegen.rehearsal.network.messages import Response
from imagegen.run import Run
from tests.conftest import TODAY, load_today
from tests.e2e.janitor_clouds import FAR_OFF, LIVING, LONG_AGO, WORLDS, AzureWorld
from tests.e2e.rehearsal_support import (
    CONFIG,
    DEADLINE_S,
    Tree,
    imagegen,
    loaded,
    options_of,
    processes_with,
    sandbox_of,
    setup_of,
    stock_lock,
    user_environ,
)
from tests.provider_answers import PLUGINS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from imagegen.leftovers.journal import Entry, RecordedRun
    from imagegen.rehearsal.network.messages import Request
    from imagegen.rehearsal.sandbox import Sandbox
    from tests.e2e.janitor_clouds import Everything, World

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("tools_are_here")]

_SPOT = ("targets.aws.spot={}", "targets.aws.instance_types=[m6i.large]", "targets.aws.encryption={}")


@dataclasses.dataclass(frozen=True)
class Moment:
    """After which request's answer the power goes, and which of its kind; `finished`: an image is there by then."""

    note: str
    number: int = 1
    sets: tuple[str, ...] = ()
    finished: bool = False


# Both clouds at once, early and late ones together: most of a build's time is Packer's own waiting.
MOMENTS = (
    (Moment("ec2:CreateKeyPair"), Moment("PUT resourcegroups")),
    (Moment("ec2:CreateSecurityGroup"), Moment("POST deployments/validate")),
    (Moment("ec2:CreateLaunchTemplate", sets=_SPOT), Moment("PUT deployments")),
    (Moment("ec2:RunInstances"), Moment("POST deployments/validate", 2)),
    (Moment("ec2:CreateFleet", sets=_SPOT), Moment("PUT deployments", 2)),
    (Moment("ec2:GetPasswordData", sets=_SPOT), Moment("GET publicipaddresses")),
    (Moment("download"), Moment("download")),
    (Moment("ec2:CreateImage"), Moment("POST virtualmachines/deallocate")),
    (Moment("ec2:StopInstances"), Moment("POST virtualmachines/generalize")),
    (Moment("ec2:CreateTags", finished=True), Moment("PUT galleries/images/versions")),
    (Moment("ec2:DeleteLaunchTemplate", sets=_SPOT, finished=True), Moment("DELETE virtualmachines", finished=True)),
    (Moment("ec2:TerminateInstances", finished=True), Moment("DELETE resourcegroups", finished=True)),
)
# What Packer tags later than it makes it, and when that is done.
_REQUEST_IS_KNOWN, _IMAGE_IS_READY = "ec2:GetPasswordData", "ec2:TerminateInstances"
_TAGGED_BY_THEN = {_REQUEST_IS_KNOWN: {"spot request"}, _IMAGE_IS_READY: {"snapshot"}}
# Of those at which the janitor runs on the machine of the journal.
_BY_COMMAND = ("ec2:CreateSecurityGroup", "PUT resourcegroups")
_NOW = datetime.datetime.now(datetime.UTC)


@dataclasses.dataclass(frozen=True)
class Cut:
    """A build whose power went: the cloud it left, its own folder, and the environment that leads there."""

    target: str
    moment: Moment
    sandbox: Sandbox
    folder: Path
    environ: dict[str, str]
    fleets: list[dict[str, str]] = dataclasses.field(default_factory=list)
    """The tags that were asked for each fleet: what a fleet is remembered by, and nobody has to remove."""

    @property
    def out(self) -> Path:
        return self.folder / "out"

    @property
    def run(self) -> Run:
        environ, console = {**os.environ, **self.environ}, Console(io.StringIO(), plain=True)
        return Run(environ, {}, "2026-11-18T10:00:00Z", "20261118t100000z-000000", console=console, out=self.out)

    def run_at(self, now: datetime.datetime) -> Run:
        return dataclasses.replace(self.run, clock=lambda: now)

    @property
    def place(self) -> sweep.Place:
        """As a config on another machine says it."""
        settings = loaded().config.targets.named()[self.target]
        return sweep.configured_place(self.target, settings, self.run)


@pytest.mark.parametrize("turn", [0, 1], ids=["first", "second"])
@pytest.mark.parametrize("moments", MOMENTS, ids=lambda pair: "+".join(f"{each.note} {each.number}" for each in pair))
def test_after_a_power_cut_the_janitor_leaves_nothing_and_touches_nothing_else(
    moments: tuple[Moment, Moment], turn: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each moment of each cloud, once on the machine of the journal and once on another machine."""
    with contextlib.ExitStack() as stages:
        cuts = [
            stages.enter_context(_built_up_to(target, moment, tmp_path / target))
            for target, moment in zip(WORLDS, moments, strict=True)
        ]
        elsewhere = {cut.target: number == turn for number, cut in enumerate(cuts)}
        worlds = {
            cut.target: WORLDS[cut.target](cut.sandbox, FAR_OFF if elsewhere[cut.target] else LONG_AGO) for cut in cuts
        }
        before = {target: world.everything() for target, world in worlds.items()}
        with concurrent.futures.ThreadPoolExecutor(len(cuts)) as pool:
            list(pool.map(_cut_power, cuts))
        for cut in cuts:
            with monkeypatch.context() as patch:
                _enter(cut, patch)
                _check(cut, worlds[cut.target], before[cut.target], elsewhere=elsewhere[cut.target])
            assert cut.sandbox.faults == []


@contextlib.contextmanager
def _built_up_to(target: str, moment: Moment, folder: Path) -> Iterator[Cut]:
    folder.mkdir()
    setup = setup_of(target, folder / "out", load_today(CONFIG))
    if isinstance(setup.cloud_options, AwsOptions):
        # What was only just asked for is not there yet when the power goes, nor soon after.
        polls = 100 * (moment.note == "ec2:CreateImage")
        options = dataclasses.replace(setup.cloud_options, create_polls=polls)
        setup = dataclasses.replace(setup, cloud_options=options)
    with sandbox_of(setup, folder) as sandbox:
        yield Cut(target, moment, sandbox, folder, sandbox.child_environ(user_environ(folder)))


def _cut_power(cut: Cut) -> None:
    """Run the ordinary build up to its moment."""
    (cut.folder / "lock").write_bytes(lock_bytes(stock_lock(loaded())))
    words = imagegen("build", CONFIG, "--target", cut.target, "--lock", cut.folder / "lock", "--out", cut.out)
    words += ["--no-publish", "--plain", "--format", "none"]
    words += [word for given in cut.moment.sets for word in ("--set", given)]
    _run_until_cut(cut, words, cut.environ)


def _run_until_cut(cut: Cut, words: list[str], environ: dict[str, str]) -> None:
    """At the moment, all of the processes are gone at once, as after a power cut."""
    seen = 0
    marked = cut.environ["TMPDIR"]

    def watch(request: Request, response: Response) -> Response:
        nonlocal seen
        note = response.note or ("download" if request.host == "dl.k8s.io" else "")
        seen += note == cut.moment.note
        if note == "ec2:CreateFleet":
            cut.fleets.append(tag_specifications(request.form()).get("fleet", {}))
        if note == cut.moment.note and seen == cut.moment.number:
            _kill_all(marked)
        return response

    cut.sandbox.network.inject("*", mutate=watch, times=1_000_000)
    with subprocess.Popen(  # noqa: S603 - the checkout's own command line, or Packer's
        words, env=environ, cwd=cut.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    ) as child:
        try:
            said, _ = child.communicate(timeout=DEADLINE_S)
        finally:
            _kill_all(marked)
    assert child.returncode == -signal.SIGKILL, f"{cut.moment.note} never came: {said.decode()}"


def _kill_all(marked: str) -> None:
    # All are stopped before the first is killed. Otherwise imagegen could see Packer's death, and record a failure.
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in list(processes_with(marked)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


def _enter(cut: Cut, patch: pytest.MonkeyPatch) -> None:
    for name in set(os.environ) - set(cut.environ):
        patch.delenv(name)
    for name, value in cut.sandbox.network.environ.items():
        patch.setenv(name, value)


def _check(cut: Cut, world: World, before: Everything, *, elsewhere: bool) -> None:
    [dead] = read_runs(cut.out, pytest.fail)
    assert (dead.is_here, dead.is_alive, dead.ended) == (True, False, "")
    left = world.everything()
    _check_tags(cut, world, {key: left[key] for key in left.keys() - before.keys()}, dead.entry)
    found = [each.leftover for each in _look(cut, [], _NOW) if each.leftover.run_id == dead.entry.run_id]
    own = {leftover.id for leftover in found}
    assert own
    _check_warning(cut, dead.entry.run_id, {leftover.id for leftover in found if leftover.kind != DELETED_VAULT})
    late = datetime.datetime.fromisoformat(dead.entry.expires_at) + datetime.timedelta(seconds=1)
    # On another machine nothing of it goes before its time, and all of it after that; on the machine of its journal all
    # of it goes now.
    for runs, now, going in (([], _NOW, set()), ([], late, own), ([dead], _NOW, own)):
        assert {outcome.leftover.id for outcome in _look(cut, runs, now) if outcome.goes} & own == going
    if elsewhere:
        assert not [outcome for outcome in _clean_up(cut, [cut.place], [], _NOW) if outcome.is_removed]
        assert world.everything() == left
        outcomes = _clean_up(cut, [cut.place], [], late)
        removed = {outcome.leftover.id for outcome in outcomes if outcome.is_removed}
    else:
        # A run that is known to live on this machine is left alone, though its time is over.
        with recorded(
            cut.out / "other" / "journal", dataclasses.replace(dead.entry, run_id=LIVING, image_id="0"), pytest.fail
        ):
            removed = _removed_here(cut, dead)
            # Its journal is closed when its time is over, and not before.
            assert CLEANED not in {run.ended for run in read_runs(cut.out, pytest.fail)}
            _clean_up(cut, sweep.places_of([dead]), read_runs(cut.out, pytest.fail), late)
        assert {run.entry.run_id: run.ended for run in read_runs(cut.out, pytest.fail)}[dead.entry.run_id] == CLEANED
    assert own <= removed
    after = world.everything()
    assert {key: after.get(key) for key in before} == before
    made = {key: after[key] for key in after.keys() - before.keys()}
    if not cut.moment.finished:
        assert made == {}
    else:
        assert world.is_finished(made), made
        plan = pipeline.decide(pipeline.prepare_target(loaded(), cut.target), stock_lock(loaded())).plan
        assert provider(cut.target).find_built(plan, cut.run).image is not None


def _removed_here(cut: Cut, dead: RecordedRun) -> set[str]:
    """By the command itself at one moment of each cloud, and by what is below it at the others."""
    if cut.moment.note not in _BY_COMMAND:
        outcomes = _clean_up(cut, sweep.places_of([dead]), read_runs(cut.out, pytest.fail), _NOW)
        return {outcome.leftover.id for outcome in outcomes if outcome.is_removed}
    words = imagegen("janitor", "--out", cut.out, "--delete", "--plain", "--format", "json")
    done = subprocess.run(  # noqa: S603 - the checkout's own command line
        words, env=cut.environ, cwd=cut.folder, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert {each["outcome"] for each in told} <= {"removed", "stays"}
    assert {each["run_id"] for each in told if each["outcome"] == "removed"} == {dead.entry.run_id}
    return {each["id"] for each in told if each["outcome"] == "removed"}


def _look(cut: Cut, runs: list[RecordedRun], now: datetime.datetime) -> list[sweep.Outcome]:
    return sweep.preview([cut.place], runs, cut.run_at(now), 50).outcomes


def _clean_up(
    cut: Cut, places: list[sweep.Place], runs: list[RecordedRun], now: datetime.datetime
) -> list[sweep.Outcome]:
    outcomes = sweep.clean_up(places, lambda: runs, cut.run_at(now), 50).outcomes
    assert [outcome.why_not for outcome in outcomes if outcome.why_not] == []
    # A second time there is nothing to do.
    again = sweep.clean_up(places, lambda: runs, cut.run_at(now), 50).outcomes
    assert [outcome for outcome in again if outcome.goes] == []
    return outcomes


def _check_tags(cut: Cut, world: World, made: Everything, entry: Entry) -> None:
    """Each thing says whose it is and until when, but what the cloud makes by itself and an image that is finished."""
    mine = (entry.run_id, entry.expires_at)
    for (kind, _), (_, tags) in made.items():
        is_tagged = kind not in world.untagged or kind in _TAGGED_BY_THEN.get(cut.moment.note, ())
        if is_tagged and tags.get(EXPIRES_AT) != NEVER:
            assert (tags.get(RUN_ID), tags.get(EXPIRES_AT)) == mine, (cut.moment, kind)
        if cut.moment.note == _IMAGE_IS_READY and kind in ("image", "snapshot"):
            assert (tags.get(RUN_ID), tags.get(EXPIRES_AT)) == (entry.run_id, NEVER), (cut.moment, kind)
    assert [tags for tags in cut.fleets if (tags.get(RUN_ID), tags.get(EXPIRES_AT)) != mine] == []
    if cut.moment.note == _REQUEST_IS_KNOWN:
        assert cut.fleets
        assert {kind for kind, _ in made} >= {"spot request"}


def _check_warning(cut: Cut, run_id: str, own: set[str]) -> None:
    told = io.StringIO()
    warn_of_leftovers(dataclasses.replace(cut.run, console=Console(told, plain=True)))
    # Every build leaves a deleted vault, so nobody is warned of one alone.
    for words in (run_id, f"imagegen janitor --out {cut.out} --delete", *own) if own else ():
        assert words in told.getvalue()
    assert bool(told.getvalue()) == bool(own)


_GROUP = "image-builds"


@pytest.mark.parametrize(
    ("note", "number", "fails"),
    [("PUT deployments", 2, ""), ("DELETE virtualmachines", 1, "*/publicIPAddresses/*")],
    ids=["when the machine is there", "when Packer has begun to clean up"],
)
def test_in_a_group_of_the_operators_single_things_go_and_the_group_stays(
    note: str, number: int, fails: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = loading.ConfigRequest(CONFIG, TODAY, (f"targets.azure.build_resource_group={_GROUP}",))
    config = loading.load(asked)
    setup = setup_of("azure", tmp_path / "out", config)
    options = dataclasses.replace(options_of(setup, AzureOptions), rejects_used=True)
    setup = dataclasses.replace(setup, tree=lambda: tmp_path / "tree", cloud_options=options)
    tree = Tree(pipeline.render_tree(pipeline.decide(pipeline.prepare_target(config, "azure"), stock_lock(config))))
    # The plugin at hand does what is asked here as well, and leaves its disk behind, for which a newer one is wanted.
    tree.replace("plugins.pkr.hcl", ">= 2.0.0", ">= 1.4.5")
    write_tree(tree.files, tmp_path / "tree")
    with sandbox_of(setup, tmp_path) as sandbox:
        world = AzureWorld(sandbox, FAR_OFF)
        before = world.everything()
        moment = Moment(note, number)
        cut = Cut("azure", moment, sandbox, tmp_path, sandbox.child_environ(user_environ(tmp_path)))
        if fails:
            # The build fails at once, and Packer begins to clean up.
            sandbox.network.inject("management.azure.com", fails, Response.of_json(400, {"error": {"code": "No"}}))
        tools = find_tools(environ=os.environ, console=Console(io.StringIO(), plain=True), needed=PLUGINS.values())
        environ = {**cut.environ, **tools.environment}
        _run_until_cut(cut, [str(tools.packer), "build", str(tmp_path / "tree")], environ)
        made = world.everything().keys() - before.keys()
        assert {kind for kind, _ in made} >= {"Microsoft.Compute/disks", "Microsoft.Resources/deployments"}
        with monkeypatch.context() as patch:
            _enter(cut, patch)
            settings = config.config.targets.named()["azure"]
            place = sweep.configured_place("azure", settings, cut.run)
            found = sweep.preview([place], [], cut.run_at(_NOW), 50).outcomes
            # A plain Packer gives its run an id of its own making.
            own = [outcome for outcome in found if outcome.leftover.run_id.endswith("-packer")]
            assert {outcome.goes for outcome in own} == {False}
            _clean_up(cut, [place], [], _NOW + datetime.timedelta(hours=13))
        assert world.everything() == before
