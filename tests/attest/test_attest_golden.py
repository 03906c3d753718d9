"""The documents about a manifest: as agreed, and as the validators of their makers read them. To update: make golden.

The manifest of `aws` has an override, a mirror, a program of the operator and container images. That of `azure` was
recorded by an imagegen that kept less.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from google.protobuf import json_format
from in_toto_attestation.predicates.provenance.v1 import provenance_pb2
from in_toto_attestation.v1 import statement_pb2
from in_toto_attestation.v1.statement import Statement

from imagegen.record.attest import Documents, make_documents
from imagegen.record.store import find_contradictions, read_manifest
from tests.golden_files import compare_golden
from tests.json_schema import import_jsonschema

HERE = Path(__file__).parent
CLOUDS = ("aws", "azure")


def documents(cloud: str) -> Documents:
    return make_documents(read_manifest(HERE / cloud / "manifest.json"), None)


@pytest.mark.parametrize("cloud", CLOUDS)
def test_documents_are_as_agreed(cloud: str) -> None:
    assert list(find_contradictions(read_manifest(HERE / cloud / "manifest.json"))) == []
    made = documents(cloud)
    compare_golden(
        {
            HERE / cloud / "manifest.provenance.json": made.attestation.decode(),
            HERE / cloud / "manifest.cdx.json": made.sbom.decode(),
        }
    )


@pytest.mark.parametrize("cloud", CLOUDS)
def test_the_validator_of_cyclonedx_accepts_the_sbom(cloud: str) -> None:
    # It uses jsonschema.
    import_jsonschema()
    from cyclonedx.validation.json import JsonStrictValidator

    fault = JsonStrictValidator(SchemaVersion.V1_7).validate_str(documents(cloud).sbom.decode())
    assert fault is None, fault


def test_the_newest_form_of_cyclonedx_that_the_library_writes_is_used() -> None:
    assert max(SchemaVersion) is SchemaVersion.V1_7


def read_as_in_toto(data: dict[str, Any]) -> Any:  # noqa: ANN401 - a message of protobuf
    """The provenance in a statement, as in-toto's library reads and validates both. An unknown key is an error."""
    message = statement_pb2.Statement()
    json_format.ParseDict(data, message)
    Statement.copy_from_pb(message).validate()
    predicate = provenance_pb2.Provenance()
    json_format.ParseDict(json_format.MessageToDict(message.predicate), predicate)
    return predicate


@pytest.mark.parametrize("cloud", CLOUDS)
def test_the_library_of_in_toto_accepts_the_statement(cloud: str) -> None:
    made = documents(cloud)
    data = json.loads(made.attestation)
    provenance = read_as_in_toto(data)
    assert data["_type"] == "https://in-toto.io/Statement/v1"
    assert data["predicateType"] == "https://slsa.dev/provenance/v1"
    # What SLSA requires (https://slsa.dev/spec/v1.0/provenance), which protobuf does not.
    assert provenance.build_definition.build_type
    assert provenance.build_definition.external_parameters
    assert provenance.run_details.builder.id
    dependencies = provenance.build_definition.resolved_dependencies
    assert all(one.uri or one.digest for one in dependencies)
    assert [one.digest["sha256"] for one in provenance.run_details.byproducts] == [
        hashlib.sha256(made.sbom).hexdigest()
    ]
    manifest = json.loads((HERE / cloud / "manifest.json").read_bytes())
    digests = {one.digest["sha256"] for one in dependencies if "sha256" in one.digest}
    assert {one["sha256"] for one in manifest["inputs"]["artifacts"].values()} <= digests


@pytest.mark.parametrize("key", ["subjects", "predicat"])
def test_the_library_of_in_toto_rejects_another_key(key: str) -> None:
    with pytest.raises(json_format.ParseError):
        read_as_in_toto(json.loads(documents("aws").attestation) | {key: {}})


def test_the_subjects_are_what_a_verifier_can_check() -> None:
    """Every tool can compute the digest of the manifest. An image in a cloud has its id there, and a tag."""
    folder = HERE / "aws"
    first, *images = json.loads(documents("aws").attestation)["subject"]
    manifest = json.loads((folder / "manifest.json").read_bytes())
    assert first["digest"] == {"sha256": hashlib.sha256((folder / "manifest.json").read_bytes()).hexdigest()}
    assert [one["digest"] for one in images] == [
        {"cloudImageId": one["id"], "imagegenImageId": manifest["image_id"]} for one in manifest["published"]["images"]
    ]
