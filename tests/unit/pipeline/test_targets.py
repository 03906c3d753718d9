"""Two targets of one cloud in one config: what goes by the name of the target, and what by the cloud."""

from __future__ import annotations

import dataclasses
import io
import json
from typing import TYPE_CHECKING, NoReturn

import pytest

from imagegen import pipeline
from imagegen.base.console import Console
from imagegen.base.errors import ConfigError, PublishError, RefusedError
from imagegen.build import doctor
from imagegen.config.fields import is_string
from imagegen.fetch import locking
from imagegen.fetch.lock import lock_bytes, read_lock
from imagegen.leftovers.journal import Entry
from imagegen.leftovers.sweep import Place
from imagegen.plan import loading
from imagegen.plan import target as plan_target
from imagegen.providers.checks import WRONG, Check
from imagegen.providers.provider import provider
from imagegen.record import record
from imagegen.record.manifest import ImageManifest
from imagegen.record.store import LocalStore
from imagegen.run import Run
from tests.conftest import make_test_lock
from tests.unit.record.test_manifest_store import manifest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from imagegen.plan.loading import Loaded
    from imagegen.plan.resolve import Decision
RUN = Run({}, {}, "", console=Console(io.StringIO(), plain=True))
CONFIG = """\
name: example
windows: {release: "2022"}
kubernetes: {version: "1.36.4"}
runtime: {containerd: {version: "2.3.4"}}
cloudbase_init: {plugins: {aws: [cloudbaseinit.plugins.common.userdata.UserDataPlugin]}}
targets:
  aws: &aws {region: us-east-1, network: {allowed_cidrs: ["192.0.2.0/24"]}}
  prod: {provider: aws, region: us-east-1, network: {allowed_cidrs: ["192.0.2.0/24"]}}
  dr: {provider: aws, region: us-west-2, network: {allowed_cidrs: ["192.0.2.0/24"]}}
  gallery-2:
    provider: azure
    location: westeurope
    network: {allowed_cidrs: ["192.0.2.0/24"]}
    gallery: {resource_group: images, name: images, definition: windows}
""".replace("&aws ", "")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG)
    return path


@pytest.fixture
def loaded(file: Path, load: Callable[..., Loaded]) -> Loaded:
    return load(file)


def decided(loaded: Loaded, target: str) -> Decision:
    return pipeline.decide(pipeline.prepare_target(loaded, target), make_test_lock(loaded))


def test_each_target_has_the_settings_of_its_cloud(loaded: Loaded) -> None:
    assert {name: spec.provider for name, spec in loaded.specs.items()} == {
        "aws": "aws",
        "prod": "aws",
        "dr": "aws",
        "gallery-2": "azure",
    }
    assert {name: spec.settings.provider for name, spec in loaded.specs.items()} == {
        name: spec.provider for name, spec in loaded.specs.items()
    }


@pytest.mark.parametrize(
    ("word", "targets"),
    [
        (None, ["aws", "prod", "dr", "gallery-2"]),
        ("aws", ["aws"]),
        ("dr", ["dr"]),
        ("azure", ["gallery-2"]),
    ],
)
def test_a_word_means_the_target_of_that_name_or_else_those_on_that_cloud(
    loaded: Loaded, word: str | None, targets: list[str]
) -> None:
    assert loading.find_targets(loaded, word) == targets


def test_a_cloud_means_all_its_targets_where_none_has_its_name(file: Path, load: Callable[..., Loaded]) -> None:
    assert loading.find_targets(load(file, "targets.aws=null"), "aws") == ["prod", "dr"]
    with pytest.raises(ConfigError) as refused:
        loading.find_targets(load(file, "targets.gallery-2=null"), "azure")
    assert refused.value.problems[0].hint == "it has aws, prod, dr"


def test_the_same_settings_have_the_same_id_and_a_folder_each(loaded: Loaded, tmp_path: Path) -> None:
    """Each builds a machine of its own: one's report must not be taken for the other's."""
    own, named, other = (decided(loaded, target) for target in ("aws", "prod", "dr"))
    assert own.plan.image_id == named.plan.image_id == other.plan.image_id
    assert own.plan.image == named.plan.image
    assert own.bundle == named.bundle
    folders = [pipeline.build_folder(decision.plan, tmp_path).root.name for decision in (own, named, other)]
    start = own.plan.short_id
    assert folders == [start, f"{start}-prod", f"{start}-dr"]


def test_the_plan_says_cloud_and_target(loaded: Loaded) -> None:
    plan = json.loads(json.dumps(decided(loaded, "prod").plan.as_json()))
    assert (plan["image"]["target"], plan["build"]["target"]) == ("aws", "prod")
    assert "provider" not in plan["image"]


def test_a_tree_of_a_named_target_is_its_clouds(loaded: Loaded) -> None:
    own, named = (pipeline.render_tree(decided(loaded, target)) for target in ("aws", "prod"))
    assert own == named
    assert b'source "azure-arm"' in pipeline.render_tree(decided(loaded, "gallery-2"))["source.pkr.hcl"]


