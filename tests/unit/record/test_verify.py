"""What belongs together verifies, and each change of one of the documents is refused by its own message."""

from __future__ import annotations

import base64
import copy
import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.attest_support import KINDS, OTHER, check, fill, public, said, sha256_of, signing_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.attest_support import Change, Proof


@pytest.mark.parametrize("kind", [*KINDS, None])
def test_what_belongs_together_verifies(proof: Proof, kind: str | None) -> None:
    proof.attest(kind)
    checks = check(proof, kind, lock=proof.lock, node=proof.node)
    assert {name: one.status for name, one in checks.items()} == dict.fromkeys(
        ("manifest", "attestation", "sbom", "lock", "node"), "ok"
    )
    assert checks["node"].summary == "ip-10-0-0-7: 3 ok"
    expected = f"key {signing_key(kind).public.id}" if kind else "not signed: anybody can have written it"
    assert expected in checks["attestation"].summary


def test_without_a_key_nobody_knows_who_signed(proof: Proof) -> None:
    assert check(proof, None)["attestation"].summary == "signed, but without --key nobody knows by whom"


def test_without_documents_there_is_only_the_manifest(proof: Proof) -> None:
    for path in (proof.files.attestation, proof.files.sbom):
        path.unlink()
    assert {name: one.status for name, one in check(proof, None).items()} == {
        "manifest": "ok",
        "attestation": "skipped",
        "sbom": "skipped",
    }
    assert said(check(proof), proof.folder) == {"attestation": ["manifest.provenance.json: does not exist"]}


def test_an_attestation_without_its_sbom_is_refused(proof: Proof) -> None:
    proof.files.sbom.unlink()
    assert said(check(proof), proof.folder) == {"sbom": ["manifest.cdx.json: does not exist"]}


# Signatures.


def test_an_unsigned_attestation_is_refused_where_a_key_is_given(proof: Proof) -> None:
    proof.attest(None)
    assert said(check(proof), proof.folder) == {
        "attestation": ["manifest.provenance.json: is not signed, but --key is given"]
    }


@pytest.mark.parametrize("kind", ["other", "p256", "rsa"])
def test_another_key_is_refused(proof: Proof, kind: str) -> None:
    key, signer = public(kind), public("ed25519")
    assert said(check(proof, kind), proof.folder) == {
        "attestation": [
            f"manifest.provenance.json: signatures: has no valid signature by the {key.kind} key {key.id}, "
            f"but names {signer.id}"
        ]
    }


def test_a_signature_that_only_names_the_key_is_refused(proof: Proof) -> None:
    """The name of the key is not signed: anybody can write it there."""
    proof.attest("other")
    key = public("ed25519")
    proof.change(proof.files.attestation, lambda it: it["signatures"][0].update(keyid=key.id))
    [problem] = said(check(proof), proof.folder)["attestation"]
    assert problem.endswith(f"by the Ed25519 key {key.id}: it was changed after it was signed")


def test_one_of_two_signatures_is_enough(proof: Proof) -> None:
    envelope = proof.read(proof.files.attestation)
    proof.attest("p256")
    proof.change(proof.files.attestation, lambda it: it["signatures"].extend(envelope["signatures"]))
    # The statement is the same, so each signature is valid.
    assert said(check(proof, "ed25519"), proof.folder) == {}
    assert said(check(proof, "p256"), proof.folder) == {}
    assert said(check(proof, "other"), proof.folder)["attestation"][0].endswith(
        f"but names {public('p256').id} and {public('ed25519').id}"
    )


