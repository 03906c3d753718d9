"""Policies as data: a config, who signed the files of its artifacts, and what imagegen says. To update: make golden.

A case of cases.yml adds its config to base.yaml. Each row has files (a pattern of `artifact` or `artifact: path`) and
how they are signed (a key of WAYS). outcomes/ has what standard error would say, or who signed each program. `crls` of
a case are those of WAYS' CA.
"""

from __future__ import annotations

import dataclasses
import datetime
import fnmatch
import functools
import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from imagegen import pipeline
from imagegen.authenticode.trust import load_trust
from imagegen.base.errors import ExitCode
from imagegen.cli.output import error_text
from imagegen.config.yaml import parse_yaml
from imagegen.inspect.archive import open_artifacts
from imagegen.plan.context import artifact_requests
from imagegen.rehearsal.artifacts import make_artifacts
from imagegen.rehearsal.signing.authority import CodeSigner
from imagegen.rehearsal.signing.compound_file import MAGIC, sign_compound_file
from imagegen.trust.judge import check_signatures
from imagegen.trust.policy import signature_requests
from imagegen.trust.record import SignatureError
from imagegen.trust.sources import CrlUse
from tests.authenticode.pki import (
    CODE,
    NOW,
    STAMP,
    START,
    Identity,
    issue,
    make_authority,
    make_ca,
    make_crl,
    make_root,
    make_signer,
    rsa_key,
)
from tests.authenticode.signing import NESTED, Options, sign_pe, sign_script, signature_of
from tests.golden_files import compare_golden

if TYPE_CHECKING:
    from collections.abc import Callable

    from imagegen.plan.loading import Loaded
    from imagegen.trust.record import SignatureProblem

    Way = Callable[[str, bytes], bytes]

HERE = Path(__file__).parent
CASES: dict[str, Any] = parse_yaml((HERE / "cases.yml").read_bytes(), "cases.yml").data


@dataclasses.dataclass(frozen=True)
class Company:
    """The certificates of a company, and some that must not count."""

    root: Identity
    ca: Identity
    clock: Identity
    signer: Identity
    somebody: Identity
    revoked: Identity
    expired: Identity
    server: Identity
    stranger: Identity
    alone: Identity


@functools.cache
def company() -> Company:
    root = make_root("O=Example, CN=Example Root")
    ca = make_ca(root, "O=Example, CN=Example Code CA")
    early = (START, START + datetime.timedelta(days=200))
    others = make_ca(make_root("O=Other, CN=Other Root"), "O=Other, CN=Other CA")
    return Company(
        root=root,
        ca=ca,
        clock=make_authority(root, "O=Example, CN=Example Clock"),
        signer=_signer(ca),
        somebody=make_signer(ca, "C=US, O=Somebody Else, CN=Somebody Else"),
        revoked=_signer(ca),
        expired=_signer(ca, valid=early),
        server=_signer(ca, usages=[STAMP]),
        stranger=_signer(others),
        alone=_signer(None),
    )


def _signer(ca: Identity | None, **options: Any) -> Identity:  # noqa: ANN401 - those of `issue`
    """With an RSA key, as the signer of an MSI must have here."""
    name = "C=US, O=Example Corporation, CN=Example Corporation"
    return issue(name, ca, **{"usages": [CODE], "key_usages": ["digital_signature"], "key": rsa_key(), **options})


def _by(name: str, *clocks: str, **options: Any) -> Way:  # noqa: ANN401 - those of `Options`
    """Signed by one of the company's identities, with timestamps of others."""

    def sign(path: str, data: bytes) -> bytes:
        timestamps = [getattr(company(), clock) for clock in clocks]
        return _sign(path, data, getattr(company(), name), Options(timestamps=timestamps, **options))

    return sign


def _sign(path: str, data: bytes, signer: Identity, options: Options) -> bytes:
    if path.endswith((".ps1", ".psm1")):
        return sign_script(data, signer, options)
    if data.startswith(MAGIC):
        assert isinstance(signer.key, rsa.RSAPrivateKey)
        above = signer.issuer or signer
        return sign_compound_file(data, CodeSigner(signer.certificate, above.certificate, signer.key))
    return sign_pe(data, signer, options) if data.startswith(b"MZ") else data


