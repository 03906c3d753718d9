"""What readers of the scripts found: each mend of docs/faults.md from P9 on, and that its undoing is seen."""

from __future__ import annotations

import pytest

from tests.powershell.mend import Mend, find_faults, find_unseen
from tests.powershell.standing import handed_to, in_order, only_where, tried
from tests.unit.test_docs_faults import rows

GUEST = "packer/guest"
ENTRY, CERTIFICATE = f"{GUEST}/start.ps1", f"{GUEST}/kinds/certificate.ps1"
POD_NETWORK = "ansible-win/roles/cni/files/set-pod-network.ps1"
RESET_NODE, PLUGIN = (
    "ansible-win/roles/kubernetes/files/reset-node.ps1",
    "ansible-win/roles/gmsa/files/register-plugin.ps1",
)
LOGS, UPDATES = f"{GUEST}/logs.ps1", "ansible-win/roles/updates/files/install-updates.ps1"
COMMON, SEAL, BOOTSTRAP = f"{GUEST}/common.psm1", f"{GUEST}/seal.psm1", "packer/aws/bootstrap.ps1"
ACL, FIREWALL = f"{GUEST}/kinds/acl.ps1", f"{GUEST}/kinds/firewall.ps1"
FIRST_BOOT = "ansible-win/roles/cloudbase-init/files/first-boot.ps1"