def payload_of(envelope: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(base64.b64decode(envelope["payload"]))
    return found


def with_payload(envelope: dict[str, Any], payload: object) -> None:
    envelope["payload"] = base64.b64encode(json.dumps(payload).encode()).decode()


@pytest.mark.parametrize("at", range(0, 6000, 37))
def test_no_changed_byte_of_the_payload_verifies(proof: Proof, at: int) -> None:
    envelope = proof.read(proof.files.attestation)
    payload = bytearray(base64.b64decode(envelope["payload"]))
    payload[at % len(payload)] ^= 1
    envelope["payload"] = base64.b64encode(payload).decode()
    proof.files.attestation.write_text(json.dumps(envelope))
    assert said(check(proof), proof.folder)["attestation"] == [
        f"manifest.provenance.json: signatures: has no valid signature by the Ed25519 key "
        f"{public('ed25519').id}: it was changed after it was signed"
    ]


BUNDLE = "application/vnd.dev.sigstore.bundle.v0.3+json"


@pytest.mark.parametrize(
    ("material", "expected"),
    [
        ({"publicKey": {"hint": "x"}}, []),
        (
            {"certificate": {"rawBytes": "AA=="}},
            ["manifest.provenance.json: is signed with a certificate of Sigstore, not with a key"],
        ),
    ],
)
def test_a_bundle_of_sigstore_is_read(proof: Proof, material: dict[str, Any], expected: list[str]) -> None:
    envelope = proof.read(proof.files.attestation)
    bundle = {"mediaType": BUNDLE, "verificationMaterial": material, "dsseEnvelope": envelope}
    proof.files.attestation.write_text(json.dumps(bundle))
    assert said(check(proof), proof.folder).get("attestation", []) == expected


# Documents that are none.

NOT_JSON = "is not valid JSON: "
DEEP = "[" * 100_000
LARGE = 17 * 2**20


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", NOT_JSON),
        ("{", NOT_JSON),
        ("\x00", NOT_JSON),
        (DEEP, NOT_JSON),
        ("NaN", NOT_JSON),
        ("9" * 5000, NOT_JSON),
        ('{"a": 1, "a": 2}', f"{NOT_JSON}duplicate key 'a'"),
        ("[]", "is not a statement of in-toto"),
        ("{}", "_type: is missing, but the manifest says https://in-toto.io/Statement/v1"),
        ('{"payload": ""}', "payloadType: the key is required"),
        ('{"payload": "", "payloadType": "text/plain", "signatures": []}', "payloadType: must be '"),
        (LARGE, "the file is too large: it has 17825792 bytes, at most 16777216 are allowed"),
    ],
    ids=["empty", "cut", "zero", "deep", "NaN", "long", "twice", "list", "map", "part", "type", "large"],
)
def test_an_attestation_that_is_none_is_refused(proof: Proof, text: str | int, expected: str) -> None:
    fill(proof.files.attestation, text)
    first, *_ = said(check(proof, None), proof.folder)["attestation"]
    assert first.startswith(f"manifest.provenance.json: {expected}")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda it: it.update(payload="%%%"), "manifest.provenance.json: payload: is not valid base64"),
        (lambda it: it.update(extra=1), "manifest.provenance.json: extra: unknown key"),
        (lambda it: it.update(signatures=[]), "manifest.provenance.json: signatures: list should have at least 1"),
        (
            lambda it: it["signatures"].extend(it["signatures"] * 16),
            "manifest.provenance.json: signatures: list should",
        ),
        (lambda it: with_payload(it, []), "manifest.provenance.json: payload: is not a statement of in-toto"),
        (lambda it: it.update(payload=base64.b64encode(b'{"a":1,"a":1}').decode()), "duplicate key 'a'"),
    ],
)
def test_an_envelope_that_is_none_is_refused(proof: Proof, change: Change, expected: str) -> None:
    proof.change(proof.files.attestation, change)
    first, *_ = said(check(proof, None), proof.folder)["attestation"]
    assert expected in first


# Statements: a change of any value is found, whoever signed it.