def test_the_lock_holds_a_base_image_for_each_target(loaded: Loaded, tmp_path: Path) -> None:
    file = tmp_path / "lock.json"
    file.write_bytes(lock_bytes(make_test_lock(loaded)))
    lock = read_lock(file)
    assert lock is not None
    assert {name: base.place["region"] for name, base in lock.base_images.items() if name != "gallery-2"} == {
        "aws": "us-east-1",
        "prod": "us-east-1",
        "dr": "us-west-2",
    }
    assert locking.read_lock_for(pipeline.prepare_target(loaded, "dr"), file) == lock
    file.write_bytes(lock_bytes(lock.model_copy(update={"base_images": {"aws": lock.base_images["aws"]}})))
    with pytest.raises(ConfigError, match="has no entry for the base image for prod"):
        locking.read_lock_for(pipeline.prepare_target(loaded, "prod"), file)


@pytest.mark.parametrize("key", ["publish.keep_newest=3", "publish.sharing={public: true, licence_acknowledged: true}"])
def test_what_is_not_built_yet_is_refused_on_a_named_target_too(
    file: Path, load: Callable[..., Loaded], key: str
) -> None:
    loaded = load(file, f"targets.prod.{key}")
    path = f"targets.prod.{key.partition('=')[0]}"
    with pytest.raises(RefusedError) as refused:
        pipeline.prepare_target(loaded, "prod")
    assert [problem.path for problem in refused.value.problems] == [path]
    assert pipeline.prepare_target(loaded, "dr").steps


def test_rules_judge_a_named_target(file: Path, load: Callable[..., Loaded]) -> None:
    with pytest.raises(ConfigError) as refused:
        load(file, "targets.prod.publish.regions=[us-east-1]")
    assert [(problem.path, problem.rule) for problem in refused.value.problems] == [
        ("targets.prod.publish.regions[0]", "build-region-published")
    ]


@pytest.mark.parametrize(
    ("path", "is_text"),
    [
        (("targets", "prod", "region"), True),
        (("targets", "prod", "provider"), True),
        (("targets", "prod", "gallery", "name"), True),
        (("targets", "prod", "publish", "regions", 0), True),
        (("targets", "prod", "disk", "size_gb"), False),
        (("targets", "prod"), False),
        (("targets", "prod", "nothing"), False),
    ],
)
def test_what_set_gives_a_named_target_is_read_as_its_cloud_reads_it(
    path: tuple[str | int, ...], is_text: bool
) -> None:
    assert is_string(path) is is_text


def test_targets_that_build_in_one_place_are_looked_at_once() -> None:
    own, named, other = (
        Place(name, "aws", {"region": region}) for name, region in (("a", "x"), ("b", "x"), ("c", "y"))
    )
    assert own.key == named.key != other.key


def test_what_is_wrong_with_a_target_names_its_own_keys(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    check = Check("region", WRONG, "targets.aws.region is away", "choose another targets.aws.region")
    cloud = dataclasses.replace(provider("aws"), quick_checks=lambda *_: [check])
    monkeypatch.setattr(doctor, "provider", lambda _: cloud)
    with pytest.raises(RefusedError) as refused:
        doctor.reject_failed_checks(loaded.specs["prod"], RUN)
    (problem,) = refused.value.problems
    assert (problem.message, problem.hint) == ("targets.prod.region is away", "choose another targets.prod.region")


@pytest.mark.parametrize(
    "doing",
    [
        lambda target, folder: locking.look_up([target], folder / "lock.json", RUN),
        lambda target, folder: pipeline.publish_built(target, folder / "known.json", RUN),
    ],
    ids=["look up", "publish"],
)
def test_an_error_of_a_cloud_names_the_targets_own_keys(
    loaded: Loaded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, doing: Callable[..., object]
) -> None:
    def refuse(*_: object) -> NoReturn:
        raise PublishError("targets.aws.a is gone", hint="correct targets.aws.b", details=["or targets.aws.c"])

    cloud = dataclasses.replace(provider("aws"), look_up_base=refuse, find_built=refuse)
    for module in (plan_target, record):
        monkeypatch.setattr(module, "provider", lambda _: cloud)
    (tmp_path / "known.json").write_bytes(lock_bytes(make_test_lock(loaded)))
    target = pipeline.prepare_target(loaded, "prod")
    with pytest.raises(PublishError) as refused:
        doing(target, tmp_path)
    error = refused.value
    assert (error.message, error.hint, error.details) == (
        "targets.prod.a is gone",
        "correct targets.prod.b",
        ("or targets.prod.c",),
    )


def test_a_journal_of_an_earlier_version_says_its_cloud_by_its_target() -> None:
    entry = Entry("run", "aws", "", {}, "", "")
    assert (entry.cloud, dataclasses.replace(entry, target="prod", provider="azure").cloud) == ("aws", "azure")


def test_a_manifest_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    now = manifest().model_copy(update={"target": "prod"})
    store.put(now)
    (path,) = tmp_path.glob("*/prod/*.json")
    told = json.loads(path.read_text())
    assert told.pop("provider") == "aws"
    assert ImageManifest.model_validate_json(json.dumps({**told, "target": "azure"})).provider == "azure"
    (read,) = store.list().records
    assert read == now
