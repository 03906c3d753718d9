"""A manifest, an SBOM, a lock or a node that does not belong to the rest is refused by its own message."""

from __future__ import annotations

import codecs
import json
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from imagegen.fetch.lock import Lock, lock_bytes
from imagegen.record import sbom
from tests.attest_support import OTHER, Proof, check, fill, said, sha256_of

if TYPE_CHECKING:
    from tests.attest_support import Change

SAYS = "but the manifest says"
IMAGE_ID = "43ed4e1a3e88057a11a938f609e42ddee9426518d36a36e68a7e5b2a1704d10b"
PAUSE = "registry.k8s.io/pause:3.10.1"


# The manifest.


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "is not valid JSON: "),
        ("[" * 100_000, "is not valid JSON: "),
        ("null", "must be a valid dictionary or instance of ImageManifest"),
        ('{"name": "a", "name": "b"}', "is not valid JSON: duplicate key 'name'"),
        (65 * 2**20, "the file is too large: it has 68157440 bytes, at most 67108864 are allowed"),
    ],
    ids=["empty", "deep", "null", "twice", "large"],
)
def test_a_manifest_that_is_none_is_refused(proof: Proof, text: str | int, expected: str) -> None:
    fill(proof.manifest, text)
    [(name, (first, *_))] = said(check(proof, None), proof.folder).items()
    assert name == "manifest"
    assert first.startswith(f"manifest.json: {expected}")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda it: it.update(extra=1), "manifest.json: extra: unknown key"),
        (lambda it: it.pop("inputs"), "manifest.json: inputs: the key is required"),
        (lambda it: it.update(image_id="x"), 'manifest.json: image_id: "x" is not a valid value'),
        (
            lambda it: it["inputs"]["artifacts"]["nssm"].update(url="https://a.test/x?secret"),
            "manifest.json: inputs.artifacts.nssm.url: a URL in a manifest must not have a query, a fragment or a user",
        ),
        (lambda it: it["report"].update(report_version=2), "manifest.json: report: report_version: must be 1"),
        (lambda it: it["report"].update(name="other"), "manifest.json: report.name: is other, but the manifest is of"),
        (lambda it: it["report"].update(target="x"), "manifest.json: report.target: is x, but the manifest is of aws"),
        (
            lambda it: it["report"]["resources"].extend(it["report"]["resources"][:1]),
            r"manifest.json: report.resources: system/registry:HKLM:\SOFTWARE",
        ),
        (lambda it: it.update(built=None, published=None), "manifest.json: built: no image was built"),
    ],
)
def test_a_manifest_that_contradicts_itself_is_refused(proof: Proof, change: Change, expected: str) -> None:
    proof.change(proof.manifest, change)
    assert said(check(proof, None), proof.folder)["manifest"][0].startswith(expected)


def test_the_labels_are_shown(proof: Proof) -> None:
    proof.change(proof.manifest, lambda it: it["labels"].update(cell="nightly", team="web"))
    summary = "43ed4e1a3e88057a: 9 artifacts, 2 images; labels cell=nightly, team=web"
    assert check(proof, None)["manifest"].summary == summary


def test_a_manifest_under_the_name_of_another_image_is_refused(proof: Proof) -> None:
    other = Proof(proof.folder, f"{'0' * 16}+01234567.json")
    proof.manifest.rename(other.manifest)
    assert said(check(other, None), proof.folder) == {
        "manifest": [
            f"{other.name}: image_id: is {IMAGE_ID}, but the file has the name of the image {'0' * 16}",
        ]
    }


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda it: it["inputs"]["images"].update({"": f"sha256:{OTHER}"}), "has a value that cannot be attested: "),
        (
            lambda it: it["published"]["images"].extend(it["published"]["images"]),
            "has a value that cannot be attested: two entries of subject have the same",
        ),
    ],
)
def test_a_value_that_no_document_can_have_is_refused(proof: Proof, change: Change, expected: str) -> None:
    proof.change(proof.manifest, change)
    [first, *_] = said(check(proof, None), proof.folder)["attestation"]
    assert first.startswith(f"manifest.json: {expected}")


