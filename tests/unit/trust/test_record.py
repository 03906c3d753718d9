"""What a lock says about signers is enough for a policy, is not enough, or shows that somebody else signed."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Any

import pytest

from imagegen.authenticode.model import Name
from imagegen.authenticode.signer import parse_signer
from imagegen.config.artifact_policy import Signatures
from imagegen.config.yaml import parse_yaml
from imagegen.fetch.lock import WHOLE_FILE, LockedArtifact, LockedIssuer, LockedSignature
from imagegen.trust.policy import SignatureRequest, UsedFiles
from imagegen.trust.record import RecordedCertificate, is_covered, judge_records, wrong_signer

if TYPE_CHECKING:
    from collections.abc import Mapping

SHA = "ab" * 32
ROOT = LockedIssuer(subject="CN=Example Root, O=Example", thumbprint="cd" * 32)
CA = LockedIssuer(subject="CN=Example Code CA, O=Example", thumbprint="ef" * 32)


class All:
    """Every file of an archive."""

    def select(self, members: Mapping[str, str] | None) -> dict[str, frozenset[str]]:
        return {member: frozenset({member}) for member in ([WHOLE_FILE] if members is None else members)}


def signature(**changes: Any) -> LockedSignature:  # noqa: ANN401 - any field
    known = LockedSignature(
        signer='CN=Example, O="Example, Inc."', thumbprint=SHA, sha1="12" * 20, root=ROOT, issuers=[CA]
    )
    return known.model_copy(update=changes)


def entry(
    signed: dict[str, LockedSignature] | None, *others: str, members: dict[str, str] | None = None
) -> LockedArtifact:
    return LockedArtifact(
        url="https://x.test/a", sha256=SHA, size=1, members=members, signed=signed, not_programs=list(others)
    )


def request(*signers: object, used: UsedFiles | None = None) -> SignatureRequest:
    return SignatureRequest(
        artifact="agent",
        used=used or All(),
        signers=tuple(map(parse_signer, signers)),
        key="artifacts.signatures.signers",
        override="overrides.agent_url",
    )


@pytest.mark.parametrize(
    "signers",
    [
        (),
        ("CN=Example",),
        ('O="Example, Inc."',),
        ("CN=Other", "CN=Example"),
        (SHA,),
        ("12" * 20,),
        ("issuer: CN=Example Code CA",),
        ({"issuer": "CN=Example Root", "subject": "CN=Example"},),
        ({"issuer": "ef" * 32},),
    ],
)
def test_facts_that_satisfy_a_policy(signers: tuple[object, ...]) -> None:
    assert judge_records(request(*signers), entry({WHOLE_FILE: signature()})) == []


@pytest.mark.parametrize(
    ("signers", "says"),
    [
        (("CN=Other",), 'agent is signed by CN=Example, O="Example, Inc.", but artifacts.signatures.signers requires '
         'CN=Other: CN is "Example", not "Other"'),
        (("34" * 20,), "not " + "34" * 20),
        (("34" * 32,), "not " + "34" * 32),
        (("issuer: CN=Other CA",), 'of the issuer, CN is "Example Code CA", not "Other CA"'),
    ],
)  # fmt: skip
def test_facts_that_show_another_signer(signers: tuple[object, ...], says: str) -> None:
    found = judge_records(request(*signers), entry({WHOLE_FILE: signature()}))
    assert found is not None
    (problem,) = found
    assert says in problem.message
    assert "add 'CN=Example, O=\"Example, Inc.\"' to artifacts.signatures.signers" in problem.hint


NAMES = {
    "another alphabet": (("CN", "Müller GmbH"), ("O", "東京")),
    "marks of YAML": (("CN", "it's: a #1 'name'"), ("O", '"quoted", & <more>; {x: [y]}')),
    "too long": (("CN", "x" * 1100),),
    "an empty value": (("CN", "Example"), ("O", "")),
    "an invisible letter": (("CN", "Exam\u200bple"),),
    "no name": (),
    "no organisation": (("STREET", "Main Street"), ("OU", "One")),
}


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
@pytest.mark.parametrize("key", ["artifacts.signatures.signers", "overrides.agent_url.signer"])
def test_the_signer_of_a_hint_can_be_typed_and_is_allowed_then(name: tuple[tuple[str, str], ...], key: str) -> None:
    signer = RecordedCertificate(Name(name), SHA.upper(), "12" * 20)
    problem = wrong_signer(
        dataclasses.replace(request("CN=Other"), key=key, has_own_signer=key.endswith(".signer")), "", signer, ()
    )
    advised = re.search(f"(?:add ('.*') to {key}|set {key} to ('.*'));", problem.hint)
    assert advised
    written = parse_yaml(f"signers: [{advised[1] or advised[2]}]\n".encode(), "config.yaml").data
    (valid,) = Signatures.model_validate(written).signers
    assert valid.rule.matches(signer)


@pytest.mark.parametrize(
    ("signers", "found"),
    [
        # Only the bytes tell a SHA-1 that the lock does not have.
        (("34" * 20,), entry({WHOLE_FILE: signature(sha1=None)})),
        (({"issuer": "34" * 20},), entry({WHOLE_FILE: signature()})),
        (("CN=Example",), entry({WHOLE_FILE: signature(signer="no name at all")})),
        (("CN=Example",), entry(None)),
        (("CN=Example",), entry({"a": signature()}, members={"a": SHA, "b": SHA})),
    ],
    ids=["sha1 of the signer", "sha1 of an issuer", "not a name", "never checked", "a file that was not checked"],
)
def test_facts_that_are_not_enough(signers: tuple[object, ...], found: LockedArtifact) -> None:
    assert judge_records(request(*signers), found) is None


def test_each_file_is_signed_or_no_program() -> None:
    known = entry({"a": signature()}, "b", members={"a": SHA, "b": SHA})
    assert is_covered(request(), known)
    assert not is_covered(request(), known.model_copy(update={"not_programs": []}))


def test_an_artifact_that_the_image_does_not_get_needs_no_facts() -> None:
    class Nothing:
        def select(self, members: Mapping[str, str] | None) -> dict[str, frozenset[str]]:
            del members
            return {}

    assert is_covered(request(used=Nothing()), entry(None))
