"""The story from Packer's end to the record: no image is published on another machine's word, and no record is lost."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import hashlib
import io
import itertools
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from imagegen import pipeline
from imagegen.base.console import Console
from imagegen.base.errors import BuildError, ConfigError, ImagegenError, PublishError, RefusedError, VerificationError
from imagegen.build.packer import PackerBuild, PackerError
from imagegen.build.tools import Plugin, Toolchain
from imagegen.cli.main import cli
from imagegen.fetch import locking
from imagegen.fetch.lock import lock_bytes
from imagegen.leftovers.journal import BUILT as BUILT_WELL
from imagegen.leftovers.journal import LEFT, Entry, recorded
from imagegen.leftovers.sweep import read_runs
from imagegen.pipeline import BuildOptions
from imagegen.plan import context, loading
from imagegen.providers import CloudImage, Leftover, Published, Remains, RunFacts, SearchResult
from imagegen.providers.aws import provider as aws
from imagegen.providers.aws.settings import Auth, Place
from imagegen.providers.checks import OK, UNKNOWN, WRONG, Check
from imagegen.record.store import LocalStore
from imagegen.render import guest_plan
from imagegen.run import Run
from tests.conftest import TODAY
from tests.provider_answers import answer

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable, Mapping

    from imagegen.plan.model import BuildPlan
    from imagegen.record.manifest import ImageManifest

SHIPPED = Path(__file__).parents[3] / "configs" / "windows-2022-containerd.yaml"
CREDENTIALS = (
    "images=[registry.example.com/app:1]",
    "registry_credentials=[{registry: registry.example.com, username_env: APP_USER, password_env: APP_LOGIN}]",
)
PLACE = Place(region="us-east-1", auth=Auth(), account="111122223333")
BUILT = CloudImage("ami-1", "us-east-1", "node", "available")


def _as_it_is(_report: dict[str, Any]) -> None:
    """An honest machine."""


class World:
    """A cloud that has an image once Packer made it, and fails to publish as often as it is told."""

    def __init__(self) -> None:
        self.plan: BuildPlan | None = None
        self.image: CloudImage | None = None
        self.failures = 0
        self.published = 0
        self.packer_fails = False
        self.packer_crashes = False
        self.dies: str | None = None
        self.mark_fails = False
        self.artifact = ""
        self.made = 0
        self.unusable: tuple[str, ...] = ()
        self.left: list[Leftover] = []
        self.checks = [Check("sign-in", OK, "somebody")]
        self.cleaned_up: list[str] = []
        self.faults: list[ImagegenError] = []
        self.change: Callable[[dict[str, Any]], None] = _as_it_is

    def build_tree(self, _tools: object, job: PackerBuild, **_: object) -> str:
        assert self.plan is not None
        if self.packer_fails:
            raise PackerError("the builder is gone", crashed=self.packer_crashes)
        self.made += 1
        self.image = dataclasses.replace(BUILT, id=f"ami-{self.made}", runs=job.variables["run_id"])
        report = report_of(self.plan)
        self.change(report)
        file = Path(job.variables["report_file"])
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(report))
        self._die_at("build_tree")
        return self.artifact or f"us-east-1:{self.image.id}"

    def find_built(self, *_: object) -> SearchResult:
        return SearchResult(self.image, self.unusable)

    def read_built(self, _plan: BuildPlan, artifact: str, _run: RunFacts) -> CloudImage | None:
        self._die_at("read_built")
        made = self.image
        return made if made and artifact == f"us-east-1:{made.id}" else None

    def mark(self, _plan: BuildPlan, image: CloudImage, report: str, _run: RunFacts) -> None:
        if self.mark_fails:
            raise PublishError("you may not tag")
        assert self.image is not None
        assert image.id == self.image.id
        self.image = dataclasses.replace(image, report=report)

    def clean_up(self, _plan: BuildPlan, variables: Mapping[str, str], *_: object) -> None:
        self.cleaned_up.append(variables["created"])
        self._die_at("clean_up")

    def _die_at(self, moment: str) -> None:
        if self.dies == moment:
            self.dies = None
            raise KeyboardInterrupt

    def leftovers(self, *_: object) -> Remains:
        return Remains(tuple(each for each in self.left if each.kind != "usual"), tuple(self.faults))

    def usual_leftovers(self, *_: object) -> Remains:
        return Remains(tuple(each for each in self.left if each.kind == "usual"))

    def publish(self, *_: object) -> Published:
        if self.failures:
            self.failures -= 1
            raise PublishError("the region is away")
        self.published += 1
        return Published((BUILT,), "node", 1)


def _verdict(world: World) -> str:
    assert world.image is not None
    return world.image.report


def report_of(plan: BuildPlan) -> dict[str, Any]:
    """What a machine reports that carried the plan out."""
    phases = plan.image.phases
    return {
        "report_version": 1,
        "plan_sha256": hashlib.sha256(guest_plan(plan)).hexdigest(),
        "name": plan.build.name,
        "target": plan.image.provider,
        "machine": {},
        "phases": [
            {"name": phase.name, "status": "finished", "changed": 0, "restart": phase.restart, "ms": 1}
            for phase in phases
        ],
        "resources": [
            {"id": item.id, "phase": phase.name, "step": "s", "kind": item.kind, "status": "ok", "ms": 1, "facts": {}}
            for phase in phases
            for item in phase.resources()
        ],
    }


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    tools = Toolchain(Path("packer"), "1.16.0", {"amazon": Plugin("1.8.2", Path("plugin"))}, {})
    monkeypatch.setattr(pipeline, "find_toolchain", lambda *_: tools)
    monkeypatch.setattr(pipeline, "check", lambda *_: None)
    monkeypatch.setattr(pipeline, "build_tree", made.build_tree)
    answer(
        monkeypatch,
        aws,
        quick_checks=lambda *_: made.checks,
        find_built=made.find_built,
        read_built=made.read_built,
        mark=made.mark,
        clean_up=made.clean_up,
        leftovers=made.leftovers,
        usual_leftovers=made.usual_leftovers,
        place=lambda *_: PLACE,
        publish=made.publish,
    )
    return made


@pytest.fixture
def said() -> io.StringIO:
    """What the console of a build was told."""
    return io.StringIO()


@pytest.fixture
def build(
    world: World,
    tmp_path: Path,
    load: Any,  # noqa: ANN401 - the shared fixtures
    make_lock: Any,  # noqa: ANN401 - as above
    said: io.StringIO,
) -> Callable[..., ImageManifest]:
    lock = tmp_path / "lock.json"
    loaded = load(SHIPPED)
    locked, target = make_lock(loaded), pipeline.prepare_target(loaded, "aws")
    lock.write_bytes(lock_bytes(locked))
    world.plan = pipeline.decide(target, locked).plan
    numbers = itertools.count()

    def built(
        *, with_publish: bool = True, rebuild: bool = False, out: str = "out", on_error: str = "cleanup"
    ) -> ImageManifest:
        run = Run(
            *({"HOME": str(tmp_path)}, {}, "2026-11-18T10:00:00Z", f"20261118t100000z-{next(numbers):06}"),
            console=Console(said, plain=True, quiet=True),
            out=tmp_path / out,
        )
        return pipeline.build(target, BuildOptions(lock, False, rebuild, with_publish, on_error), run)

    return built


@pytest.fixture
def publish(
    tmp_path: Path,
    load: Any,  # noqa: ANN401 - the shared fixtures
    build: object,
    said: io.StringIO,
) -> Callable[..., ImageManifest]:
    """`imagegen publish`, with the lock that the fixture `build` makes."""
    assert build
    target = pipeline.prepare_target(load(SHIPPED), "aws")
    numbers = itertools.count()

    def published(*, out: str = "out") -> ImageManifest:
        run = Run(
            *({"HOME": str(tmp_path)}, {}, "2026-11-18T11:00:00Z", f"20261118t110000z-{next(numbers):06}"),
            console=Console(said, plain=True, quiet=True),
            out=tmp_path / out,
        )
        return pipeline.publish_built(target, tmp_path / "lock.json", run)

    return published


@pytest.mark.parametrize("verb", ["build", "publish"])
def test_a_config_is_loaded_settled_and_evaluated_once(
    verb: str,
    world: World,
    build: Callable[..., ImageManifest],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    if verb == "publish":
        build(with_publish=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SOURCE_DATE_EPOCH", f"{datetime.datetime.combine(TODAY, datetime.time()).timestamp():.0f}")
    calls: collections.Counter[str] = collections.Counter()

    def counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: object, **named: object) -> object:
            calls[name] += 1
            return function(*args, **named)

        return call

    for module, name in ((loading, "read_config"), (loading, "settle_targets"), (context, "evaluate_step")):
        monkeypatch.setattr(module, name, counted(name, getattr(module, name)))
    argv = [
        verb,
        str(SHIPPED),
        "--target",
        "aws",
        "--lock",
        str(tmp_path / "lock.json"),
        "--out",
        str(tmp_path / "out"),
    ]
    assert CliRunner().invoke(cli, argv, catch_exceptions=False).exit_code == 0
    assert world.plan is not None
    assert world.published == 1
    steps = {step.name for phase in world.plan.image.phases for step in phase.steps}
    assert calls == {"read_config": 1, "settle_targets": 1, "evaluate_step": 2 * len(steps)}


def _of_another_plan(report: dict[str, Any]) -> None:
    report["plan_sha256"] = "0" * 64


def _of_another_target(report: dict[str, Any]) -> None:
    report["target"] = "azure"


def _without_a_resource(report: dict[str, Any]) -> None:
    report["resources"].pop()


@pytest.mark.parametrize("change", [_of_another_plan, _of_another_target, _without_a_resource])
def test_an_image_with_another_builds_report_is_not_published(
    change: Callable[[dict[str, Any]], None],
    world: World,
    build: Callable[..., ImageManifest],
    publish: Callable[..., ImageManifest],
) -> None:
    world.change = change
    with pytest.raises(BuildError, match="is not published: the report is of another build"):
        build()
    for out in ("out", "of-another-machine"):
        for verb in (build, publish):
            with pytest.raises(RefusedError, match="the report of ami-1 was rejected") as raised:
                verb(out=out)
            assert "--rebuild" in raised.value.hint
    assert world.published == 0
    world.change = _as_it_is
    assert build(rebuild=True).published is not None
    assert publish(out="of-another-machine").published is not None


@pytest.mark.parametrize("moment", ["build_tree", "clean_up", "read_built"])
def test_an_image_whose_run_died_is_judged_by_the_next(
    moment: str, world: World, build: Callable[..., ImageManifest], publish: Callable[..., ImageManifest]
) -> None:
    for change in (_of_another_plan, _as_it_is):
        world.dies, world.change = moment, change
        with pytest.raises(KeyboardInterrupt):
            build(rebuild=True)
        assert _verdict(world) == ""
        # Nobody but the machine that has its report knows what became of it.
        with pytest.raises(RefusedError, match=r"its machine's report was never compared .* is not on this machine"):
            publish(out="of-another-machine")
        if change is _of_another_plan:
            for verb in (publish, build):
                with pytest.raises(RefusedError, match="the report of ami-1 was rejected"):
                    verb()
            assert (world.published, _verdict(world)) == (0, "rejected")
    assert build().published is not None
    assert (world.made, _verdict(world)) == (2, "accepted")
    assert publish(out="of-another-machine").published is not None


@pytest.mark.parametrize("with_publish", [True, False])
def test_an_image_that_nobody_can_judge_is_built_again(
    with_publish: bool, world: World, build: Callable[..., ImageManifest], said: io.StringIO
) -> None:
    """A nightly build in a fresh workspace, after a build that was killed."""
    world.dies = "clean_up"
    with pytest.raises(KeyboardInterrupt):
        build()
    made = build(out="of-another-machine", with_publish=with_publish)
    assert made.is_of("ami-2")
    assert (made.report is not None, made.published is not None) == (True, with_publish)
    assert "warning: ami-1 is not used: its machine's report was never compared with the plan, " in said.getvalue()
    assert "and is not on this machine: building another one\n" in said.getvalue()


def test_what_is_rejected_is_named_by_every_run(
    world: World, build: Callable[..., ImageManifest], publish: Callable[..., ImageManifest], said: io.StringIO
) -> None:
    world.unusable = ("ami-9 was rejected",)
    for verb, words in ((build, {}), (build, {"rebuild": True}), (publish, {})):
        said.truncate(0)
        verb(**words)
        assert "warning: ami-9 was rejected" in said.getvalue()


def test_a_report_is_recorded_for_the_image_of_its_own_run_and_no_record_loses_its_report(
    world: World, build: Callable[..., ImageManifest], tmp_path: Path, said: io.StringIO
) -> None:
    def first(report: dict[str, Any]) -> None:
        report["machine"] = {"first": True}

    world.change = first
    one = build()
    world.change = _as_it_is
    two = build(out="of-another-machine", rebuild=True)
    assert (one.is_of("ami-1"), two.is_of("ami-2")) == (True, True)
    # The first machine finds the second one's image, and has the report of its own.
    again = build()
    assert again.is_of("ami-2")
    assert (again.report, again.run_id) == (None, None)
    assert again.report_missing == f"run {two.run_id} made the image, and its report is not on this machine"
    (kept,) = LocalStore(tmp_path / "out" / "manifests").list().records
    assert kept == one
    assert f"warning: the store keeps the manifest of ami-1: that of ami-2 has no report, because run {two.run_id}" in (
        said.getvalue()
    )
    # An image of its own replaces the record, with its own report.
    third = build(rebuild=True)
    assert third.report is not None
    assert third.report["machine"] == {}
    assert LocalStore(tmp_path / "out" / "manifests").list().records == (third,)


def test_where_an_image_cannot_be_tagged_its_record_proves_it(
    world: World,
    build: Callable[..., ImageManifest],
    publish: Callable[..., ImageManifest],
    tmp_path: Path,
    said: io.StringIO,
) -> None:
    world.mark_fails = True
    build(with_publish=False)
    assert (
        "warning: ami-1 could not be tagged as accepted, so other machines will not know: you may not tag"
        in said.getvalue()
    )
    shutil.rmtree(tmp_path / "out" / "windows-2022-containerd")
    assert publish().published is not None
    # It proves that image and no other.
    world.image = dataclasses.replace(BUILT, id="ami-2")
    with pytest.raises(RefusedError, match="ami-2 is not used: its machine's report was never compared"):
        publish()


def test_where_a_rejected_image_cannot_be_tagged_its_report_counts(
    world: World, build: Callable[..., ImageManifest], publish: Callable[..., ImageManifest]
) -> None:
    world.mark_fails, world.change = True, _without_a_resource
    with pytest.raises(BuildError, match="is not published"):
        build()
    for verb in (build, publish):
        with pytest.raises(RefusedError, match=r"the report of ami-1 was rejected.* its resources differ"):
            verb()
    world.mark_fails = False
    with pytest.raises(RefusedError):
        publish()
    assert _verdict(world) == "rejected"


def test_output_without_an_id_is_a_failed_build(world: World, build: Callable[..., ImageManifest]) -> None:
    world.artifact = "UNKNOWN ID"
    with pytest.raises(BuildError, match="Packer's output has no id of the image") as raised:
        build()
    assert raised.value.details == ("Packer says that it made: UNKNOWN ID",)
    assert raised.value.hint.endswith("packer.log")
    assert world.published == 0


def test_a_second_run_on_the_same_image_is_refused_at_once(
    world: World, build: Callable[..., ImageManifest], publish: Callable[..., ImageManifest], tmp_path: Path
) -> None:
    refused: list[RefusedError] = []

    def meanwhile(report: dict[str, Any]) -> None:
        world.change = _as_it_is
        world.image = None
        for verb in (build, publish):
            world.image = BUILT if verb is publish else None
            with pytest.raises(RefusedError) as raised:
                verb()
            refused.append(raised.value)
        # Elsewhere it may.
        world.image = None
        assert build(out="elsewhere", with_publish=False).built is not None
        report["machine"] = {"first": True}

    world.change = meanwhile
    first = build().report
    assert first is not None
    assert first["machine"] == {"first": True}
    folder = tmp_path / "out" / "windows-2022-containerd"
    for error in refused:
        assert error.exit_code == 5
        assert error.message.startswith(f"another run is using {folder}")
        assert error.hint == "wait until it ends, or use another folder with --out"
    assert len(refused) == 2
    assert build().published is not None


@pytest.mark.parametrize("verb", ["build", "publish"])
def test_what_a_dead_run_left_is_named_by_the_next(
    verb: str, world: World, request: pytest.FixtureRequest, tmp_path: Path, said: io.StringIO
) -> None:
    again = request.getfixturevalue(verb)
    world.image, out = dataclasses.replace(BUILT, report="accepted"), tmp_path / "out of mine"
    dead = Entry("run-1", "aws", "0" * 64, PLACE.model_dump(), "2026-11-18T09:00:00Z", "2026-11-18T16:00:00Z")
    journal = out / "of-another-config" / "journal" / "run-1.jsonl"
    journal.parent.mkdir(parents=True)
    journal.write_text(json.dumps({"event": "started", **dataclasses.asdict(dead)}) + "\n")
    world.left = [
        Leftover(kind, id_, "us-east-1", "", "running", run_id, dead.expires_at, "")
        for kind, id_, run_id in (
            ("instance", "i-1", "run-1"),
            ("key pair", "key-1", "run-1"),
            ("instance", "i-2", "x"),
        )
    ]
    assert again(out=out.name).published is not None
    assert (
        "warning: run run-1 ended without cleaning up and left instance i-1, key pair key-1: "
        f"`imagegen janitor --out '{out}' --delete` removes it\n"
    ) in said.getvalue()


def test_a_record_survives_a_publish_that_fails(
    world: World, build: Callable[[], ImageManifest], tmp_path: Path
) -> None:
    world.failures = 1
    with pytest.raises(PublishError):
        build()
    (first,) = LocalStore(tmp_path / "out" / "manifests").list().records
    assert first.published is None
    assert first.tools is not None
    shutil.rmtree(tmp_path / "out" / "windows-2022-containerd")
    done = build()
    assert world.published == 1
    assert done.published is not None
    assert (done.tools, done.report, done.created) == (first.tools, first.report, first.created)
    assert done.report is not None


@pytest.mark.parametrize("fails", [False, True])
def test_what_a_build_leaves_is_cleaned_up_however_it_ended(
    fails: bool, world: World, build: Callable[[], ImageManifest]
) -> None:
    world.packer_fails = fails
    if fails:
        with pytest.raises(BuildError, match="the builder is gone"):
            build()
    else:
        build()
    assert world.cleaned_up == ["2026-11-18T10:00:00Z"]
    # What is there already was not built: nothing is left of it.
    if not fails:
        build()
    assert len(world.cleaned_up) == 1


def test_what_the_cloud_would_refuse_is_refused_before_anything_is_made(
    world: World, build: Callable[[], ImageManifest], tmp_path: Path
) -> None:
    world.checks = [
        Check("publish region us-west-9", WRONG, "AWS has no region of this name", "write us-west-2"),
        Check("build region us-east-1", OK, "always enabled"),
        Check("VPC vpc-1", WRONG, "not there"),
    ]
    with pytest.raises(RefusedError) as raised:
        build()
    assert raised.value.exit_code == 5
    assert [str(problem) for problem in raised.value.problems] == [
        "VPC vpc-1: not there",
        "publish region us-west-9: AWS has no region of this name\n  hint: write us-west-2",
    ]
    assert (world.image, world.cleaned_up, world.published) == (None, [], 0)
    assert not (tmp_path / "out").exists()


def test_what_was_locked_is_counted(
    load: Any,  # noqa: ANN401 - the shared fixtures
    make_lock: Any,  # noqa: ANN401 - as above
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    loaded, said, file = load(SHIPPED), io.StringIO(), tmp_path / "lock.json"
    known = make_lock(loaded)
    answer(monkeypatch, aws, look_up_base=lambda *_: known.base_images["aws"])
    one = dict(list(known.artifacts.items())[:1])
    monkeypatch.setattr(locking, "lock_artifacts", lambda *_, **__: one)
    run = Run({"HOME": str(tmp_path)}, {}, "2026-11-18T10:00:00Z", console=Console(said, plain=True))
    locking.look_up([pipeline.prepare_target(loaded, "aws")], file, run)
    assert said.getvalue().endswith(f"Z locked 1 artifact and 1 base image in {file}\n")


def test_a_complete_lock_needs_no_credentials_of_registries(
    load: Any,  # noqa: ANN401 - the shared fixtures
    make_lock: Any,  # noqa: ANN401 - as above
    tmp_path: Path,
) -> None:
    loaded, file = load(SHIPPED, *CREDENTIALS), tmp_path / "lock.json"
    target, known = pipeline.prepare_target(loaded, "aws"), make_lock(loaded)
    file.write_bytes(lock_bytes(known))
    run = Run({"HOME": str(tmp_path)}, {}, "2026-11-18T10:00:00Z", console=Console(io.StringIO(), plain=True))
    assert locking.look_up([target], file, run).lock.images == known.images
    with pytest.raises(ConfigError, match="APP_USER and APP_LOGIN must have the credentials"):
        locking.upgrade([target], file, (), run)


def test_what_cannot_be_asked_is_a_warning(world: World, build: Callable[[], ImageManifest], said: io.StringIO) -> None:
    world.checks = [Check("regions", UNKNOWN, "UnauthorizedOperation", "allow ec2:DescribeRegions")]
    assert build().published is not None
    told = "warning: regions: unknown: UnauthorizedOperation (hint: allow ec2:DescribeRegions)"
    assert told in said.getvalue()


def test_a_region_that_is_not_published_to_now_is_a_warning(
    world: World, build: Callable[..., ImageManifest], said: io.StringIO
) -> None:
    message = "this account has not enabled the region"
    world.checks = [Check("publish region ap-east-1", WRONG, message, "enable it", of_publishing=True)]
    assert build(with_publish=False).published is None
    assert f"warning: publish region ap-east-1: {message} (hint: enable it)" in said.getvalue()
    with pytest.raises(RefusedError):
        build()


FIRST, SECOND = "20261118t100000z-000000", "20261118t100000z-000001"


def left(kind: str, run_id: str) -> Leftover:
    return Leftover(kind, f"{kind}-1", "us-east-1", "", "available", run_id, "2099-01-01T00:00:00Z", "")


def test_what_a_build_that_ended_well_left_is_named_now_and_by_the_next_run(
    world: World, build: Callable[[], ImageManifest], said: io.StringIO, tmp_path: Path
) -> None:
    world.left = [left("security group", FIRST), left("usual", FIRST), left("instance", SECOND + "x")]
    assert build().published is not None
    command = f"`imagegen janitor --out {tmp_path / 'out'} --delete` removes it"
    assert f"warning: the build succeeded but left security group security group-1: {command}\n" in said.getvalue()
    said.truncate(0)
    build()
    assert f"run {FIRST} ended without cleaning up and left security group security group-1" in said.getvalue()
    assert "the build ended well" not in said.getvalue()
    [first, second] = read_runs(tmp_path / "out", pytest.fail)
    assert [(run.ended, run.may_have_left_something) for run in (first, second)] == [(LEFT, True), (BUILT_WELL, False)]


def test_after_a_build_what_may_not_be_listed_is_no_warning(
    world: World, build: Callable[[], ImageManifest], said: io.StringIO, tmp_path: Path
) -> None:
    world.faults = [RefusedError("looking for spot requests: no")]
    assert build().published is not None
    assert "warning" not in said.getvalue()
    assert [run.ended for run in read_runs(tmp_path / "out", pytest.fail)] == [BUILT_WELL]


def test_what_a_build_that_failed_left_is_named_at_once_and_usual_leftovers_never(
    world: World, build: Callable[[], ImageManifest], said: io.StringIO, tmp_path: Path
) -> None:
    world.packer_fails = True
    world.left = [left("instance", FIRST), left("usual", FIRST)]
    with pytest.raises(BuildError):
        build()
    command = f"`imagegen janitor --out {tmp_path / 'out'} --delete` removes it"
    assert f"warning: the build failed and left instance instance-1: {command}\n" in said.getvalue()
    said.truncate(0)
    world.packer_fails = False
    world.left = [left("usual", FIRST)]
    build()
    assert "warning" not in said.getvalue()


def test_after_a_failed_build_what_cannot_be_listed_hides_no_reason(
    world: World, build: Callable[[], ImageManifest], said: io.StringIO
) -> None:
    world.packer_fails = True
    world.faults = [RefusedError("looking for instances: no")]
    with pytest.raises(BuildError, match="the builder is gone"):
        build()
    assert "warning" not in said.getvalue()


@pytest.mark.parametrize(
    ("image", "told"), [(None, "the image does not exist"), (BUILT, f"the image {BUILT.name} exists")]
)
def test_after_a_crash_of_a_plugin_it_is_said_whether_the_image_exists(
    image: CloudImage | None,
    told: str,
    world: World,
    build: Callable[..., ImageManifest],
    said: io.StringIO,
) -> None:
    world.packer_fails = world.packer_crashes = True
    world.image = image
    with pytest.raises(BuildError):
        build(rebuild=True)
    assert f"warning: {told}\n" in said.getvalue()


def test_the_next_run_names_the_machine_that_was_kept_and_when_it_may_go(
    world: World, build: Callable[..., ImageManifest], said: io.StringIO, tmp_path: Path
) -> None:
    world.packer_fails = True
    with pytest.raises(BuildError):
        build(on_error="abort")
    [kept] = read_runs(tmp_path / "out", pytest.fail)
    assert kept.keeps_leftovers
    until = kept.entry.expires_at
    world.left = [Leftover("instance", "i-1", "us-east-1", "", "running", FIRST, until, "")]
    world.packer_fails = False
    build()
    command = f"`imagegen janitor --out {tmp_path / 'out'} --delete` removes it after {until}"
    assert f"run {FIRST} (--on-error=abort) left instance i-1: {command}" in said.getvalue()


def claiming(out: Path, run_id: str, claim: str) -> contextlib.AbstractContextManager[Entry]:
    entry = Entry(run_id, "aws", "0", PLACE.model_dump(), "2026-11-18T10:00:00Z", "2026-11-18T16:00:00Z", claim=claim)
    return recorded(out / "other" / "journal", entry, pytest.fail)


def test_what_another_run_here_is_making_is_not_made_twice(
    world: World, build: Callable[[], ImageManifest], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer(monkeypatch, aws, claim=lambda *_: "version 1.2.3 of gal/def")
    with claiming(tmp_path / "out", "20261118t095959z-1a2b3c", "version 1.2.3 of gal/def"):
        with pytest.raises(
            RefusedError, match=r"20261118t095959z-1a2b3c .* is already making version 1\.2\.3 of gal/def"
        ):
            build()
        # An image that is there is not made, and may be published.
        world.image = dataclasses.replace(BUILT, report="accepted")
        build()
    world.image = None
    # The other run is over.
    build()


@pytest.mark.parametrize(("here", "there"), [("", ""), ("version 1.2.3 of gal/def", "version 1.2.4 of gal/def")])
def test_other_names_are_in_nobodys_way(
    here: str,
    there: str,
    world: World,
    build: Callable[[], ImageManifest],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer(monkeypatch, aws, claim=lambda *_: here)
    with claiming(tmp_path / "out", "20261118t095959z-1a2b3c", there):
        build()
    assert _verdict(world) == "accepted"


def test_a_build_without_the_credentials_of_a_registry_fails_before_the_cloud_is_asked(
    tmp_path: Path,
    load: Any,  # noqa: ANN401 - the shared fixtures
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def asked(*_: object, **__: object) -> None:
        raise AssertionError("the cloud was asked")

    monkeypatch.setattr(pipeline, "reject_failed_checks", asked)
    target = pipeline.prepare_target(
        load(SHIPPED, *CREDENTIALS),
        "aws",
    )
    console = Console(io.StringIO(), plain=True)
    run = Run({"APP_USER": "robot"}, {}, "2026-11-18T10:00:00Z", "20261118t100000z-0", console=console, out=tmp_path)
    for start in (
        lambda: pipeline.build(target, BuildOptions(tmp_path / "l"), run),
        lambda: locking.look_up([target], tmp_path / "l", run),
    ):
        with pytest.raises(ConfigError, match=r"APP_LOGIN must have the credentials of registry\.example\.com"):
            start()
    assert [*tmp_path.iterdir()] == []


@pytest.mark.usefixtures("world")
def test_the_record_has_the_digest_of_the_lock_that_was_read(
    build: Callable[..., ImageManifest], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Not of what the file has later: its signatures take minutes, and somebody may change branches."""
    file = tmp_path / "lock.json"
    before = hashlib.sha256(file.read_bytes()).hexdigest()
    monkeypatch.setattr(pipeline, "verify_lock", lambda *_, **__: file.write_text("{}"))
    assert build().inputs.lock_sha256 == before


def test_nothing_is_built_of_a_lock_that_is_wrong_about_its_files(
    world: World, build: Callable[..., ImageManifest], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def verify(*_: object, **__: object) -> None:
        raise VerificationError("the lock is wrong about 1 file")

    monkeypatch.setattr(pipeline, "verify_lock", verify)
    with pytest.raises(VerificationError):
        build()
    assert (world.image, world.published, (tmp_path / "out").exists()) == (None, 0, False)