def serial(manifest_sha256: str) -> str:
    """The serial number of the SBOM of a manifest."""
    return uuid.uuid5(sbom._SERIAL_NUMBERS, manifest_sha256).urn


def test_a_manifest_that_was_changed_after_it_was_attested_is_refused(proof: Proof) -> None:
    before = sha256_of(proof.manifest)
    proof.change(proof.manifest, lambda it: it["inputs"]["artifacts"]["nssm"].update(sha256=OTHER))
    now = sha256_of(proof.manifest)
    nssm = "55" * 32
    assert said(check(proof), proof.folder) == {
        "attestation": [
            "manifest.provenance.json: predicate.buildDefinition.resolvedDependencies[artifact/nssm].digest.sha256: "
            f"is {nssm}, {SAYS} {OTHER}",
            f"manifest.provenance.json: subject[manifest.json].digest.sha256: is {before}, {SAYS} {now}",
        ],
        "sbom": [
            f"manifest.cdx.json: components[nssm].externalReferences[0].hashes[0].content: is {nssm}, {SAYS} {OTHER}",
            f"manifest.cdx.json: components[nssm].hashes[0].content: is {nssm}, {SAYS} {OTHER}",
            f"manifest.cdx.json: metadata.component.imagegen:manifest-sha256: is {before}, {SAYS} {now}",
            f"manifest.cdx.json: serialNumber: is {serial(before)}, {SAYS} {serial(now)}",
        ],
    }


# The SBOM. Without an attestation nothing has its digest.

WINDOWS = 11
SHIM = "components[containerd].components[C:\\Program Files\\containerd\\containerd-shim-runhcs-v1.exe"
PRODUCT = "components[Windows Server 2022 Datacenter]"
HASH = {"alg": "SHA-256", "content": OTHER}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            lambda it: it["components"][0]["hashes"][0].update(content=OTHER),
            "components[cloudbase-init].hashes[0].content: is ",
        ),
        (
            lambda it: it["components"][0]["externalReferences"][0].update(url="https://evil.example.com"),
            "components[cloudbase-init].externalReferences[0].url: is https://evil.example.com, but",
        ),
        (lambda it: it["components"][0].pop("hashes"), "components[cloudbase-init].hashes[0].alg: is missing"),
        (lambda it: it["components"].pop(0), "components[cloudbase-init].bom-ref: is missing"),
        (
            lambda it: it["components"].append(it["components"][0]),
            "components[cloudbase-init (2)].bom-ref: is ",
        ),
        (
            lambda it: it["components"][1]["components"][0]["hashes"][0].update(content=OTHER),
            f"{SHIM}].hashes[0].content: is {OTHER}, but",
        ),
        (
            lambda it: it["components"][1].pop("components"),
            f"{SHIM}].bom-ref: is missing",
        ),
        (
            lambda it: it["components"][1]["components"].append(it["components"][1]["components"][0]),
            f"{SHIM} (2)].bom-ref: is artifact/",
        ),
        (
            lambda it: it["components"].append({"type": "file", "name": "more", "hashes": [HASH]}),
            "components[more].hashes[0].alg: is SHA-256, but the manifest has no such value",
        ),
        (
            lambda it: it["components"][WINDOWS].update(version="10.0.20348.1"),
            f"{PRODUCT}.version: is 10.0.20348.1, but the manifest says 10.0.20348.5499",
        ),
        (
            lambda it: it["metadata"]["component"].update(name="other"),
            "metadata.component.name: is other, but the manifest says",
        ),
        (lambda it: it.update(vulnerabilities=[]), "vulnerabilities: is [], but the manifest has no such value"),
        (
            lambda it: it["components"][WINDOWS].update(type="library"),
            f"{PRODUCT}.type: is",
        ),
    ],
)
def test_an_sbom_of_something_else_is_refused(proof: Proof, change: Change, expected: str) -> None:
    proof.files.attestation.unlink()
    proof.change(proof.files.sbom, change)
    [(name, (first, *_))] = said(check(proof, None), proof.folder).items()
    assert (name, first.startswith(f"manifest.cdx.json: {expected}")) == ("sbom", True), first


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x", "is not valid JSON: "),
        ('{"version": 1, "version": 2}', "is not valid JSON: duplicate key 'version'"),
        ("[]", "is not an SBOM in the form of CycloneDX"),
        ('{"components": [], "x": ' + "[" * 900 + "]" * 900 + "}", "is nested too deeply"),
        (65 * 2**20, "the file is too large"),
    ],
    ids=["nonsense", "twice", "list", "deep", "large"],
)
def test_an_sbom_that_is_none_is_refused(proof: Proof, text: str | int, expected: str) -> None:
    proof.files.attestation.unlink()
    fill(proof.files.sbom, text)
    [first, *_] = said(check(proof, None), proof.folder)["sbom"]
    assert first.startswith(f"manifest.cdx.json: {expected}")


