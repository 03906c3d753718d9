"""The engine checks signatures before a file is used, and its messages are those of the rehearsal's machine.

docs/guest.md describes the check. No test here runs the scripts, and the machine of a rehearsal runs a model of them.
"""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.authenticode.pki import pki
from tests.powershell.mend import Mend, find_faults, find_unseen
from tests.powershell.repository import script
from tests.powershell.standing import in_order, only_where

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.powershell.reader import Node

COMMON, ENGINE = "packer/guest/common.psm1", "packer/guest/engine.psm1"
ASSERT, FAULT = "Assert-Signature", "Get-SignatureFault"

WANTED = "$wanted = $Context.Signatures[$Digest]"
DECIDED_BY_HOST = "$null -eq $wanted -or $null -ne $wanted.hidden"
JUDGE = "$fault = Get-SignatureFault -Found (Get-AuthenticodeSignature -LiteralPath $file -ErrorAction Stop) -Wanted"
HASH_AGAIN = "$now = Get-Digest -Path $file"
CHANGED = '$fault = "has the sha256 $now, not $Digest"'
THROW = 'throw (Get-Failure -ExitCode 4 -Message "$Name $fault")'
NOTE = "$Context.Checked[$Digest] = $true"
ANOTHER_CERTIFICATE = "(Get-CertificateDigest -Certificate $Found.SignerCertificate) -cne $Wanted.thumbprint"
KNOWN = (
    "$known = @(foreach ($root in @(Get-StoreCertificate -Store 'Root')) { Get-CertificateDigest -Certificate $root })"
)
IS_MISSING = "$null -ne $root -and $known -cnotcontains $thumbprint"
READ_PLAN = "foreach ($one in $Plan.signatures.PSObject.Properties) { $session.Signatures[$one.Name] = $one.Value }"
HAND_ON = "Signatures = $Session.Signatures; Checked = $Session.State.Checked"
REPORT = "if ($Session.State.Checked.ContainsKey($digest)) { 'machine' } else { 'host' }"

CHECKS = (
    Mend(
        "only-what-windows-does-not-show-is-left-to-the-host",
        COMMON,
        (
            in_order(WANTED, f"if ({DECIDED_BY_HOST}) {{ return }}", HASH_AGAIN, within=ASSERT),
            only_where(DECIDED_BY_HOST, "return", within=ASSERT),
        ),
        (
            (WANTED, "$wanted = $null"),
            (DECIDED_BY_HOST, "$true"),
            (DECIDED_BY_HOST, "$null -eq $wanted -or $null -eq $wanted.hidden"),
            (DECIDED_BY_HOST, "$null -eq $wanted -or $wanted.hidden -cne 'own'"),
            (DECIDED_BY_HOST, "$null -eq $wanted"),
        ),
    ),
    Mend(
        "every-fault-of-a-signature-ends-the-phase",
        COMMON,
        (
            in_order(JUDGE, HASH_AGAIN, f"if ($now -cne $Digest) {{ {CHANGED} }}", within=ASSERT),
            only_where("$null -ne $fault", THROW, within=ASSERT),
            in_order(f"if ($null -ne $fault) {{ {THROW} }}", NOTE, within=ASSERT),
        ),
        (
            (JUDGE, "$fault = $null; $null = Get-SignatureFault -Found $null -Wanted"),
            (HASH_AGAIN, "$now = $Digest"),
            (f"if ($now -cne $Digest) {{ {CHANGED} }}", f"if ($null -eq $now) {{ {CHANGED} }}"),
            (f"if ($null -ne $fault) {{ {THROW} }}", f"if ($null -eq $fault) {{ {THROW} }}"),
            (f"    if ($null -ne $fault) {{ {THROW} }}\n", ""),
        ),
    ),
    Mend(
        "the-certificate-and-the-roots-are-compared",
        COMMON,
        (
            only_where(ANOTHER_CERTIFICATE, '"is signed by $signer, not with', within=FAULT),
            in_order(KNOWN, "foreach ($chain in @('signed', $Wanted.root", within=FAULT),
            only_where(IS_MISSING, 'return "is $how below $root', within=FAULT),
        ),
        (
            (ANOTHER_CERTIFICATE, ANOTHER_CERTIFICATE.replace("-cne", "-ceq")),
            ("@(Get-StoreCertificate -Store 'Root')", "@(Get-StoreCertificate -Store 'CA')"),
            (IS_MISSING, IS_MISSING.replace("-cnotcontains", "-ccontains")),
        ),
    ),
    Mend(
        "the-signatures-of-the-plan-reach-the-check-and-the-report",
        ENGINE,
        (
            in_order(READ_PLAN),
            in_order(HAND_ON, "$answer = & $kind.Set $Entry.Fields $context", within="Invoke-Set"),
            in_order(f"$signatures[$digest] = {REPORT}"),
        ),
        ((f"    {READ_PLAN}\n", ""), (HAND_ON, HAND_ON.replace("$Session.Signatures", "@{}")), (REPORT, "'machine'")),
    ),
)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.id)
def test_the_engine_checks_signatures(check: Mend) -> None:
    faults = find_faults(check)

    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.id)