def leaves(value: object, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    yield from (leaf for key, item in items for leaf in leaves(item, (*path, key)))
    if not isinstance(value, dict | list):
        yield path


def changed_at(value: Any, path: tuple[Any, ...], new: object = "another value") -> Any:  # noqa: ANN401 - JSON
    found = changed = copy.deepcopy(value)
    for key in path[:-1]:
        found = found[key]
    found[path[-1]] = new
    return changed


def test_every_changed_value_of_a_statement_is_found(proof: Proof) -> None:
    proof.attest(None)
    statement = proof.read(proof.files.attestation)
    places = list(leaves(statement))
    assert len(places) > 60
    for place in places:
        proof.files.attestation.write_text(json.dumps(changed_at(statement, place)))
        failed = {name for name, one in check(proof, None).items() if one.status == "failed"}
        # The digest of the SBOM is compared with the SBOM.
        assert failed == ({"sbom"} if "byproducts" in place and place[-1] == "sha256" else {"attestation"}), place


MANIFEST_SAYS = "but the manifest says"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            lambda it: it["subject"][0]["digest"].update(sha256=OTHER),
            [f"subject[manifest.json].digest.sha256: is {OTHER}, {MANIFEST_SAYS} {{manifest}}"],
        ),
        (
            lambda it: it["subject"][1]["digest"].update(cloudImageId="ami-other"),
            [f"subject[{{image}}].digest.cloudImageId: is ami-other, {MANIFEST_SAYS} ami-d15684bbdc300fee4"],
        ),
        (
            lambda it: it["subject"].append({"name": "us-west-9/x", "digest": {"cloudImageId": "ami-more"}}),
            [
                "subject[us-west-9/x].digest.cloudImageId: is ami-more, but the manifest has no such value",
                "subject[us-west-9/x].name: is us-west-9/x, but the manifest has no such value",
            ],
        ),
        (
            lambda it: it["predicate"]["buildDefinition"]["resolvedDependencies"].pop(0),
            [
                f"{{definition}}resolvedDependencies[lock].digest.sha256: is missing, {MANIFEST_SAYS} {{lock}}",
                f"{{definition}}resolvedDependencies[lock].name: is missing, {MANIFEST_SAYS} lock",
            ],
        ),
        (
            lambda it: it["predicate"]["buildDefinition"]["resolvedDependencies"][2]["digest"].update(sha256=OTHER),
            [
                "{definition}resolvedDependencies[artifact/cloudbase-init].digest.sha256: "
                f"is {OTHER}, {MANIFEST_SAYS} 402f7d610f41fb5afb57f3d5d51509a1f9130aff91f2b5f6a412a0fb8df6f246"
            ],
        ),
        (
            lambda it: it["subject"].append(it["subject"][0]),
            [
                f"subject[manifest.json (2)].{key}: is {value}, but the manifest has no such value"
                for key, value in (
                    *(("digest.sha256", "{manifest}"), ("mediaType", "application/json"), ("name", "manifest.json")),
                )
            ],
        ),
    ],
)
def test_a_statement_about_something_else_is_refused(proof: Proof, change: Change, expected: list[str]) -> None:
    values = {
        "manifest": sha256_of(proof.manifest),
        "image": "us-east-1/capa-ami-windows-2022-v1.36.4-20261119232214-43ed4e1a-83abef",
        "definition": "predicate.buildDefinition.",
        "lock": sha256_of(proof.lock),
    }
    proof.attest(None)
    proof.change(proof.files.attestation, change)
    assert said(check(proof, None), proof.folder)["attestation"] == [
        f"manifest.provenance.json: {line.format(**values)}" for line in expected
    ]


def test_true_is_not_one(proof: Proof) -> None:
    proof.change(proof.manifest, lambda it: it["inputs"]["stated"]["set"].update({"ssh": True}))
    proof.attest(None)
    parameters = ("predicate", "buildDefinition", "externalParameters", "set", "ssh")
    statement = changed_at(proof.read(proof.files.attestation), parameters, 1)
    proof.files.attestation.write_text(json.dumps(statement))
    assert said(check(proof, None), proof.folder)["attestation"] == [
        f"manifest.provenance.json: {'.'.join(parameters)}: is 1, but the manifest says true"
    ]


def test_only_the_first_problems_are_listed(proof: Proof) -> None:
    proof.attest(None)
    proof.change(proof.files.attestation, lambda it: it["predicate"]["buildDefinition"].update(resolvedDependencies=[]))
    problems = said(check(proof, None), proof.folder)["attestation"]
    assert len(problems) == 10
    assert re.search(r", and \d+ more$", problems[-1])