def test_an_sbom_is_the_one_of_its_attestation(proof: Proof) -> None:
    before = sha256_of(proof.files.sbom)
    proof.files.sbom.write_bytes(proof.files.sbom.read_bytes() + b"\n")
    assert said(check(proof), proof.folder) == {
        "sbom": [f"manifest.cdx.json: has sha256 {sha256_of(proof.files.sbom)}, but the attestation says {before}"]
    }


# The lock.


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            lambda it: it["artifacts"]["nssm"].update(sha256=OTHER),
            f"artifacts.nssm.sha256: is {OTHER}, {SAYS} {'55' * 32}",
        ),
        (
            lambda it: it["artifacts"]["executable-1"].update(url="https://evil.example.com/agent.exe"),
            f"artifacts.executable-1.url: is https://evil.example.com/agent.exe, {SAYS} https://artifacts.example.com/",
        ),
        (lambda it: it["artifacts"].pop("nssm"), f"artifacts.nssm.sha256: is missing, {SAYS} {'55' * 32}"),
        (
            lambda it: it["base_images"]["aws"]["place"].update(ami_id="ami-other"),
            f"base_images.aws.place.ami_id: is ami-other, {SAYS} ami-18852ca7b6804ad83",
        ),
        (
            lambda it: it.update(base_images={}),
            f"base_images.aws.identity.name: is missing, {SAYS} Windows_Server-2022",
        ),
        (lambda it: it["images"].pop(PAUSE), f"images.{PAUSE}: is missing, {SAYS} sha256:{'aa' * 32}"),
        (
            lambda it: it["images"][PAUSE].update(digest=f"sha256:{OTHER}", manifest=f"sha256:{OTHER}"),
            f"images.{PAUSE}: is sha256:{OTHER} or sha256:{'c' * 64}, {SAYS} sha256:{'aa' * 32}",
        ),
        (lambda it: it["artifacts"].pop("other"), "has sha256 "),
    ],
)
def test_another_lock_is_refused(proof: Proof, change: Change, expected: str) -> None:
    recorded = sha256_of(proof.lock)
    proof.change(proof.lock, change)
    proof.lock.write_bytes(lock_bytes(Lock.model_validate(proof.read(proof.lock))))
    [(name, problems)] = said(check(proof, lock=proof.lock), proof.folder).items()
    assert (name, problems[0].startswith(f"image.lock.json: {expected}")) == ("lock", True), problems
    assert problems[-1] == (
        f"image.lock.json: has sha256 {sha256_of(proof.lock)}, but the image was built with a lock of sha256 {recorded}"
    )


def test_an_older_manifest_is_compared_with_the_entries_of_the_lock(proof: Proof) -> None:
    proof.change(proof.manifest, lambda it: it["inputs"].update(lock_sha256=None))
    proof.attest("ed25519")
    checks = check(proof, lock=proof.lock)
    assert said(checks, proof.folder) == {}
    assert checks["lock"].summary == "same inputs; the manifest is older and has no digest of its lock"


@pytest.mark.parametrize("text", ["x", '{"labels": {}, "labels": {}}', "[]"])
def test_a_lock_that_is_none_is_refused(proof: Proof, text: str) -> None:
    proof.lock.write_text(text)
    checks = check(proof, lock=proof.lock)
    assert [name for name, one in checks.items() if one.status == "failed"] == ["lock"]
    assert {one.hint for one in checks["lock"].problems} == {
        "give the lock as it was at the build, from your repository"
    }