PRINT_EVENTS = '$line = "qe $Name /c:200 /rd:true /f:text"'
START_PRINTING = "$process = [System.Diagnostics.Process]::Start($start)"
PRINTED = "if (-not $process.WaitForExit(30000))"
NOT_BUSY = "$_.Exception.GetBaseException().HResult -ne -2145124330 -or $Worker.RebootRequiredBeforeInstallation -or"
NO_MORE_TIME = "$clock.Elapsed.TotalSeconds -gt 1200) { throw }"
CLEAR_LEFT = "foreach ($path in @(Get-Leftover)) { Clear-Tree -Path $path }"
RETRY = "Wait-Success -Seconds 30 -Try {"
OUT_OF_TIME = "if ($clock.Elapsed.TotalSeconds -gt $Seconds) { throw }"
SERVICE_RUNS = (
    "@(Get-Service -Name $Name -ErrorAction SilentlyContinue | "
    "Where-Object -FilterScript { [string]$_.Status -eq 'Running' }).Count -gt 0"
)
AWAIT_SERVICE = "$runs = Wait-Until -Seconds $TimeoutSeconds -Every 2 -Test {"
NOT_GENERALISED = "(Get-ImageState) -ne $script:Generalised"
NO_SETUP_LOG = '[System.Console]::Out.WriteLine("the setup logs cannot be read: '
LOGON_IS_ON = "-notin '', '0') { throw 'AutoAdminLogon is on' }"
LOGON_IS_COMPLETE = "[string](Get-RegistryData -Key $logon -Name 'DefaultPassword') -ne ''"
MAY_ASK = "-not $asked -and $from -contains $status -and ($up -or $service.CanStop)"
FROM_STATES = "$from = if ($up) { 'Stopped', 'Paused' } else { 'Running', 'Paused' }"
DIED = "if ($up -and $asked -and $status -eq 'Stopped') { throw"
AWAIT_STOPPED = "if ([string]$service.Status -eq 'StopPending') { $service.WaitForStatus('Stopped', $limit) }"
DISABLE = "Disable-LocalUser -SID $account.SID -ErrorAction Stop"
RESET = "Set-LocalUser -SID $account.SID -Password $password -ErrorAction Stop"
RENAME = "Rename-LocalUser -SID $account.SID"
KEY_STAYS = "$what = if (Test-Path -LiteralPath $path) { 'certificate' } else { 'the key of the removed certificate' }"
NOT_FOUND = "if ($_.FullyQualifiedErrorId -notlike 'CmdletizationQuery_NotFound*') { throw }"
FIND_FILTER = "$filter = Get-NetFirewallPortFilter -AssociatedNetFirewallRule $rule[0] -ErrorAction Stop"
ICACLS = "$null = Invoke-Native -FilePath $icacls -ArgumentList $Resource.path,"
SHOWN = (
    '$shown = "$([int]$rule.FileSystemRights -bor 1048576) $([int]$rule.InheritanceFlags) '
    '$([int]$rule.PropagationFlags)"'
)
IS_PLANNED = "@($wanted | Where-Object -FilterScript { $_.shown -eq $shown }).Count -gt 0"
FLAGS = (
    "$inherit, $flags = if (-not $folder) { '', '0 0' } elseif ($entry.rights -eq 'create') { '(CI)', '1 0' } "
    "elseif ($entry.sid -eq 'S-1-3-0') { '(OI)(CI)(IO)', '3 2' } else { '(OI)(CI)', '3 0' }"
)
SHOWN_LATER = 'shown = "$($masks[$entry.rights]) $flags"'
REMOVE_ALL = f"{ICACLS} '/remove:g', \"*$sid\""
GRANT_AGAIN = (
    "$null = Invoke-Native -FilePath $icacls -ArgumentList "
    "(@($Resource.path, '/grant') + @($wanted | ForEach-Object -Process { $_.grant }))"
)
FIRST_GRANTS = "$grants = @(foreach ($one in $planned) { if ($one.rights -ne 'create') { $one.grant } })"
USUAL = (
    "$flags = if ($rights -eq 'create') { '1 0' } elseif ($rule.IdentityReference.Value -eq 'S-1-3-0') { '3 2' } "
    "else { '3 0' }"
)
PARTIAL = '$inherits -and "$([int]$rule.InheritanceFlags) $([int]$rule.PropagationFlags)" -ne $flags'
SAY_FLAGS = '$rights = "$rights ($($rule.InheritanceFlags); $($rule.PropagationFlags))"'
OWN_NAME = '{ $file = "$($Context.Log)\\signed-$Digest$([System.IO.Path]::GetExtension($Name))" }'
CLEAR_COPY = "if ($file -cne $Path) { Clear-Tree -Path $file }"
SIGNATURE_FAULT = 'throw (Get-Failure -ExitCode 4 -Message "$Name $fault")'
CHECKED = "        $Context.Checked[$Digest] = $true\n"
CHECK_SCRIPT = "Assert-Signature -Path ([System.IO.Path]::Combine($Context.Bundle, $script.Name"
READ_RECORD = "[System.IO.File]::ReadAllText($Path)"
WAIT_RECORD = f"$text = Wait-Success -Seconds 5 -Try {{ {READ_RECORD} }}"
OPEN_ALONE = "$stream = New-Object -TypeName System.IO.FileStream -ArgumentList $Path, 'Open', 'Write', 'None'"
OVERWRITE = "$null = $stream.Write((New-Object -TypeName 'byte[]' -ArgumentList ([int]$stream.Length)), 0,"
FLUSH = "$null = $stream.Flush($true)"
READ_SECRETS = "$text = [System.IO.File]::ReadAllText($file)"
IS_BASE64 = '="(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"'
WHOLE = rf"""'\A(\$env:IMAGEGEN_[A-Z]+{IS_BASE64};\s*)+(\$env:(?!IMAGEGEN_)\w+="[^"]*";\s*)*\z'"""
CUT_OFF = f"if ($text -cnotmatch {WHOLE}) {{ throw 'Packer did not upload all credentials,"
MAY_READ = "[System.IO.File]::Exists($file) -and @($args) -notcontains '-Check'"
START_NSSM = "if ($value) { $null = (Get-Service -Name $name).Start() }"
AWAIT_STOP = "Wait-ServiceState -Name $name -State 'stopped' -Context $context"
REMOVE_NETWORK = (
    "if ($one.Type -in 'L2Bridge', 'L2Tunnel', 'Overlay') { $null = Invoke-Hns -Method DELETE "
    '-Path "/networks/$($one.ID)" }'
)
HAS_ENTRIES = "$before.IndexOf('D:', [System.StringComparison]::Ordinal) -ge 0 -and (Get-Acl"

