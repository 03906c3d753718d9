"""What an image's identity is made of: asked of every key, part and file. tests/golden/identities.txt pins it."""

from __future__ import annotations

import dataclasses
import hashlib
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from imagegen import pipeline
from imagegen.base import contents
from imagegen.plan import model
from imagegen.plan.context import evaluate_steps
from imagegen.plan.model import BuildPart, BuildPlan, ImagePart, Phase, PlannedArtifact, PlannedSignature, StepNotes
from imagegen.steps.model import load_steps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from imagegen.providers.aws.settings import Settings

    Decide = Callable[..., Any]

CONFIGS = Path(__file__).parents[3] / "configs"
SHIPPED = CONFIGS / "windows-2022-containerd.yaml"
# The shipped configs that make a plan: the others have settings that are not implemented yet.
PLANNED = [CONFIGS / "air-gapped.yaml", CONFIGS / "annual-channel.yaml", *sorted(CONFIGS.glob("windows-*.yaml"))]
TARGETS = ("aws", "azure")
IMAGE, BUILD = "image", "build"

OTHER_SPELLING = """\
targets: # the order of keys, quotes, comments and defaults that are written out are no part of an image
  azure:
    publish: {regions: [westus3]}
    gallery:
      {version: date, definition: capi-win-2022-containerd, name: "clusterapi", resource_group: 'cluster-api-gallery'}
    vm_sizes: ["Standard_D4s_v5", Standard_D4as_v5]
    generation: 2
    disk_size_gb: 50
    location: "eastus2"
  aws:
    publish:
      regions:
        - us-west-2
    network:
      allowed_cidrs:
        - 0.0.0.0/0
      public_address: null
    disk: {size_gb: 50, type: gp3}
    instance_types: ['m6i.large', "m5.large"]
    region: 'us-east-1'
overrides: {}
ssh: ~
cloudbase_init: {user: capi, version: '1.1.8', plugins: {}}
runtime: {"containerd": {"version": "2.3.4", discard_unpacked_layers: true}}
kubernetes: {version: '1.36.4', install_path: 'C:\\k', feature_gates: {}}
windows:
    edition: "core"
    release: '2022'
name: "windows-2022-containerd"
"""