# The node.


def line_of(proof: Proof) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(proof.node.read_text().splitlines()[-1].removeprefix("imagegen-check: "))
    return found


def write_line(proof: Proof, change: Change) -> None:
    line = line_of(proof)
    change(line)
    proof.node.write_text(f"imagegen-check: {json.dumps(line)}\n")


def drift(line: dict[str, Any], status: str, *reasons: str) -> None:
    line["resources"][1].update(status=status, reasons=[*reasons])
    line["count"].update({"ok": 2, status: 1})


MANIFEST_NEEDS = "but the manifest's image needs"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda it: it.update(plan_sha256=OTHER), [f"plan_sha256: is {OTHER}, {MANIFEST_NEEDS} {{plan}}"]),
        (lambda it: it.update(name="other"), [f"name: is other, {MANIFEST_NEEDS} windows-2022-containerd"]),
        (lambda it: it.update(target="toy"), [f"target: is toy, {MANIFEST_NEEDS} aws"]),
        (lambda it: it.update(phase="phase-1"), [f"phase: is phase-1, {MANIFEST_NEEDS} all"]),
        (lambda it: it.update(booted=False), ["booted: is false: this is no node that booted from an image"]),
        (
            lambda it: drift(it, "drifted", "sha256 is 1, not 2", "size"),
            ["{file}: has drifted: sha256 is 1, not 2; size"],
        ),
        (lambda it: drift(it, "failed", "Access is denied"), ["{file}: could not be read: Access is denied"]),
        (lambda it: drift(it, "skipped"), ["{file}: is skipped, but a node may not change this resource"]),
        (
            lambda it: it["machine"].update(ubr=1),
            ["machine.ubr: is 1, but the image was built with {ubr}"],
        ),
        (
            lambda it: it["machine"].update(build=1),
            ["machine.build: is 1, but the image was built with 20348"],
        ),
        (
            lambda it: it["count"].update(ok=2, drifted=1),
            [
                "count.ok: is 2, but the list has 3 resources with this status",
                "count.drifted: is 1, but the list has 0 resources with this status",
            ],
        ),
        (
            lambda it: (it["resources"].pop(1), it["count"].update(ok=2)),
            ["resources: 2 resources, but the manifest's report has 3; they differ in {file}"],
        ),
        (
            lambda it: it["resources"].reverse(),
            ["resources: 3 resources, but the manifest's report has 3; they differ in their order"],
        ),
    ],
)
def test_a_node_of_another_image_and_drift_are_told(proof: Proof, change: Change, expected: list[str]) -> None:
    line = line_of(proof)
    values = {"plan": line["plan_sha256"], "file": line["resources"][1]["id"], "ubr": line["machine"]["ubr"]}
    write_line(proof, change)
    assert said(check(proof, node=proof.node), proof.folder).get("node", []) == [
        f"check.txt: {line.format(**values)}" for line in expected
    ]


def skip(line: dict[str, Any], resources: list[dict[str, Any]]) -> None:
    for one in resources:
        one.update(status="skipped", reasons=["a node may change it after its first boot"])
    line["count"].update(ok=len(line["resources"]) - len(resources), skipped=len(resources))


def test_only_what_a_node_may_change_may_be_skipped(proof: Proof) -> None:
    first = line_of(proof)["resources"][0]["id"]
    proof.change(proof.manifest, lambda it: it["inputs"].update(first_boot=[first]))
    proof.attest("ed25519")
    write_line(proof, lambda it: skip(it, it["resources"][:1]))
    assert said(check(proof, node=proof.node), proof.folder) == {}
    # Every resource of the list may be skipped, but a result without a test proves nothing.
    everything = [one["id"] for one in line_of(proof)["resources"]]
    proof.change(proof.manifest, lambda it: it["inputs"].update(first_boot=everything))
    proof.attest("ed25519")
    write_line(proof, lambda it: skip(it, it["resources"]))
    nothing = {"node": ["check.txt: resources: all are skipped: nothing was tested"]}
    assert said(check(proof, node=proof.node), proof.folder) == nothing