MENDS = (
    Mend(
        "logs-a-message-that-windows-cannot-render-keeps-no-event-away",
        LOGS,
        (
            in_order(PRINT_EVENTS, START_PRINTING, PRINTED, "return ,$script:Utf8", within="Read-Event"),
            tried("$data = & $Read $limit", within="Add-Log", catch="$script:Notes.Add("),
        ),
        (
            (PRINT_EVENTS, PRINT_EVENTS.replace("text", "xml")),
            (PRINTED, "if ($false)"),
            ('catch { $null = $script:Notes.Add("${Path}: ', 'catch { throw ("${Path}: '),
        ),
    ),
    Mend(
        "updates-another-installation-is-waited-for",
        UPDATES,
        (
            tried("return $Worker.Install()", within="Install-Update", catch=NO_MORE_TIME),
            in_order(
                NOT_BUSY,
                "Start-Sleep -Seconds 15",
                within="Install-Update",
            ),
            in_order("$Worker.Updates = $all", "$result = Install-Update -Worker $Worker", within="Invoke-Step"),
        ),
        (
            (NO_MORE_TIME, "$false) { throw }"),
            (" -or $Worker.RebootRequiredBeforeInstallation", ""),
            ("$_.Exception.GetBaseException().HResult -ne", "$_.Exception.HResult -ne"),
            ("            Start-Sleep -Seconds 15\n", ""),
            ("$result = Install-Update -Worker $Worker", "$result = $Worker.Install()"),
        ),
    ),
    Mend(
        "P9-what-lasts-a-moment-fails-no-seal",
        SEAL,
        (
            handed_to(RETRY, CLEAR_LEFT, within="Invoke-Seal"),
            handed_to(RETRY, "if ($left.Count -gt 0) { throw", within="Invoke-Seal"),
            in_order(SERVICE_RUNS, within="Wait-CloudService"),
            in_order(AWAIT_SERVICE, "if (-not $runs) { throw", within="Wait-CloudService"),
        ),
        (
            (RETRY, "& {"),
            (f"    {RETRY}\n        {CLEAR_LEFT}\n", f"    {CLEAR_LEFT}\n    {RETRY}\n"),
            (SERVICE_RUNS, SERVICE_RUNS.replace(" -ErrorAction SilentlyContinue", "")),
            (AWAIT_SERVICE, "$runs = & {"),
        ),
    ),
    Mend(
        "P9-what-fails-for-a-moment-is-tried-again",
        COMMON,
        (
            tried("& $Try", within="Wait-Success", catch=OUT_OF_TIME),
            in_order("& $Try", "return", within="Wait-Success"),
            in_order("try {", "Start-Sleep -Milliseconds 250", within="Wait-Success"),
        ),
        (
            (OUT_OF_TIME, "throw"),
            ("try { & $Try; return }", "try { & $Try }"),
            ("        Start-Sleep -Milliseconds 250\n", ""),
        ),
    ),
    Mend(
        "P9-another-try-needs-no-agents",
        SEAL,
        (only_where(NOT_GENERALISED, "& $Assert", within="Invoke-Seal"),),
        (
            ("        & $Assert\n", ""),
            (f"    if ({NOT_GENERALISED}) {{\n        & $Assert\n", f"    & $Assert\n    if ({NOT_GENERALISED}) {{\n"),
        ),
    ),
    Mend(
        "P9-the-reason-of-sysprep-is-told",
        SEAL,
        (
            tried("Write-SetupLog", within="Invoke-Seal", catch=NO_SETUP_LOG),
            tried("& $Generalise", within="Invoke-Seal", catch="\n            throw"),
        ),
        (
            (
                f"try {{ Write-SetupLog }}\n            catch {{ {NO_SETUP_LOG}",
                'if ($true) { Write-SetupLog; $null = ("',
            ),
            ('$(Get-Cause -ErrorRecord $_)") }\n            throw\n', '$(Get-Cause -ErrorRecord $_)") }\n'),
        ),
    ),
    Mend(
        "P9-only-a-logon-that-is-set-is-refused",
        SEAL,
        (
            in_order(f"-Name 'AutoAdminLogon' -Default '0') {LOGON_IS_ON}"),
            only_where(LOGON_IS_COMPLETE, "throw 'a DefaultPassword is set'"),
        ),
        (
            ("-notin '', '0'", "-ne '0'"),
            (LOGON_IS_COMPLETE, "$null -ne (Get-RegistryData -Key $logon -Name 'Default')"),
        ),
    ),
    Mend(
        "P10-a-service-is-asked-once-and-from-a-state-that-allows-it",
        COMMON,
        (
            in_order(FROM_STATES, "while ($true) {", within="Wait-ServiceState"),
            only_where(MAY_ASK, "$null = $service.Start()", within="Wait-ServiceState"),
            only_where(MAY_ASK, "Stop-Service -Name $Name -Force -NoWait", within="Wait-ServiceState"),
            in_order(
                "$service.Refresh()",
                DIED,
                f"if ({MAY_ASK}) {{\n            $asked = $true",
                "-gt $Context.LimitSeconds",
            ),
            in_order("$asked = $true", "if ($up) { $null = $service.Start() }"),
        ),
        (
            ("else { 'Running', 'Paused' }", "else { 'Running', 'StartPending' }"),
            (f"if ({MAY_ASK})", "if ($from -contains $status)"),
            (" -and ($up -or $service.CanStop)) {", ") {"),
            ("            $asked = $true\n", ""),
            (DIED, "if ($up -and $status -eq 'Stopped') { throw"),
        ),
    ),
    Mend(
        "P10-winrm-that-stops-is-waited-for",
        BOOTSTRAP,
        (in_order(AWAIT_STOPPED, "if ([string]$service.Status -eq 'Stopped') {", "$service.WaitForStatus('Running'"),),
        ((f"{AWAIT_STOPPED}\n", ""),),
    ),
    Mend(
        "P10-a-program-without-an-end-is-named",
        COMMON,
        (
            tried("$process.Kill()", within="Invoke-Native", catch="$message += "),
            in_order('$message = "$FilePath did not end within', "try { $process.Kill() }", "throw $message"),
        ),
        (
            ("try { $process.Kill() }", "$process.Kill(); try { $null = $process }"),
            ("            throw $message\n", ""),
        ),
    ),
    Mend(
        "P11-the-builders-account-is-disabled-whatever-else-fails",
        FIRST_BOOT,
        (
            in_order(f"try {{ {DISABLE} }}", "try {\n                $password", f"try {{ {RENAME}"),
            tried(DISABLE, catch='"account $($account.Name) could not be disabled: '),
            tried(RESET, catch='"account $($account.Name) could not get another password: '),
            tried(RENAME, catch='"account $($account.Name) could not be renamed: '),
        ),
        (
            (f"            try {{ {DISABLE} }}\n", "            try { $null = $account }\n"),
            (f"                {RESET}\n            }}\n", f"            }}\n            {RESET}\n"),
            ('"account $($account.Name) could not be renamed: ', '$null = "'),
        ),
    ),
    Mend(
        "P11-a-key-that-stays-is-told",
        FIRST_BOOT,
        (
            in_order(KEY_STAYS, '"$what $print could not be removed: ', within="Clear-BuilderCertificate"),
            tried("Remove-Item -LiteralPath $path", catch='"$what $print could not be removed: '),
        ),
        (
            (KEY_STAYS, "$what = 'certificate'"),
            ('"$what $print could not be removed: $($_.Exception.Message)"', "$null = $what"),
        ),
    ),
    Mend(
        "P12-an-entry-for-other-children-is-replaced",
        ACL,
        (
            in_order(FLAGS, SHOWN_LATER),
            in_order(SHOWN, f"if ({IS_PLANNED}) {{ continue }}", REMOVE_ALL, GRANT_AGAIN),
            only_where("$wanted.Count -gt 0", GRANT_AGAIN),
            in_order(REMOVE_ALL, "if ($wanted.Count -gt 0) {"),
        ),
        (
            (' $([int]$rule.PropagationFlags)"\n            if (@($wanted', '"\n            if (@($wanted'),
            ("$([int]$rule.FileSystemRights -bor 1048576) ", ""),
            ("            if ($wanted.Count -gt 0) {\n", "            if ($wanted.Count -gt 1) {\n"),
            (REMOVE_ALL, REMOVE_ALL.replace("remove:g", "remove:d")),
            ("{ '(OI)(CI)', '3 0' }", "{ '(OI)(CI)', '2 0' }"),
        ),
    ),
    Mend(
        "P12-an-entry-for-some-children-is-never-the-planned-one",
        ACL,
        (
            only_where(PARTIAL, SAY_FLAGS),
            in_order(
                "$inherits = [string]$rule.InheritanceFlags -ne 'None'", USUAL, f"if ({PARTIAL}) {{", "`t$inherits"
            ),
        ),
        (
            (PARTIAL, "$inherits -and [int]$rule.InheritanceFlags -ne 3"),
            (f"    {SAY_FLAGS}\n", "    $null = $rule\n"),
            (USUAL, "$flags = '3 0'"),
        ),
    ),
    Mend(
        "content-C19-who-may-create-may-not-change-what-is-there",
        ACL,
        (
            in_order(FLAGS),
            in_order(FIRST_GRANTS, "(@($Resource.path, '/inheritance:r', '/grant:r') + $grants)"),
            in_order("$grants += '/grant', $one.grant"),
        ),
        (
            ("{ '(CI)', '1 0' }", "{ '(OI)(CI)', '3 0' }"),
            ("if ($one.rights -ne 'create') { $one.grant }", "$one.grant"),
            ("$grants += '/grant', $one.grant", "$grants += $one.grant"),
            ("{ '(OI)(CI)(IO)', '3 2' }", "{ '(OI)(CI)', '3 0' }"),
        ),
    ),
    Mend(
        "P13-only-a-rule-that-is-not-found-is-none",
        FIREWALL,
        (
            tried("$rule = @(Get-NetFirewallRule -Name $Resource.name -ErrorAction Stop)", catch=NOT_FOUND),
            in_order(NOT_FOUND, "\n            return $null"),
        ),
        ((NOT_FOUND, "if ($false) { throw }"),),
    ),
    Mend(
        "P13-a-rule-that-cannot-be-read-or-made-fails",
        FIREWALL,
        (in_order(FIND_FILTER), in_order("$null = New-NetFirewallRule @rule -ErrorAction Stop")),
        ((FIND_FILTER, FIND_FILTER[:-18]), ("@rule -ErrorAction Stop", "@rule")),
    ),
    Mend(
        "P13-a-builder-without-its-rule-says-so",
        BOOTSTRAP,
        (in_order("-Action Allow -Protocol TCP -LocalPort 5986 -ErrorAction Stop"),),
        (("-LocalPort 5986 -ErrorAction Stop", "-LocalPort 5986"),),
    ),
    Mend(
        "P14-a-copy-for-the-check-has-its-own-name-and-hides-no-fault",
        COMMON,
        (
            in_order(OWN_NAME, "Clear-Tree -Path $file; [System.IO.File]::Copy($Path, $file)"),
            tried(SIGNATURE_FAULT, within="Assert-Signature", at_last=CLEAR_COPY),
            tried(CLEAR_COPY, within="Assert-Signature", catch="could not be deleted: "),
        ),
        (
            ("signed-$Digest$(", "signed$("),
            ("Clear-Tree -Path $file; ", ""),
            (
                f"        if ($null -ne $fault) {{ {SIGNATURE_FAULT} }}\n{CHECKED}    }}\n    finally {{",
                f"{CHECKED}    }}\n    finally {{\n        if ($null -ne $fault) {{ {SIGNATURE_FAULT} }}",
            ),
            (f"        try {{ {CLEAR_COPY} }}\n        catch {{", f"        {CLEAR_COPY}\n        if ($false) {{"),
        ),
    ),
    Mend(
        "P15-scripts-are-checked-before-their-publisher-is-trusted",
        CERTIFICATE,
        (
            in_order("foreach ($script in $Context.Files.PSObject.Properties) {", "$null = $store.Add($certificate)"),
            in_order(CHECK_SCRIPT),
        ),
        (
            ("foreach ($script in $Context.Files.PSObject.Properties) {", "foreach ($script in @()) {"),
            (CHECK_SCRIPT, CHECK_SCRIPT.replace("Assert-Signature", "Test-Path")),
        ),
    ),
    Mend(
        "P16-credentials-are-whole-and-overwritten",
        ENTRY,
        (
            in_order(READ_SECRETS, "Remove-Path -Path $file", CUT_OFF, "$secrets[$found.Groups[1].Value] ="),
            only_where(MAY_READ, READ_SECRETS),
            in_order(OVERWRITE, FLUSH, within="Remove-Path"),
            in_order(OPEN_ALONE, "[System.IO.File]::Delete($Path)", within="Remove-Path"),
        ),
        (
            (CUT_OFF, CUT_OFF.replace("throw '", "$null = '")),
            (f"if ({MAY_READ}) {{", "if ([System.IO.File]::Exists($file)) {"),
            (OVERWRITE, "$null = @("),
            (FLUSH, "$null = $stream.Flush()"),
            (OPEN_ALONE, OPEN_ALONE.replace("'Open', 'Write'", "'Create', 'Write'")),
        ),
    ),
    Mend(
        "find-P20-each-value-of-the-credentials-is-whole",
        ENTRY,
        (in_order(READ_SECRETS, CUT_OFF, "$secrets[$found.Groups[1].Value] ="),),
        ((IS_BASE64, '="[^"]*"'), ("(?!IMAGEGEN_)", ""), ("\\s*)*\\z'", "\\s*)*'")),
    ),
    Mend(
        "P17-a-record-that-is-held-for-a-moment-is-read-again",
        COMMON,
        (
            handed_to("Wait-Success -Seconds 5 -Try {", READ_RECORD, within="Read-Record"),
            in_order(WAIT_RECORD, "& $Read (ConvertFrom-Json -InputObject $text)", within="Read-Record"),
        ),
        ((WAIT_RECORD, f"$text = {READ_RECORD}"),),
    ),
    Mend(
        "P18-a-service-under-nssm-may-end-its-program",
        POD_NETWORK,
        (in_order("Set-Service -Name $name", AWAIT_STOP, START_NSSM, within="Start-NodeService"),),
        ((START_NSSM, "if ($value) { Start-Service -Name $name }"), (AWAIT_STOP, "Stop-Service -Name $name -Force")),
    ),
    Mend(
        "P18-a-network-that-stays-ends-the-reset",
        RESET_NODE,
        (in_order(REMOVE_NETWORK),),
        ((REMOVE_NETWORK, REMOVE_NETWORK.replace("DELETE", "GET")),),
    ),
    Mend(
        "P18-what-a-plugins-key-had-is-kept-whole",
        PLUGIN,
        (
            in_order("Write-TextFile -Path $script:Saved -Text $before", "Set-Access -Text 'O:BA'"),
            in_order(HAS_ENTRIES, within="Restore-Access"),
        ),
        (
            ("Write-TextFile -Path $script:Saved -Text $before", "[IO.File]::WriteAllText($script:Saved, $before)"),
            (HAS_ENTRIES, "(Get-Acl"),
        ),
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
    test = "tests/powershell/test_read_mends.py::test_script_has_the_mend"

    assert [mend.id for mend in MENDS if f"{test}[{mend.id}]" not in named.get(mend.row, [])] == []