def _changed(path: str, data: bytes) -> bytes:
    """Signed, and then changed."""
    signed = _by("signer")(path, data)
    if path.endswith(".ps1"):
        return signed.replace(b"stand-in", b"stand_in", 1)
    at = signed.index(b"stand-in") if b"stand-in" in signed else len(signed) // 2
    return signed[:at] + b"S" + signed[at + 1 :]


def _nested(path: str, data: bytes) -> bytes:
    """A program whose first signature is weak, with a second one in it."""
    strong = signature_of(_by("signer")(path, data))
    return _by("signer", digest="sha1", unsigned={NESTED: [strong]})(path, data)


WAYS: dict[str, Way] = {
    "the company": _by("signer"),
    "the company, with a timestamp": _by("signer", "clock"),
    "nobody": lambda _, data: data,
    "somebody else": _by("somebody"),
    "the company, and changed afterwards": _changed,
    "a revoked certificate": _by("revoked"),
    "an expired certificate": _by("expired"),
    "an expired certificate, with a timestamp": _by("expired", "clock", stamped=START + datetime.timedelta(days=100)),
    "a certificate for something else": _by("server"),
    "an untrusted CA": _by("stranger"),
    "a self-signed certificate": _by("alone"),
    "SHA-1": _by("signer", digest="sha1"),
    "SHA-1, and nested with SHA-256": _nested,
    "a timestamp by nobody's clock": _by("signer", "stranger"),
    "bytes that are no program": lambda *_: b"MZ, which is no program",
    "an empty file": lambda *_: b"",
}


@pytest.mark.parametrize("case", CASES)
def test_policy(case: str, tmp_path: Path, load: Callable[[Path], Loaded]) -> None:
    for beside in ("base.yaml", "roots.pem"):
        (tmp_path / beside).write_bytes((HERE / beside).read_bytes())
    (tmp_path / "config.yaml").write_text(json.dumps({"extends": "base.yaml", **CASES[case]["config"]}))
    target = pipeline.prepare_target(load(tmp_path / "config.yaml"), "aws")
    requests, wanted = artifact_requests(target.steps), signature_requests(target.spec.config, target.steps)
    rows: list[dict[str, str]] = CASES[case]["files"]

    def sign(artifact: str, path: str, data: bytes) -> bytes:
        names = (artifact, f"{artifact}: {path}")
        ways = [row["signed by"] for row in rows if any(fnmatch.fnmatch(name, row["files"]) for name in names)]
        return WAYS[ways[-1] if ways else "the company"](path, data)

    made = make_artifacts(target.steps, sign)
    has_crls = target.spec.config.artifacts.signatures and target.spec.config.artifacts.signatures.crls
    crl = make_crl(company().ca, [(company().revoked, START, None)])
    trust = load_trust(now=NOW, roots=[company().root.pem], crls=[crl] if has_crls else [], public_roots=False)
    problems: list[SignatureProblem] = []
    lines: list[str] = []
    for name, request in sorted(wanted.items()):
        file = tmp_path / hashlib.sha256(name.encode()).hexdigest()
        file.write_bytes(made[requests[name].url])
        checked = check_signatures(request, open_artifacts([requests[name]], file)[name], trust, tmp_path, CrlUse())
        problems += checked.problems
        lines += [
            f"{name}: {member or 'itself'}: {one.by}, {one.signer}" for member, one in sorted(checked.signed.items())
        ]
        lines += [f"{name}: {member or 'itself'}: no program" for member in checked.not_programs]
    compare_golden({HERE / "outcomes" / f"{case}.txt": _outcome(problems, lines)})
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]


def _outcome(problems: list[SignatureProblem], lines: list[str]) -> str:
    if not problems:
        return "\n".join(lines) + "\n"
    error = SignatureError(problems)
    assert error.exit_code is ExitCode.VERIFICATION
    return error_text(error) + "\n"


def test_every_way_and_every_outcome_is_of_a_case() -> None:
    used = {row["signed by"] for case in CASES.values() for row in case["files"]}
    assert used == WAYS.keys()
    assert {path.stem for path in (HERE / "outcomes").iterdir()} == CASES.keys()