@pytest.mark.parametrize("target", TARGETS)
def test_spelling_is_no_part_of_the_plan(target: str, decide: Decide, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(OTHER_SPELLING)
    assert decide(other, target).decision.plan == decide(SHIPPED, target).decision.plan


FIELDS: dict[type, dict[str, object]] = {
    ImagePart: {
        "provider": "another",
        "windows": {"release": "2022", "edition": "core", "build": 1},
        "base": {"name": "another"},
        "versions": {"kubernetes": "9.9.9"},
        "phases": (Phase("another", restart=False, steps=()),),
        "artifacts": {"another": PlannedArtifact("0" * 64, 1)},
        "files": {"another": "0" * 64},
        "scripts": {"another": "0" * 64},
    },
    BuildPart: {
        "name": "another",
        "target": "another",
        "base_place": {"ami_id": "another"},
        "downloads": {"another": "https://mirror.example.com/another"},
        "steps": {"another": StepNotes("said otherwise", 1)},
        "phase_timeouts_s": {"another": 1},
        "timeouts_min": {"winrm": 1},
        "stated": {"allow_eol": True},
        "proxy": {"url": "http://proxy.example.com:3128", "bypass": []},
        "registry_credentials": {"registry.example.com": {"username_env": "A_USER", "password_env": "A_PASSWORD"}},
        "download_credentials": {"artifacts.example.com": {"token_env": "A_TOKEN"}},
        "all_signed": True,
        "signatures": {"0" * 64: PlannedSignature("CN=A", "a" * 64, "CN=Root", "b" * 64)},
        "unsigned": ("0" * 64,),
    },
}
PARTS = {ImagePart: IMAGE, BuildPart: BUILD}


def test_every_field_of_a_part_has_a_row() -> None:
    assert {part: sorted(rows) for part, rows in FIELDS.items()} == {
        part: sorted(field.name for field in dataclasses.fields(part)) for part in FIELDS
    }
    others = ["settings", "publish_timeout_min", "release_record"]
    assert [field.name for field in dataclasses.fields(BuildPlan)] == [*PARTS.values(), *others]


@pytest.mark.parametrize(("part", "field"), [(part, field) for part, rows in FIELDS.items() for field in rows])
def test_identity_is_of_the_image_part(part: type, field: str, decide: Decide) -> None:
    plan: BuildPlan = decide(SHIPPED, "aws").decision.plan
    changed = dataclasses.replace(getattr(plan, PARTS[part]), **{field: FIELDS[part][field]})
    after = dataclasses.replace(plan, **{PARTS[part]: changed})
    assert after != plan
    assert (after.image_id != plan.image_id) == (part is ImagePart)


def test_the_settings_of_a_target_are_no_part_of_the_identity(decide: Decide) -> None:
    plan: BuildPlan[Settings] = decide(SHIPPED, "aws").decision.plan
    publish = plan.settings.publish.model_copy(update={"regions": ["eu-west-1"]})
    settings = plan.settings.model_copy(update={"publish": publish, "tags": {"team": "another"}})
    after = dataclasses.replace(plan, settings=settings)
    assert after != plan
    assert after.image_id == plan.image_id
    before_json, after_json = plan.as_json(), after.as_json()
    assert {key for key in after_json if after_json[key] != before_json[key]} == {"build", "publish"}


def test_a_resource_of_any_step_is_part_of_the_identity(decide: Decide) -> None:
    plan: BuildPlan = decide(SHIPPED, "aws").decision.plan
    ids = {plan.image_id}
    for at, phase in enumerate(plan.image.phases):
        for index, step in enumerate(phase.steps):
            fewer = dataclasses.replace(step, resources=step.resources[1:])
            steps = (*phase.steps[:index], fewer, *phase.steps[index + 1 :])
            phases = list(plan.image.phases)
            phases[at] = dataclasses.replace(phase, steps=steps)
            ids.add(dataclasses.replace(plan, image=dataclasses.replace(plan.image, phases=tuple(phases))).image_id)
    assert len(ids) == 1 + sum(len(phase.steps) for phase in plan.image.phases)


# A config that has every template in use, but for those of network plugins: an image has one plugin.
MAXIMAL = Path(__file__).parents[2] / "golden" / "maximal.yaml"
_NETWORKS = Path(__file__).parents[2] / "data" / "networks"
OF_ANOTHER_CONFIG = {
    "cni/templates/10-win-bridge.conflist.j2": "win-bridge",
    "cni/templates/10-win-overlay.conflist.j2": "win-overlay",
    "cni/templates/network.json.j2": "win-bridge",
    "cni/templates/10-calico.conflist.j2": "calico",
    "cni/templates/10-ovn-kubernetes.conflist.j2": "ovn-kubernetes",
    "cni/templates/pod-range.txt.j2": "ovn-kubernetes",
    "cni/templates/10-wincni.conf.j2": "wincni",
    "cni/templates/own.conflist.j2": "azure",
    "cni/templates/own.txt.j2": "azure",
    "cni/templates/10-flannel.conflist.j2": "flannel",
    "cni/templates/kube-proxy-config.yaml.j2": "flannel",
    "cni/templates/net-conf.json.j2": "flannel",
    "cni/templates/reserved-address.txt.j2": "flannel",
    "cni/templates/services.txt.j2": "flannel",
    "cni/templates/places.txt.j2": "win-bridge",
    "cni/files/set-pod-network.ps1": "win-bridge",
}
# What only nodes without HostProcess containers have.
OLDER = MAXIMAL.with_name("older-node.yaml")
OF_OLDER_NODES = ("wins/templates/config.j2",)
DOCKER = Path(__file__).parents[2] / "data" / "docker.yaml"
# It runs after a build has failed: no image has seen it.
OF_FAILED_BUILDS = "logs.ps1"
# The templates that the first target's cloud has no use for.
OF_ANOTHER_CLOUD = {
    "cloudbase-init/templates/restricted-address.json.j2": "azure",
    "gmsa/files/register-plugin.ps1": "azure",
}


def _files() -> Iterator[tuple[str, str]]:
    for path in contents.read_folder(contents.PACKER / "guest"):
        if path != OF_FAILED_BUILDS:
            yield "aws", f"packer/guest/{path}"
    for target in TARGETS:
        for path in contents.read_folder(contents.PACKER / target, "*.ps1"):
            yield target, f"packer/{target}/{path}"
    for path in contents.read_folder(contents.ROLES):
        if path.split("/")[1] in ("templates", "files"):
            yield OF_ANOTHER_CLOUD.get(path, "aws"), f"ansible-win/roles/{path}"


FILES = list(_files())


def _copied(folder: Path, file: str = "") -> contents.Contents:
    """A copy of the content. If it is for a change of one file, only the copies around it are made: the other steps are
    links to the repository's, which are read once for all tests."""
    packer, roles = contents.PACKER, folder / "ansible-win" / "roles"
    if not file.startswith("ansible-win/"):
        packer = shutil.copytree(packer, folder / "packer")
    if file.startswith("packer/"):
        return contents.Contents(packer, contents.SHIPPED.step_roots)
    roles.mkdir(parents=True)
    for step in contents.ROLES.iterdir():
        if not file or step.name == file.split("/")[2]:
            shutil.copytree(step, roles / step.name)
        else:
            (roles / step.name).symlink_to(step)
    return contents.Contents(packer, (contents.StepRoot(roles, "ansible-win/roles"),))


@pytest.mark.parametrize(("target", "file"), FILES, ids=[file for _, file in FILES])
def test_a_changed_byte_is_another_image(target: str, file: str, decide: Decide, tmp_path: Path) -> None:
    """A changed file of a step changes what the step is evaluated to, which the plan is made of."""
    content = _copied(tmp_path, file)
    with (tmp_path / file).open("ab") as stream:
        stream.write(b" ")
    # Decided once for all files: the copies hold the same bytes, but for this one.
    network = OF_ANOTHER_CONFIG.get(file.removeprefix("ansible-win/roles/"))
    other = OLDER if file.endswith(OF_OLDER_NODES) else DOCKER if "/docker/" in file else MAXIMAL
    config = _NETWORKS / f"{network}.yaml" if network else other
    before = decide(config, target)
    if file.startswith("packer/"):
        assert decide(config, target, content).decision.plan.image_id != before.decision.plan.image_id
        return
    name, files = file.split("/")[2], before.decision.plan.image.files
    step = evaluate_steps(before.loaded.specs[target], load_steps(content.step_roots))
    (changed,) = [one for one in step if one.step.name == name]
    digests = {path: hashlib.sha256(text).hexdigest() for path, text in changed.texts.items()}
    assert {path: digest for path, digest in digests.items() if files.get(path) != digest}


def test_the_script_of_failed_builds_changes_no_image(decide: Decide, tmp_path: Path) -> None:
    content = _copied(tmp_path)
    with (tmp_path / "packer" / "guest" / OF_FAILED_BUILDS).open("ab") as stream:
        stream.write(b" ")
    before, after = decide(MAXIMAL, "aws").decision, decide(MAXIMAL, "aws", content).decision
    assert after.plan.image_id == before.plan.image_id
    assert after.helpers != before.helpers


def test_a_copy_of_the_content_is_the_same_image(decide: Decide, tmp_path: Path) -> None:
    content = _copied(tmp_path)
    assert decide(MAXIMAL, "aws", content).decision.plan.image_id == decide(MAXIMAL, "aws").decision.plan.image_id


@pytest.mark.parametrize("target", TARGETS)
def test_a_kind_that_the_plan_does_not_use_changes_no_image(target: str, decide: Decide, tmp_path: Path) -> None:
    shutil.copytree(contents.PACKER, tmp_path / "packer")
    (tmp_path / "packer" / "guest" / "kinds" / "new.ps1").write_text("@{}")
    more = contents.Contents(tmp_path / "packer", contents.SHIPPED.step_roots)
    configs = [config for config in PLANNED if f"\n  {target}:" in config.read_text()]
    assert len(configs) > 1
    for config in configs:
        before, after = decide(config, target).decision, decide(config, target, more).decision
        assert after.plan.image_id == before.plan.image_id
        assert after.bundle == before.bundle


def test_files_of_every_room_are_asked() -> None:
    files = [file for _, file in FILES]
    assert {"packer/aws/bootstrap.ps1", "packer/azure/generalise.ps1", "packer/guest/start.ps1"} < set(files)
    assert sum(file.startswith("packer/guest/kinds/") for file in files) == 18
    assert sum(file.startswith("ansible-win/") for file in files) >= 7


def test_errata_salt_every_identity(decide: Decide, monkeypatch: pytest.MonkeyPatch) -> None:
    plan: BuildPlan = decide(SHIPPED, "aws").decision.plan
    seen = [plan.image_id]
    for errata in (("first",), ("first", "second"), ("second", "first")):
        monkeypatch.setattr(model, "ERRATA", errata)
        seen.append(plan.image_id)
    assert len(set(seen)) == len(seen)


def test_a_mirror_with_the_same_bytes_makes_the_same_image(decide: Decide) -> None:
    decided = decide(SHIPPED, "aws")
    mirrored = decided.lock.model_copy(
        update={
            "artifacts": {
                name: item.model_copy(update={"url": f"https://mirror.example.com/{name}"})
                for name, item in decided.lock.artifacts.items()
            }
        }
    )
    plan = pipeline.decide(decided.target, mirrored).plan
    assert plan.image_id == decided.decision.plan.image_id


def test_other_bytes_at_the_same_address_make_another_image(decide: Decide) -> None:
    decided = decide(SHIPPED, "aws")
    for name, item in decided.lock.artifacts.items():
        changed = item.model_copy(update={"sha256": "0" * 64})
        lock = decided.lock.model_copy(update={"artifacts": {**decided.lock.artifacts, name: changed}})
        assert pipeline.decide(decided.target, lock).plan.image_id != decided.decision.plan.image_id, name


def test_place_of_the_base_image_is_no_part_of_the_identity(decide: Decide) -> None:
    decided = decide(SHIPPED, "aws")
    base = decided.lock.base_images["aws"]
    moved = base.model_copy(update={"place": {"region": "eu-west-1", "ami_id": "ami-0fedcba9876543210"}})
    lock = decided.lock.model_copy(update={"base_images": {**decided.lock.base_images, "aws": moved}})
    plan = pipeline.decide(decided.target, lock).plan
    assert plan.build.base_place != decided.decision.plan.build.base_place
    assert plan.image_id == decided.decision.plan.image_id
