"""The files that real programs made and signed: what is said about each."""

from __future__ import annotations

import io

import pytest

from imagegen.authenticode.model import FileKind, TimestampKind, Verdict
from imagegen.authenticode.verify import verify
from tests.authenticode.pki import LATER, STAMPED
from tests.authenticode.support import FIXTURES, fixture, fixture_trust, judge

V = Verdict
# For each file its form, the verdict when the certificates are valid, and that when they have expired.
ROWS = [
    ("program.exe", FileKind.PE, V.UNSIGNED, V.UNSIGNED),
    ("signed.exe", FileKind.PE, V.VALID, V.EXPIRED),
    ("stamped.exe", FileKind.PE, V.VALID, V.VALID),
    ("weak.exe", FileKind.PE, V.WEAK_DIGEST, V.EXPIRED),
    # The nested signature has a timestamp.
    ("nested.exe", FileKind.PE, V.VALID, V.VALID),
    ("package.msi", FileKind.MSI, V.UNSIGNED, V.UNSIGNED),
    ("signed.msi", FileKind.MSI, V.VALID, V.EXPIRED),
    ("stamped.msi", FileKind.MSI, V.VALID, V.VALID),
    ("script.ps1", FileKind.SCRIPT, V.UNSIGNED, V.UNSIGNED),
    ("signed.ps1", FileKind.SCRIPT, V.VALID, V.EXPIRED),
    ("stamped-mark.ps1", FileKind.SCRIPT, V.VALID, V.VALID),
    ("signed-wide.ps1", FileKind.SCRIPT, V.VALID, V.EXPIRED),
    ("signed.ps1xml", FileKind.SCRIPT, V.VALID, V.EXPIRED),
    ("signed.cat", FileKind.CATALOGUE, V.VALID, V.VALID),
]


@pytest.mark.parametrize(("name", "kind", "today", "later"), ROWS, ids=[row[0] for row in ROWS])
def test_verdict(name: str, kind: FileKind, today: Verdict, later: Verdict) -> None:
    found = judge(fixture(name), name, fixture_trust())
    assert (found.kind, found.verdict) == (kind, today), found.reason
    assert judge(fixture(name), name, fixture_trust(LATER)).verdict is later


def test_every_fixture_is_judged() -> None:
    others = {"root.pem", "clock-root.pem"}
    assert {path.name for path in FIXTURES.iterdir()} == {row[0] for row in ROWS} | others


def test_what_is_told_about_a_signature() -> None:
    found = judge(fixture("stamped.exe"), "stamped.exe", fixture_trust())
    signature = found.signature
    assert signature is not None
    assert signature.signer is not None
    assert signature.timestamp is not None
    assert signature.timestamp.authority is not None
    assert signature.root is not None
    assert found.reason == 'signed by "Example Inc", timestamped on 2026-03-01 by "Example Clock"'
    assert str(signature.signer.subject) == "CN=Example Inc, O=Example Inc, C=US"
    assert str(signature.signer.issuer) == "CN=Example Code CA, O=Example"
    assert (len(signature.signer.sha1), len(signature.signer.sha256)) == (40, 64)
    assert (signature.file_digest, signature.digest, signature.signer.key) == ("sha256", "sha256", "RSA 2048")
    assert [item.subject.short for item in signature.chain] == ["Example Inc", "Example Code CA", "Example Root"]
    assert signature.root.subject.short == "Example Root"
    assert (signature.timestamp.kind, signature.timestamp.time) == (TimestampKind.RFC3161, STAMPED)
    assert signature.timestamp.authority.subject.short == "Example Clock"
    assert [item.subject.short for item in signature.timestamp.chain] == ["Example Clock", "Example Clock Root"]
    assert not found.needs_nested


def test_a_nested_signature_counts_where_the_first_is_too_weak() -> None:
    found = judge(fixture("nested.exe"), "nested.exe", fixture_trust())
    assert [(item.verdict, item.digest, item.is_nested) for item in found.signatures] == [
        (V.WEAK_DIGEST, "sha1", False),
        (V.VALID, "sha256", True),
    ]
    assert found.signature is found.signatures[1]
    assert found.needs_nested


def test_a_path_is_opened() -> None:
    assert verify(FIXTURES / "signed.exe", "signed.exe", fixture_trust()).verdict is Verdict.VALID


def test_a_file_is_judged_from_wherever_it_stands() -> None:
    opened = io.BytesIO(fixture("signed.msi"))
    opened.seek(100)
    assert verify(opened, "signed.msi", fixture_trust()).verdict is Verdict.VALID
