"""Records: stored whole, continued and never shortened, and refused where they contradict each other."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import hashlib
import json
import os
import stat
from typing import TYPE_CHECKING, Any

import pydantic
import pytest

from imagegen.base.errors import ConflictError
from imagegen.build.packer import BuildFolder
from imagegen.build.tools import Plugin as InstalledPlugin
from imagegen.build.tools import Toolchain
from imagegen.fetch.lock import Lock, LockedArtifact, LockedBase, LockedIssuer, LockedSignature
from imagegen.fetch.request import ArtifactRequest
from imagegen.plan.model import (
    BuildPart,
    BuildPlan,
    ImagePart,
    Phase,
    PlannedArtifact,
    PlannedResource,
    PlannedStep,
    StepNotes,
)
from imagegen.providers import CloudImage, Published, RunFacts
from imagegen.providers.aws.settings import Settings
from imagegen.record.manifest import (
    ImageManifest,
    Inputs,
    Plugin,
    RecordedArtifact,
    RecordedFile,
    RecordedImage,
    RecordedPublish,
    RecordedSignature,
    Tools,
)
from imagegen.record.record import (
    FinishedBuild,
    PlannedImage,
    judge_report,
    make_manifest,
    record_artifacts,
)
from imagegen.record.store import ATTESTATION, SBOM, Listing, LocalStore, manifest_bytes
from imagegen.render import guest_plan
from imagegen.steps.release_record import RESOURCE, SOURCE, UNDECIDED

if TYPE_CHECKING:
    from pathlib import Path

ID = "a1" * 32
SHA = "b2" * 32
HOME = RecordedImage(id="ami-1", region="us-east-1", name="node")
FAR = RecordedImage(id="ami-2", region="eu-west-1", name="node")


def manifest(**changes: Any) -> ImageManifest:  # noqa: ANN401 - any field
    fields: dict[str, Any] = {
        "name": "node",
        "image_id": ID,
        "target": "aws",
        "labels": {},
        "created": "2026-11-18T10:00:00Z",
        "imagegen_version": "0.1.0",
        "inputs": Inputs(
            config_file="node.yaml",
            config_sha256=SHA,
            base=LockedBase(request={}, identity={"name": "base"}, place={"ami_id": "ami-0"}),
            artifacts={"containerd": RecordedArtifact(url="https://x.test/c.tar.gz", sha256=SHA, size=3)},
        ),
        "versions": {"kubernetes": "1.35.6"},
        "tools": Tools(packer="1.16.0", plugin=Plugin(name="amazon", version="1.8.2")),
        "built": HOME,
        "report_missing": "not fetched",
    }
    return ImageManifest(**fields | changes)


LATEST = "2026-11-18T11:00:00Z"
LATER: dict[str, Any] = {"created": "2026-11-19T10:00:00Z", "imagegen_version": "0.2.0", "tools": None}


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "manifests")


def test_a_record_lies_where_its_name_says_and_is_read_back(store: LocalStore, tmp_path: Path) -> None:
    made = manifest(
        published=RecordedPublish(version="node", images=[HOME]), notes={"rehearsal": {"faults": [1, None]}}
    )
    assert store.put(made) == made
    path = tmp_path / "manifests" / "node" / "aws" / f"{ID[:16]}.json"
    assert json.loads(path.read_text())["manifest_version"] == 1
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert store.get("node", "aws", ID, {}) == made
    assert store.get("node", "azure", ID, {}) is None
    assert store.get("node", "aws", ID[:16] + "0" * 48, {}) is None
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_second_put_of_the_same_writes_nothing(store: LocalStore) -> None:
    store.put(manifest())
    path = store.path("node", "aws", ID, {})
    before = path.stat()
    store.put(manifest())
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


REPORT: dict[str, Any] = {"report": {"report_version": 1}, "report_missing": None}
ANEW: dict[str, Any] = {"report": {"report_version": 2}, "report_missing": None}
PUBLISHED = RecordedPublish(version="node", images=[HOME])
RUN = {"run_id": "run-1", "finished": LATEST}
OTHER_RUN = {"run_id": "run-2", "finished": "2026-11-19T11:00:00Z"}


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (REPORT, LATER, REPORT),
        ({}, LATER | REPORT, REPORT),
        ({}, LATER | {"report_missing": "gone"}, {"report_missing": "gone"}),
        ({"published": PUBLISHED}, LATER, {"published": PUBLISHED}),
        (
            {"published": PUBLISHED},
            LATER | {"published": RecordedPublish(version="node", images=[FAR])},
            {"published": RecordedPublish(version="node", images=[HOME, FAR])},
        ),
        (
            {"published": RecordedPublish(version="node", images=[HOME, FAR])},
            LATER | {"published": RecordedPublish(version="node", images=[HOME])},
            {"published": RecordedPublish(version="node", images=[HOME, FAR])},
        ),
        ({"notes": {"a": 1, "b": 1}}, LATER | {"notes": {"b": 2}}, {"notes": {"a": 1, "b": 2}}),
        ({}, LATER | {"built": None}, {}),
        ({}, LATER | {"built": FAR}, LATER | {"built": FAR}),
        (
            REPORT | {"published": PUBLISHED, "notes": {"a": 1}},
            LATER | {"built": FAR} | ANEW,
            LATER | {"built": FAR} | ANEW,
        ),
        (REPORT | {"published": PUBLISHED}, LATER | {"built": FAR}, REPORT | {"published": PUBLISHED}),
        ({"built": None}, LATER, LATER),
        (RUN, LATER | {"run_id": None, "finished": None}, RUN),
        (RUN, LATER | {"built": FAR} | OTHER_RUN, LATER | {"built": FAR} | OTHER_RUN),
    ],
    ids=[
        "report kept",
        "report added",
        "still no report",
        "publish kept",
        "publish extended",
        "a region is never lost",
        "notes added",
        "how it was made stays",
        "built anew",
        "built anew with its own report and regions",
        "no report is replaced by none",
        "built at last",
        "the run that built it stays",
        "another run built it anew",
    ],
)
def test_a_rerun_continues_the_record(
    store: LocalStore, first: dict[str, Any], second: dict[str, Any], expected: dict[str, Any]
) -> None:
    store.put(manifest(**first))
    kept = store.put(manifest(**second))
    assert kept == manifest(**expected)
    assert store.get("node", "aws", ID, {}) == kept


def test_a_manifest_of_an_older_version_is_read_and_completed(store: LocalStore) -> None:
    """It has neither the digest of its lock nor the run, and its artifacts do not name their release."""
    made = manifest()
    data = made.model_dump(mode="json", exclude={"run_id": True, "finished": True, "inputs": {"lock_sha256"}})
    del data["inputs"]["artifacts"]["containerd"]["release"], data["inputs"]["artifacts"]["containerd"]["signed"]
    path = store.path("node", "aws", ID, {})
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(data))
    assert store.get("node", "aws", ID, {}) == made
    assert store.put(manifest(**REPORT, run_id="run-2")) == manifest(**REPORT)


def other_bytes(name: str) -> Inputs:
    made = manifest().inputs
    artifact = RecordedArtifact(url="https://x.test/c.tar.gz", sha256="c3" * 32, size=3)
    return made.model_copy(update={"artifacts": {**made.artifacts, name: artifact}})


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"image_id": ID[:16] + "0" * 48}, "has image id"),
        ({"inputs": other_bytes("containerd")}, f"containerd: recorded {SHA}, now {'c3' * 32}"),
        ({"inputs": other_bytes("cni")}, f"cni: recorded not used, now {'c3' * 32}"),
    ],
)
def test_a_contradiction_is_a_conflict_and_changes_nothing(
    store: LocalStore, change: dict[str, Any], says: str
) -> None:
    store.put(manifest())
    path = store.path("node", "aws", ID, {})
    before = path.read_bytes()
    with pytest.raises(ConflictError) as raised:
        store.put(manifest(**change))
    assert says in " ".join((raised.value.message, *raised.value.details))
    assert raised.value.hint
    assert path.read_bytes() == before


def test_a_rehearsals_record_never_meets_productions(store: LocalStore) -> None:
    labels = {"rehearsal": "true"}
    store.put(manifest())
    store.put(manifest(labels=labels, built=FAR))
    production, rehearsed = store.get("node", "aws", ID, {}), store.get("node", "aws", ID, labels)
    assert production is not None
    assert rehearsed is not None
    assert (production.built, rehearsed.built) == (HOME, FAR)
    assert len(store.list().records) == 2


def test_list_is_newest_first(store: LocalStore) -> None:
    assert store.list() == Listing((), ())
    old = store.put(manifest(image_id="1" * 64, created="2026-11-01T00:00:00Z"))
    new = store.put(manifest(image_id="2" * 64, created="2026-11-02T00:00:00Z"))
    azure = store.put(manifest(image_id="3" * 64, target="azure", created="2026-11-03T00:00:00Z"))
    other = store.put(manifest(name="other", created="2026-11-04T00:00:00Z"))
    assert store.list() == Listing((other, azure, new, old), ())


def test_one_bad_file_hides_no_other(store: LocalStore, tmp_path: Path) -> None:
    good = store.put(manifest())
    beside = tmp_path / "manifests" / "node" / "aws"
    (beside / "truncated.json").write_text(manifest_bytes(good)[:100].decode())
    (beside / "null.json").write_text("null")
    (beside / "folder.json").mkdir()
    # What `imagegen attest` writes beside a manifest.
    for end in (ATTESTATION, SBOM):
        (beside / f"x{end}").write_text("{")
    os.mkfifo(beside / "pipe.json")
    listing = store.list()
    assert listing.records == (good,)
    with pytest.raises(ConflictError, match="4 files in the store cannot be read as a manifest") as raised:
        listing.reject_bad()
    said = "\n".join(raised.value.details)
    assert all(f"{beside / name}.json" in said for name in ("truncated", "null", "folder", "pipe"))


def test_annotate_adds_to_what_is_stored_now(store: LocalStore) -> None:
    mine = store.put(manifest())
    store.put(manifest(**REPORT))
    noted = store.annotate(mine, "rehearsal", {"faults": []})
    assert noted == manifest(**REPORT, notes={"rehearsal": {"faults": []}})
    assert store.get("node", "aws", ID, {}) == noted
    with pytest.raises(ConflictError, match="node has no manifest on azure"):
        store.annotate(manifest(target="azure"), "x", 1)


def test_of_runs_that_finish_together_none_loses_its_region(store: LocalStore) -> None:
    images = [RecordedImage(id=f"ami-{n}", region=f"region-{n}", name="node") for n in range(8)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(
            pool.map(lambda image: store.put(manifest(published=RecordedPublish(version="v", images=[image]))), images)
        )
    (kept,) = store.list().records
    assert kept.published is not None
    assert {image.region for image in kept.published.images} == {image.region for image in images}


@pytest.mark.parametrize("text", ["", "{}", '{"manifest_version": 2}'])
def test_a_file_that_is_no_record_is_never_overwritten(store: LocalStore, text: str) -> None:
    path = store.path("node", "aws", ID, {})
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(ConflictError, match="is not a valid manifest for this version of imagegen"):
        store.put(manifest())
    assert path.read_text() == text


@pytest.mark.parametrize(
    "change",
    [
        {"report_missing": None},
        {"report_missing": ""},
        {"report": {}},
        {"name": "../elsewhere"},
        {"target": "a/b"},
        {"image_id": "short"},
        {"unknown": 1},
    ],
)
def test_a_record_that_cannot_be_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(pydantic.ValidationError):
        manifest(**change)


@pytest.mark.parametrize("url", ["https://x.test/c?sig=secret", "https://u:p@x.test/c", "https://x.test/c#part"])
def test_no_url_with_a_secret_is_recorded(url: str) -> None:
    with pytest.raises(pydantic.ValidationError, match="must not have a query, a fragment or a user"):
        RecordedArtifact(url=url, sha256=SHA, size=1)


RESOURCES = (PlannedResource("system/feature:Containers", "feature", {}), PlannedResource("system/file:a", "file", {}))
PLAN = BuildPlan(
    ImagePart(
        "aws",
        {"release": "2022", "build": 20348},
        {"name": "base"},
        {"kubernetes": "1.35.6"},
        (Phase("phase-1", restart=True, steps=(PlannedStep("system", repeated=False, resources=RESOURCES),)),),
        {"containerd": PlannedArtifact(SHA, 3)},
        {},
        {},
    ),
    BuildPart(
        "node",
        "aws",
        {"ami_id": "ami-0"},
        {"containerd": "https://x.test/c.tar.gz?sig=secret"},
        {"system": StepNotes("the system", 60)},
        {"phase-1": 660},
        {},
        {"allow_eol": True},
    ),
    Settings(region="us-east-1"),
    360,
)


PLAN_SHA256 = hashlib.sha256(guest_plan(PLAN)).hexdigest()


def reported(**changes: Any) -> dict[str, Any]:  # noqa: ANN401 - any field
    """What a machine reports that carried the plan out, but for the changes."""
    resources = [
        {"id": item.id, "phase": "phase-1", "step": "system", "kind": "file", "status": "ok", "ms": 1, "facts": {}}
        for item in RESOURCES
    ]
    return {
        "report_version": 1,
        "plan_sha256": PLAN_SHA256,
        "name": "node",
        "target": "aws",
        "machine": {"build": 20348},
        "phases": [{"name": "phase-1", "status": "finished", "changed": 1, "restart": True, "ms": 2}],
        "resources": resources,
    } | changes


FAILED = {**reported()["resources"][0], "status": "failed"}
OF_ANOTHER = "the report is of another build: "
UNREADABLE = "the report is not valid for this version of imagegen: "


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        (json.dumps(reported()), None),
        (None, "run run-1 made the image, and its report is not on this machine"),
        (" ", "Packer brought no report of the machine: "),
        ("[]", f"{UNREADABLE}the whole report: "),
        ("{", "the report is not valid JSON: "),
        ('{"report_version": 1}', f"{UNREADABLE}plan_sha256: Field required"),
        (json.dumps(reported(plan_sha256=SHA)), f"{OF_ANOTHER}plan_sha256 is {SHA}, not {PLAN_SHA256}"),
        (json.dumps(reported(name="other")), f"{OF_ANOTHER}name is other, not node"),
        (json.dumps(reported(target="azure")), f"{OF_ANOTHER}target is azure, not aws"),
        (json.dumps(reported(phases=[])), f"{OF_ANOTHER}phases is [], not ['phase-1']"),
        (
            json.dumps(reported(resources=reported()["resources"][1:])),
            f"{OF_ANOTHER}its resources differ from the plan's: system/feature:Containers",
        ),
        (
            json.dumps(reported(resources=reported()["resources"][::-1])),
            f"{OF_ANOTHER}its resources differ from the plan's: their order",
        ),
        (json.dumps(reported(resources=[FAILED])), f"{UNREADABLE}resources.0.status: "),
    ],
)
def test_a_run_is_recorded(tmp_path: Path, text: str | None, missing: str | None) -> None:
    file = tmp_path / "reports" / "run-1.json"
    if text is not None:
        file.parent.mkdir()
        file.write_text(text)
    said = missing if text is not None else f"Packer brought no report of the machine: there is no {file}"
    assert (judge_report(file, PLAN) or "").startswith(said or "")
    report = reported() if missing is None else None
    image = CloudImage("ami-1", "us-east-1", "node", "available")
    made = make_manifest(
        PlannedImage(
            *(PLAN, "node.yaml", SHA, SHA, {"region": "us-east-1"}, manifest().inputs.artifacts),
            *(BuildFolder(tmp_path), tmp_path),
        ),
        RunFacts({}, {"rehearsal": "true"}, "2026-11-18T10:00:00Z", id="run-1"),
        image,
        Published((image,), "node", 0),
        FinishedBuild(Toolchain(file, "1.16.0", {"amazon": InstalledPlugin("1.8.2", file)}, {}), LATEST),
    )
    assert made.report == report
    assert (made.report_missing or "").startswith(missing or "")
    assert bool(made.report_missing) == (report is None)
    assert made.image_id == PLAN.image_id
    assert made.labels == {"rehearsal": "true"}
    assert made.inputs.artifacts == manifest().inputs.artifacts
    assert (made.inputs.lock_sha256, made.run_id, made.finished) == (SHA, "run-1", LATEST)
    assert made.inputs.stated == {"allow_eol": True}
    assert made.inputs.base == LockedBase(
        request={"region": "us-east-1"}, identity={"name": "base"}, place={"ami_id": "ami-0"}
    )
    assert made.tools == Tools(packer="1.16.0", plugin=Plugin(name="amazon", version="1.8.2"))
    assert made.built == HOME
    assert made.published == RecordedPublish(version="node", images=[HOME])


def test_the_record_has_each_file_that_the_image_has_of_an_artifact(tmp_path: Path) -> None:
    """The plan says which, and the machine how large they are."""
    members = [{"path": r"bin\a.exe", "sha256": "a" * 64}, {"path": "b.dll", "sha256": "b" * 64}]
    archive = {"artifact": "containerd", "into": r"C:\k", "strip": 1, "members": members}
    one = {"path": r"C:\c.exe", "sha256": "c" * 64, "source": None, "artifact": "containerd", "member": "c.exe"}
    own = {"path": r"C:\d.txt", "sha256": "d" * 64, "source": "files/d.txt", "artifact": None, "member": None}
    facts: list[dict[str, Any]] = [
        {"members": {one["path"]: {"sha256": one["sha256"], "size": 7} for one in members[:1]} | {"b.dll": "b" * 64}},
        {"sha256": "c" * 64, "size": 9},
        {"sha256": "d" * 64, "size": 1},
    ]
    kinds: dict[str, dict[str, Any]] = {"archive": archive, "extract": one, "file": own}
    resources = tuple(
        PlannedResource(f"system/{kind}:x", "archive" if kind == "archive" else "file", fields)
        for kind, fields in kinds.items()
    )
    step = PlannedStep("system", repeated=False, resources=resources)
    phases = (Phase("phase-1", restart=True, steps=(step,)),)
    plan = dataclasses.replace(PLAN, image=dataclasses.replace(PLAN.image, phases=phases))
    rows = [
        {"id": r.id, "phase": "phase-1", "step": "system", "kind": r.kind, "status": "changed", "ms": 1, "facts": fact}
        for r, fact in zip(resources, facts, strict=True)
    ]
    left_out = {"system/archive:x": {"count": 1, "names": ["version.dll"]}}
    sha256 = hashlib.sha256(guest_plan(plan)).hexdigest()
    file = tmp_path / "reports" / "run-1.json"
    file.parent.mkdir()
    file.write_text(json.dumps(reported(plan_sha256=sha256, resources=rows, left_out=left_out)))
    image = CloudImage("ami-1", "us-east-1", "node", "available")
    planned = PlannedImage(
        *(plan, "node.yaml", SHA, SHA, {"region": "us-east-1"}, manifest().inputs.artifacts),
        *(BuildFolder(tmp_path), tmp_path),
    )
    build = FinishedBuild(Toolchain(file, "1.16.0", {"amazon": InstalledPlugin("1.8.2", file)}, {}), LATEST)
    made = make_manifest(planned, RunFacts({}, {}, "2026-11-18T10:00:00Z", id="run-1"), image, None, build)
    assert (made.report or {})["left_out"] == left_out
    assert made.inputs.artifacts["containerd"].files == {
        r"C:\k\bin\a.exe": RecordedFile(sha256="a" * 64, size=7),
        # An older engine reported the digest only.
        r"C:\k\b.dll": RecordedFile(sha256="b" * 64),
        r"C:\c.exe": RecordedFile(sha256="c" * 64, size=9),
    }


ROOT = LockedIssuer(subject="CN=Root", thumbprint="0" * 64)
SIGNATURE = LockedSignature(signer="CN=Example", thumbprint=SHA, root=ROOT, timestamp="2026-10-01T08:00:00Z")


@pytest.mark.parametrize(
    ("published", "release", "signed"),
    [
        ("https://x.test/c.tar.gz?other", None, None),
        ("https://y.test/c.tar.gz?secret", "https://y.test/c.tar.gz", {"": SIGNATURE}),
    ],
)
def test_an_artifact_is_recorded_with_its_release_and_its_signers(
    published: str, release: str | None, signed: dict[str, LockedSignature] | None
) -> None:
    url = PLAN.build.downloads["containerd"]
    request = ArtifactRequest("containerd", url, None, "file", "overrides.containerd_url", published)
    lock = Lock(artifacts={"containerd": LockedArtifact(url=url, sha256=SHA, size=3, signed=signed)})
    recorded = RecordedSignature(signer="CN=Example", thumbprint=SHA, timestamp="2026-10-01T08:00:00Z")
    assert record_artifacts(PLAN, {"containerd": request}, lock) == {
        "containerd": RecordedArtifact(
            url="https://x.test/c.tar.gz", sha256=SHA, size=3, release=release, signed={"": recorded} if signed else {}
        )
    }


@pytest.mark.parametrize(("installed", "is_accepted"), [("b" * 64, True), ("c" * 64, False)])
def test_another_version_of_imagegen_accepts_the_report(tmp_path: Path, installed: str, is_accepted: bool) -> None:
    """It makes another release record of the same image. The report says which record the machine has."""
    record = PlannedResource(RESOURCE, "file", {"path": "x", "source": SOURCE, "sha256": UNDECIDED})
    step = PlannedStep("system", repeated=False, resources=(record,))
    image = dataclasses.replace(PLAN.image, phases=(Phase("phase-1", restart=True, steps=(step,)),))
    built, now = (dataclasses.replace(PLAN, image=image, release_record=one * 64) for one in "ba")
    report = reported(plan_sha256=hashlib.sha256(guest_plan(built)).hexdigest())
    report["resources"] = [{**report["resources"][0], "id": RESOURCE, "facts": {"sha256": installed, "size": 1}}]
    file = tmp_path / "report.json"
    file.write_text(json.dumps(report))
    assert (judge_report(file, now) is None) == is_accepted