def test_an_older_manifest_does_not_say_what_may_be_skipped(proof: Proof) -> None:
    proof.change(proof.manifest, lambda it: it["inputs"].pop("first_boot"))
    proof.attest("ed25519")
    write_line(proof, lambda it: skip(it, it["resources"][:1]))
    assert said(check(proof, node=proof.node), proof.folder) == {}
    write_line(proof, lambda it: skip(it, it["resources"]))
    nothing = {"node": ["check.txt: resources: all are skipped: nothing was tested"]}
    assert said(check(proof, node=proof.node), proof.folder) == nothing


def test_a_repeated_resource_is_tested_once(proof: Proof) -> None:
    """The report has it in each round, and -Check tests it in the last one."""
    update = "windows-updates/update:all"
    resources = proof.read(proof.manifest)["report"]["resources"]
    rounds = [{**resources[0], "id": f"{update} (round {number})", "facts": None} for number in (1, 2, 3)]
    proof.change(proof.manifest, lambda it: it["report"].update(resources=[*resources, *rounds]))
    proof.change(proof.manifest, lambda it: it["inputs"].update(first_boot=[one["id"] for one in rounds]))
    proof.attest("ed25519")
    missing = f"check.txt: resources: 3 resources, but the manifest's report has 4; they differ in {update} (round 3)"
    assert said(check(proof, node=proof.node), proof.folder) == {"node": [missing]}
    last = {"id": f"{update} (round 3)", "status": "skipped", "reasons": ["a node may change it"]}
    write_line(proof, lambda it: (it["resources"].append(last), it["count"].update(skipped=1)))
    assert said(check(proof, node=proof.node), proof.folder) == {}


def test_a_manifest_without_a_report_has_nothing_to_compare_with(proof: Proof) -> None:
    proof.change(proof.manifest, lambda it: it.update(report=None, report_missing="another run made the image"))
    assert said(check(proof, None, node=proof.node), proof.folder)["node"] == [
        "check.txt: the manifest has no report of the machine to compare with: another run made the image"
    ]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("form", ["{line}", "imagegen-check: {line}", "a\r\nimagegen-check: {line}\r\n\r\n"])
def test_the_line_is_found_however_it_was_saved(proof: Proof, encoding: str, form: str) -> None:
    """Windows PowerShell writes a redirected output in UTF-16."""
    line = json.dumps(line_of(proof))
    proof.node.write_bytes(form.replace("{line}", line).encode(encoding))
    assert said(check(proof, node=proof.node), proof.folder) == {}


def test_other_lines_may_have_any_encoding(proof: Proof) -> None:
    proof.node.write_bytes("für\r\n".encode("cp1252") + proof.node.read_bytes())
    assert said(check(proof, node=proof.node), proof.folder) == {}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 'has no line that begins with "imagegen-check:": start.ps1 ended before it tested anything'),
        (
            b"failed: the bundle's sha256 is x\r\n",
            'has no line that begins with "imagegen-check:": start.ps1 ended before it tested anything',
        ),
        (b"imagegen-check: {}\nimagegen-check: {}\n", 'has 2 lines that begin with "imagegen-check:"'),
        (b"imagegen-check: {", "is not valid JSON: "),
        (b'{"a": 1, "a": 1}', "is not valid JSON: duplicate key 'a'"),
        (b'imagegen-check: {"a": 1}', "check_version: the key is required"),
        (b"\xff\xfe\x00", "has no line that begins with "),
        (b"\xc3\x28", "has no line that begins with "),
        (codecs.BOM_UTF8 + b"{}", "check_version: the key is required"),
        (33 * 2**20, "the file is too large"),
    ],
    ids=["empty", "failed", "two", "cut", "twice", "other", "utf-16", "utf-8", "bom", "large"],
)
def test_a_file_without_a_result_is_refused(proof: Proof, data: bytes | int, expected: str) -> None:
    fill(proof.node, data)
    first, *_ = said(check(proof, node=proof.node), proof.folder)["node"]
    assert first.startswith(f"check.txt: {expected}")
