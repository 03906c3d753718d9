"""What faults that were found have taught the scripts: each mend of docs/faults.md, and that its undoing is seen.

The model machine shows what a mend is for; these show that the scripts, which no test here runs, have it too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.powershell import mend_words as w
from tests.powershell.mend import Mend, find_faults, find_unseen
from tests.powershell.standing import handed_to, has_no_parameters, in_order, only_at_last, only_where, tried
from tests.unit.test_docs_faults import rows

if TYPE_CHECKING:
    pass

GUEST = "packer/guest"
ENTRY, ENGINE, COMMON = f"{GUEST}/start.ps1", f"{GUEST}/engine.psm1", f"{GUEST}/common.psm1"
DOWNLOAD, SEAL = f"{GUEST}/download.psm1", f"{GUEST}/seal.psm1"
ARCHIVE, DEFENDER = f"{GUEST}/kinds/archive.ps1", f"{GUEST}/kinds/defender.ps1"
IMAGE, COMMAND = f"{GUEST}/kinds/image.ps1", f"{GUEST}/kinds/command.ps1"
FIRST_BOOT = "ansible-win/roles/cloudbase-init/files/first-boot.ps1"


MENDS = (
    Mend(
        "P1-a-spoilt-state-is-discarded",
        ENGINE,
        (
            tried(w.READ_TEXT, within="Read-State", catch="continue"),
            tried(w.READ_TEXT, within="Read-State", catch=w.DISCARD),
            tried(w.READ_STATE, within="Invoke-Phase", catch="-Phase $Name -Status 'failed'"),
        ),
        (
            (
                f"try {{ $state = {w.READ_TEXT} }}\n        catch {{",
                f"$state = {w.READ_TEXT}\n        if ($null -eq $state) {{",
            ),
            (
                'it is not a complete state of version 1"\n            continue',
                'it is not a complete state of version 1"',
            ),
            (w.DISCARD, '$null = "discarded ${path}: it is not'),
            (f"    try {{\n        {w.READ_STATE}\n", f"    {w.READ_STATE}\n    try {{\n"),
        ),
    ),
    Mend(
        "P2-the-entry-reads-its-own-words",
        ENTRY,
        (
            has_no_parameters,
            in_order(w.LAST_COLON, "Read-Argument -Word $args"),
            only_where("$known.Count -ne 1", f'{w.ARGUMENT_ERROR}"unknown argument: $name")'),
            only_where("$given.ContainsKey($name)", f'{w.ARGUMENT_ERROR}"$name is given twice")'),
            only_where(w.NO_VALUE, f'{w.ARGUMENT_ERROR}"$name has no value")'),
            in_order(
                f"$known = @(@({w.NAMES}) -eq $name)",
                "if ($known.Count -ne 1)",
                "$name = $known[0]",
                "if ($given.ContainsKey($name))",
                "if ($name -eq '-Check')",
                f"if ({w.NO_VALUE})",
                "$given[$name] = $Word[$index]",
            ),
        ),
        (
            ("# It has no parameters:", "[CmdletBinding()]\nparam([string]$Phase)\n# It has no parameters:"),
            (f"    {w.LAST_COLON}", "    if ($args[-1] -match '\\A-\\w+:\\z')"),
            (f"@({w.NAMES}) -eq $name", f"@({w.NAMES}, '-B') -eq $name"),
            ("        $name = $known[0]\n", ""),
            ("$known.Count -ne 1", "$known.Count -gt 1"),
            (f'        if ($given.ContainsKey($name)) {{ {w.ARGUMENT_ERROR}"$name is given twice") }}\n', ""),
            (w.NO_VALUE, "$index -ge $Word.Count"),
        ),
    ),
    Mend(
        "P3-a-program-in-use-is-named-with-its-service",
        COMMON,
        (
            tried("Move-IntoPlace -From $new", within="Copy-IntoPlace", catch=w.IN_USE),
            in_order("$users = @(Get-ServiceUsing -Path $To) -join ', '", w.IN_USE, within="Copy-IntoPlace"),
        ),
        (
            (f"            {w.IN_USE}\n", "            throw\n"),
            ("$users = @(Get-ServiceUsing -Path $To) -join ', '", "$users = ''"),
        ),
    ),
    Mend(
        "P3-only-what-differs-is-put-in-place",
        ARCHIVE,
        (in_order("$target = [System.IO.Path]::Combine($Resource.into", w.SAME_BYTES, "Copy-IntoPlace -From"),),
        (
            (f"                {w.SAME_BYTES}\n", ""),
            ("(Get-Digest -Path $target) -ceq $member", "(Get-Digest -Path $target) -cne $member"),
        ),
    ),
    Mend(
        "P3-what-was-unpacked-goes-however-it-ends",
        COMMON,
        (
            tried(
                "$null = Invoke-Native -FilePath (Get-SystemTool -Name 'tar.exe')", at_last="Clear-Tree -Path $staging"
            ),
            tried("& $Use $staging", at_last="Clear-Tree -Path $staging"),
        ),
        (("finally { Clear-Tree -Path $staging }", "finally { $null = $staging }"),),
    ),
    Mend(
        "P4-a-read-only-file-is-replaced",
        COMMON,
        (
            in_order(w.TARGET_WRITABLE, "[System.IO.File]::Delete($To)", within="Move-IntoPlace"),
            in_order("Move-IntoPlace -From $new -To $To", within="Copy-IntoPlace"),
            in_order(w.STALE_WRITABLE, w.COPY, w.COPY_WRITABLE, "$found = Get-Digest -Path $new"),
        ),
        (
            (f"        {w.TARGET_WRITABLE}\n", ""),
            ("try { Move-IntoPlace -From $new -To $To }", "try { [System.IO.File]::Move($new, $To) }"),
            (f"        {w.STALE_WRITABLE}\n", ""),
            (w.COPY_WRITABLE, ""),
        ),
    ),
    Mend(
        "P4-nothing-half-done-is-left",
        COMMON,
        (
            tried(w.COPY, within="Copy-IntoPlace", at_last="Clear-Tree -Path $new"),
            tried("Move-IntoPlace", within="Copy-IntoPlace", at_last="Clear-Tree -Path $new"),
        ),
        (
            ("finally { Clear-Tree -Path $new -TimeoutSeconds 0 }", "finally { $null = $new }"),
            (
                "finally { Clear-Tree -Path $new -TimeoutSeconds 0 }",
                "catch { Clear-Tree -Path $new -TimeoutSeconds 0 }",
            ),
        ),
    ),
    Mend(
        "P5-what-was-begun-is-saved-before-it-is-set",
        ENGINE,
        (in_order(w.SAVE_SETTING, "$answer = & $kind.Set $Entry.Fields $context", within="Invoke-Set"),),
        (
            (f"    {w.SAVE_SETTING}\n", ""),
            (
                f"    {w.SAVE_SETTING}\n    $answer = & $kind.Set $Entry.Fields $context\n",
                f"    $answer = & $kind.Set $Entry.Fields $context\n    {w.SAVE_SETTING}\n",
            ),
        ),
    ),
    Mend(
        "P5-what-was-begun-counts-as-changed",
        ENGINE,
        (
            only_where(w.KEEP, w.WRITE_OUTCOME, within="Save-Outcome"),
            in_order(w.SAVED, w.WRITE_OUTCOME, within="Save-Outcome"),
            only_where(w.BEGUN, w.BEGUN_REASON, within="Invoke-Entry"),
            in_order(w.SAVED, f"if ({w.BEGUN})", "$status = if (", within="Invoke-Entry"),
            in_order(w.OWN_BEGUN, "if ($begun -and $Own.restart) { return }", within="Assert-Order"),
        ),
        (
            ("@('changed', 'setting') -cnotcontains $saved.status", "$saved.status -cne 'changed'"),
            (f"    {w.SAVED}\n    if ($Status", "    $saved = $null\n    if ($Status"),
            (w.BEGUN_REASON, "$reasons = @()"),
            (f"    if ({w.BEGUN}) {{ {w.BEGUN_REASON} }}\n", ""),
            ("-Status 'changed', 'setting').Count", "-Status 'changed').Count"),
        ),
    ),
    Mend(
        "P6-what-is-still-there-fails-the-seal",
        SEAL,
        (
            only_where("$left.Count -gt 0", 'throw "could not be deleted: ', within="Invoke-Seal"),
            in_order("foreach ($path in @(Get-Leftover))", "$left = @(Get-Leftover)", "if ($left.Count -gt 0)"),
        ),
        (
            ("    if ($left.Count -gt 0) { throw \"could not be deleted: $($left -join ', ')\" }\n", ""),
            ("$left = @(Get-Leftover)", "$left = @()"),
        ),
    ),
    Mend(
        "P7-without-defender-nothing-needs-to-be-excluded",
        DEFENDER,
        (
            tried("Get-MpPreference", catch="$why = $_.Exception.Message"),
            only_where(w.DEFENDER_OFF, w.NO_DEFENDER),
            only_where(w.WAITED, w.UNAVAILABLE),
        ),
        (
            ("foreach ($known in $excluded) {", "foreach ($known in @((Get-MpPreference).ExclusionProcess)) {"),
            (f"if ({w.DEFENDER_OFF}) {{ {w.NO_DEFENDER} }}", w.NO_DEFENDER),
            (f"if ({w.WAITED}) {{ {w.UNAVAILABLE} }}", w.UNAVAILABLE),
        ),
    ),
    Mend(
        "P8-a-restart-that-none-follows-names-the-resource",
        ENGINE,
        (
            only_where(w.NO_RESTART, w.NEEDS_RESTART, within="Invoke-Entry"),
            in_order("-Entry $Entry -Status $status -Milliseconds", f"if ({w.NO_RESTART})", within="Invoke-Entry"),
            in_order(w.MAY_RESTART, w.READ_STATE, within="Invoke-Phase"),
        ),
        (
            (w.NEEDS_RESTART, w.NEEDS_RESTART.replace("throw (", "$null = (")),
            (f"if ({w.NO_RESTART})", f"if ($Quiet -and {w.NO_RESTART})"),
            (f"    {w.MAY_RESTART}\n", ""),
        ),
    ),
    Mend(
        "R1-windows-chooses-the-version-of-tls",
        DOWNLOAD,
        (
            only_where(w.OLDER_TLS, w.ADD_TLS),
            in_order("$script:Protocol = [System.Net.ServicePointManager]::SecurityProtocol", f"if ({w.OLDER_TLS})"),
        ),
        (
            (f"if ({w.OLDER_TLS})", "if ($true)"),
            ("$script:Protocol = [System.Net.ServicePointManager]::SecurityProtocol", "$script:Protocol = 192"),
        ),
    ),
    Mend(
        "R2-what-stays-after-first-boot-is-told",
        FIRST_BOOT,
        (
            tried(w.TELL_REASONS, catch=w.TELL_ERROR),
            in_order("\n        $code = 1", w.TELL_ERROR),
            in_order("$code = 0", "foreach ($part in", "exit $code"),
        ),
        (
            ("        $code = 1\n", ""),
            ("exit $code", "exit 0"),
            (w.TELL_REASONS, "$null = @(& $part)"),
            (w.TELL_ERROR, "throw"),
        ),
    ),
    Mend(
        "R3-what-a-check-unpacks-goes-however-it-ends",
        ENTRY,
        (
            tried(w.NEW_FOLDER, at_last=w.REMOVE_OWN),
            tried(w.RUN_ENGINE, at_last=w.REMOVE_OWN),
            only_at_last(w.REMOVE_OWN),
            only_where("$check -and $null -ne $lock", w.REMOVE_OWN),
            tried("Remove-Path -Path $root }", catch="$code = 1"),
            in_order("if ($check -and $null -ne $lock) {", "if ($null -ne $lock) { $lock.Dispose() }"),
            only_at_last("$lock.Dispose()"),
        ),
        (
            (f"        {w.REMOVE_OWN}\n", "        try { $null = $root }\n"),
            ("}\nfinally {\n    # Ctrl", "}\nif ($true) {\n    # Ctrl"),
            ("if ($check -and $null -ne $lock) {", "if ($check -and $null -eq $lock) {"),
            ("        catch {\n            $code = 1\n", "        catch {\n"),
            ("if ($null -ne $lock) { $lock.Dispose() }", "$null = $lock"),
        ),
    ),
    Mend(
        "R3-a-check-is-for-system-and-administrators-alone",
        ENTRY,
        (
            in_order(w.NEW_FOLDER, w.GRANT, "if ($LASTEXITCODE -ne 0) { throw", "Expand-Bundle -Path", w.RUN_ENGINE),
            only_where("$check", w.CHECK_FOLDER),
        ),
        (
            (w.GRANT, w.GRANT.replace("'/inheritance:r' ", "")),
            ("    if ($LASTEXITCODE -ne 0) { throw", "    if ($LASTEXITCODE -lt 0) { throw"),
            ("$env:SystemRoot, 'imagegen-check'", "$env:SystemRoot, 'Temp', 'imagegen-check'"),
            (f"    {w.NEW_FOLDER}\n", ""),
        ),
    ),
    Mend(
        "R3-one-check-runs-at-a-time",
        ENTRY,
        (
            in_order(w.CHECK_FOLDER, w.HOLD, "\n        Remove-Path -Path $root"),
            in_order("[System.IO.FileShare]::None\n", w.OPEN_LOCK, within="Open-Lock"),
        ),
        (
            ("[System.IO.FileShare]::None\n", "[System.IO.FileShare]::ReadWrite\n"),
            ("-Options DeleteOnClose", "-Options None"),
            ("        Remove-Path -Path $root\n    }\n", "    }\n"),
        ),
    ),
    Mend(
        "find-V7-one-engine-runs-at-a-time",
        ENTRY,
        (
            in_order(w.GRANT, f"if (-not $check) {{ {w.HOLD_PHASE} }}", "Expand-Bundle -Path", w.RUN_ENGINE),
            only_where("-not $check", w.HOLD_PHASE),
            in_order("[System.IO.FileShare]::None\n", w.OPEN_LOCK, within="Open-Lock"),
            tried(w.OPEN_LOCK, within="Open-Lock", catch=f"if ({w.IN_TURN}) {{ throw }}"),
            only_where("$check -and $null -ne $lock", w.REMOVE_OWN),
        ),
        (
            (f"    if (-not $check) {{ {w.HOLD_PHASE} }}\n", ""),
            (f"if (-not $check) {{ {w.HOLD_PHASE} }}", f"if ($check) {{ {w.HOLD_PHASE} }}"),
            ("-Options None -Seconds 86400", "-Options None -Seconds 0"),
            ("[System.IO.FileShare]::None\n", "[System.IO.FileShare]::ReadWrite\n"),
            (w.IN_TURN, "$clock.Elapsed.TotalSeconds -ge $Seconds"),
            ("if ($check -and $null -ne $lock) {", "if ($null -ne $lock) {"),
        ),
    ),
    Mend(
        "find-V7-a-finished-phase-ends-in-the-same-way-until-the-restart",
        ENGINE,
        (
            in_order(w.STILL_NEEDED, within="Invoke-Sequence"),
            in_order(
                "$record.status = 'finished'",
                f"if ($Session.Restart) {{ Use-RegistryKey -Key {w.RESTART_KEY} -Create -Options Volatile",
                within="Invoke-Sequence",
            ),
        ),
        (
            (f" -or (Test-RegistryKey -Key {w.RESTART_KEY})", ""),
            ("-Create -Options Volatile", "-Create"),
            ("    if ($Session.Restart) { Use-RegistryKey", "    if ($last) { Use-RegistryKey"),
        ),
    ),
    Mend(
        "find-T1-only-listed-members-come-into-place",
        ARCHIVE,
        (
            handed_to("foreach ($member in $Resource.members) {\n                if", w.PLACE_MEMBER),
            in_order(w.LOST_MEMBER, w.PLACE_MEMBER),
            in_order(
                "if ($others.Count -eq 0) { return }",
                "$Context.LeftOut[$Context.Id] = [ordered]@{ count = $others.Count; names =",
            ),
        ),
        (
            (f"                {w.LOST_MEMBER}", "                if ($null -eq $member) { throw"),
            ("-Digest $member.sha256", "-Digest (Get-Digest -Path $target)"),
            (
                "foreach ($member in $Resource.members) {\n                if",
                "foreach ($member in $others) {\n                if",
            ),
            ("            $Context.LeftOut[$Context.Id] =", "            $null ="),
        ),
    ),
    Mend(
        "find-T1-the-report-names-what-was-left-out",
        ENGINE,
        (
            in_order("LeftOut = $Session.State.LeftOut", within="Invoke-Set"),
            in_order("$state.LeftOut[$one.Name] = [ordered]@{", within="ConvertFrom-StateText"),
            in_order("$state.left_out = $Session.State.LeftOut", within="Save-State"),
            in_order("left_out = $Session.State.LeftOut", within="Write-Report"),
        ),
        (
            ("Checked = $Session.State.Checked; LeftOut = $Session.State.LeftOut", "Checked = $Session.State.Checked"),
            ("$state.LeftOut[$one.Name] = [ordered]@{", "$null = [ordered]@{"),
            ("    $state.left_out = $Session.State.LeftOut\n", ""),
            ("; left_out = $Session.State.LeftOut", ""),
        ),
    ),
    Mend(
        "find-T1-an-unknown-file-is-refused",
        COMMON,
        (only_where(w.UNKNOWN_FILE, w.REFUSE_UNKNOWN, within="Assert-Signature"),),
        (
            (f"if ({w.UNKNOWN_FILE}) {{ throw", f"if ({w.UNKNOWN_FILE}) {{ return"),
            ("-not $Context.Signatures.ContainsKey($Digest)", "$Context.Signatures.ContainsKey($Digest)"),
            ("$Context.Signatures.Count -gt 0", "$Context.Signatures.Count -gt 1000"),
        ),
    ),
    Mend(
        "find-P19-an-image-without-a-runtime-is-not-called-missing",
        IMAGE,
        (
            only_where("-not [System.IO.File]::Exists($program)", 'throw "it could not be looked at: there is no'),
            in_order('.Count -eq 0) { throw "it could not be looked at: service $service does not run'),
            in_order("try { $images = Wait-Success -Seconds 60"),
            in_order('catch { throw "it could not be looked at: '),
        ),
        (
            ("($program)) { throw", "($program)) { return"),
            (").Count -eq 0) { throw", ").Count -eq 0) { return"),
            ("-Seconds 60 -Try", "-Seconds 0 -Try"),
            ("catch { throw", "catch { return"),
        ),
    ),
    Mend(
        "find-P19-what-cannot-be-read-yet-is-fetched",
        ENGINE,
        (tried("Read-Entry -Session $Session -Entry $entry", within="Invoke-Prefetch", catch="$entry"),),
        (("            catch { $entry }\n", "            catch { throw }\n"),),
    ),
    Mend(
        "content-C11-the-question-of-a-command-has-ten-minutes",
        COMMAND,
        (in_order("-ArgumentLine $Resource.unless.arguments -TimeoutSeconds 600"),),
        (("$Resource.unless.arguments -TimeoutSeconds 600", "$Resource.unless.arguments"),),
    ),
    Mend(
        "R3-a-check-writes-no-log",
        ENGINE,
        (
            in_order("$session.Log = $null", "return (Invoke-Inspection -Session $session", within="Invoke-Engine"),
            in_order(w.NO_LOG, "[System.IO.File]::AppendAllText($Session.Log", within="Write-Line"),
        ),
        (("    $session.Log = $null\n", ""), (f"    {w.NO_LOG}\n", "")),
    ),
    Mend(
        "R4-downloads-go-through-the-plans-proxy",
        DOWNLOAD,
        (
            only_where(
                "$null -ne $Proxy", "$through = New-Object -TypeName System.Net.WebProxy -ArgumentList $Proxy.url"
            ),
            only_where("$null -ne $Proxy", w.BYPASS),
            in_order(w.USE_PROXY, "HttpClient -ArgumentList $handler", within="Open-Attempt"),
            in_order("$through = $null", "Proxy = $through; Part ="),
        ),
        (
            (f"        {w.BYPASS}\n", ""),
            ("$through = New-Object", "$null = New-Object"),
            (f"    {w.USE_PROXY}\n", ""),
            ("Proxy = $through; Part =", "Proxy = $null; Part ="),
        ),
    ),
    Mend(
        "find-T6-certificates-come-before-downloads",
        ENGINE,
        (
            in_order(
                w.TRUST_FIRST,
                "Invoke-Prefetch -Session $Session",
                "foreach ($entry in $Entries) { if ($entry.Kind -cne",
                within="Invoke-Sequence",
            ),
        ),
        ((f"    {w.TRUST_FIRST}\n", ""), ("-cne 'certificate'", "-ceq 'certificate'")),
    ),
)


@pytest.mark.parametrize("mend", MENDS, ids=lambda mend: mend.id)
def test_script_has_the_mend(mend: Mend) -> None:
    faults = find_faults(mend)

    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("mend", MENDS, ids=lambda mend: mend.id)
def test_undoing_the_mend_is_seen(mend: Mend) -> None:
    assert find_unseen(mend) == []


def test_every_mend_is_named_in_its_row() -> None:
    named = rows()
    test = "tests/powershell/test_mends.py::test_script_has_the_mend"

    assert [mend.id for mend in MENDS if f"{test}[{mend.id}]" not in named.get(mend.row, [])] == []
