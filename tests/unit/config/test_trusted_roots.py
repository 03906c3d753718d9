"""windows.trusted_roots: the certificates in the files, and the files that cannot be used."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imagegen.base.errors import ConfigError
from tests.authenticode.pki import LATER, make_ca, make_root, pki
from tests.conftest import REPOSITORY, load_today

if TYPE_CHECKING:
    from pathlib import Path

    from imagegen.plan.loading import Loaded

TEXT = (REPOSITORY / "configs" / "windows-2022-containerd.yaml").read_text(encoding="utf-8")
ROOT, OTHER = pki().root, make_root("O=Other, CN=Other Root")
HINT = "give a root certificate as PEM or DER"


def load(folder: Path, **files: bytes) -> Loaded:
    for name, data in files.items():
        (folder / f"{name}.pem").write_bytes(data)
    names = ", ".join(f"{name}.pem" for name in files)
    text = TEXT.replace("windows:\n", f"windows:\n  trusted_roots: [{names}]\n", 1)
    (folder / "config.yaml").write_text(text)
    return load_today(folder / "config.yaml")


@pytest.mark.parametrize("encoded", [ROOT.pem, ROOT.der, b"a note\r\n" + ROOT.pem], ids=["PEM", "DER", "a note"])
def test_a_root_is_pem_or_der(tmp_path: Path, encoded: bytes) -> None:
    spec = load(tmp_path, root=encoded).specs["aws"]
    (found,) = spec.facts.certificates
    assert (found.store, found.thumbprint, found.subject) == ("Root", ROOT.read.sha1, "CN=Example Root, O=Example")
    assert spec.own_files["facts.certificates[0]"].data == ROOT.der


def test_a_file_may_have_several_and_each_counts_once(tmp_path: Path) -> None:
    spec = load(tmp_path, both=ROOT.pem + OTHER.pem, again=ROOT.pem).specs["aws"]
    assert [one.thumbprint for one in spec.facts.certificates] == [ROOT.read.sha1, OTHER.read.sha1]
    assert [spec.own_files[f"facts.certificates[{at}]"].data for at in (0, 1)] == [ROOT.der, OTHER.der]


def test_an_expired_root_may_be_needed_for_what_was_signed_before(tmp_path: Path) -> None:
    old = make_root("CN=Old Root", valid=(ROOT.read.not_before, LATER.replace(year=2020)))
    assert load(tmp_path, old=old.pem).specs["aws"].facts.certificates


REFUSED = {
    "an intermediate": (
        make_ca(ROOT).pem,
        "CN=Example Code CA, O=Example is not a root: its issuer is CN=Example Root, O=Example",
        "give the certificate of the root. A signature or a server brings the certificates below it",
    ),
    "no authority": (
        make_root("CN=Mine", ca=False).pem,
        "CN=Mine is not a certificate authority",
        "give the root to which the certificate of the signer or of the server leads",
    ),
    "a private key": (
        ROOT.pem + ROOT.key_pem,
        "it has a private key, which no machine may have",
        "leave only the certificate in the file",
    ),
    "no certificate": (b"-----BEGIN NOTHING-----\n", "it has no certificate", HINT),
    "an empty file": (b"", "it has no certificate", HINT),
    "other bytes": (b"\x00\x01", "a certificate cannot be read", HINT),
    "a cut certificate": (ROOT.der[:-1], "a certificate cannot be read", HINT),
    "too many": (OTHER.pem * 101, "it has 101 certificates, at most 100 are allowed", "leave out the others"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_file_that_cannot_be_used(tmp_path: Path, case: str) -> None:
    data, says, hint = REFUSED[case]
    with pytest.raises(ConfigError) as raised:
        load(tmp_path, root=data)
    (problem,) = [one for one in raised.value.problems if one.severity == "error"]
    assert (problem.path, problem.message, problem.hint) == ("windows.trusted_roots[0]", f"root.pem: {says}", hint)


def test_a_file_that_is_missing_has_one_problem(tmp_path: Path) -> None:
    load(tmp_path, root=ROOT.pem)
    (tmp_path / "root.pem").unlink()
    with pytest.raises(ConfigError) as raised:
        load_today(tmp_path / "config.yaml")
    (problem,) = [one for one in raised.value.problems if one.severity == "error"]
    assert problem.message == f"the file {tmp_path / 'root.pem'} does not exist"