def test_an_engine_that_does_not_is_seen(check: Mend) -> None:
    assert find_unseen(check) == []


WANTED_SIGNATURE: dict[str, Any] = {
    "signer": "CN=Wanted",
    "thumbprint": "1" * 64,
    "root": "CN=Root",
    "root_thumbprint": pki().root.read.sha256.lower(),
    "timestamp_root": "CN=Clock Root",
    "timestamp_root_thumbprint": pki().clock_root.read.sha256.lower(),
    "hidden": None,
}
FILE = r"C:\k\tool.exe"


@dataclasses.dataclass(frozen=True)
class Case:
    """What Get-AuthenticodeSignature shows, and which roots the machine has. `is_stamped`: the plan has a timestamp."""

    status: str
    has_root: bool = False
    has_clock_root: bool = False
    is_stamped: bool = True

    @property
    def wanted(self) -> dict[str, Any]:
        without = {"timestamp_root": None, "timestamp_root_thumbprint": None}
        return WANTED_SIGNATURE if self.is_stamped else WANTED_SIGNATURE | without

    @property
    def roots(self) -> list[Any]:
        return [pki().root] * self.has_root + [pki().clock_root] * self.has_clock_root


CASES = {
    "another certificate": Case("Valid"),
    "no signature": Case("NotSigned"),
    "altered": Case("HashMismatch"),
    "distrusted": Case("NotTrusted"),
    "no root": Case("UnknownError"),
    "no root of the timestamp": Case("UnknownError", has_root=True),
    "no root of the signature": Case("UnknownError", has_clock_root=True),
    "another fault": Case("UnknownError", has_root=True, has_clock_root=True),
    "another fault, and no timestamp": Case("UnknownError", has_root=True, is_stamped=False),
}


def test_every_message_of_the_script_is_one_of_the_cases() -> None:
    tried = [_template(case)[0] for case in CASES.values()]

    assert sorted(set(tried)) == sorted(_texts(script(COMMON).functions[FAULT.lower()].node))


def _template(case: Case) -> tuple[str, dict[str, str]]:
    """The text that Get-SignatureFault returns, with the values of its loop over the roots."""
    function = script(COMMON).functions[FAULT.lower()].node
    for clause in script(COMMON).of_type("switch_clause"):
        condition = clause.child("switch_clause_condition")
        if condition and clause.within(function) and script(COMMON).text(condition) == f"'{case.status}'":
            (text,) = _texts(clause)
            return text, {}
    (loop,) = [node for node in script(COMMON).of_type("foreach_statement") if node.within(function) and _texts(node)]
    known = {root.read.sha256.lower() for root in case.roots}
    for how, root, thumbprint in re.findall(r"@\('(\w+)', (\S+), (\S+?)\)", script(COMMON).text(loop).splitlines()[0]):
        chain = {"$root": _values(case)[f"$({root})"], "$thumbprint": _values(case)[f"$({thumbprint})"]}
        if chain["$root"] and chain["$thumbprint"] not in known:
            return _texts(loop)[0], {"$how": how, **chain}
    return _texts(function)[-1], {}


def _texts(outer: Node) -> list[str]:
    """The texts with values in them."""
    nodes = script(COMMON).of_type("expandable_string_literal")
    return [script(COMMON).text(node)[1:-1] for node in nodes if node.within(outer)]


def _values(case: Case) -> dict[str, str]:
    """What a text of the script has a name for."""
    wanted = {f"$($Wanted.{field})": str(value or "") for field, value in case.wanted.items()}
    signer = str(pki().signer.read.subject)
    return {"$signer": signer, "$status": case.status, "$($Found.StatusMessage)": "why", **wanted}


def _filled(text: str, values: Mapping[str, str]) -> str:
    """The text with the values. A name without one is an error."""
    return re.sub(r"\$\(.*?\)|\$\w+", lambda found: values[found.group()], text)
