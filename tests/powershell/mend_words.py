"""Words of the scripts that the checks of test_mends.py look for: those that are long, or named more than once."""

from __future__ import annotations

NORMAL = "[System.IO.FileAttributes]::Normal)"
TARGET_WRITABLE = f"if ([System.IO.File]::Exists($To)) {{ [System.IO.File]::SetAttributes($To, {NORMAL} }}"
STALE_WRITABLE = f"if ([System.IO.File]::Exists($new)) {{ [System.IO.File]::SetAttributes($new, {NORMAL} }}"
COPY_WRITABLE = f"\n        [System.IO.File]::SetAttributes($new, {NORMAL}"
COPY = "[System.IO.File]::Copy($From, $new, $true)"
SAME_BYTES = "if ([System.IO.File]::Exists($target) -and (Get-Digest -Path $target) -ceq $member.sha256) { continue }"
NAMES = "'-Phase', '-Bundle', '-BundleSha256', '-PlanSha256', '-Check'"
NO_VALUE = "$index -ge $Word.Count -or $Word[$index] -match '\\A-'"
ARGUMENT_ERROR = "throw (Get-EntryError -ExitCode 2 -Message "
LAST_COLON = "if ([System.Environment]::GetCommandLineArgs()[-1] -match '\\A[-\\u2013\\u2014\\u2015]\\w+:\\z')"
READ_TEXT = "ConvertFrom-StateText -Text $text"
READ_STATE = "$Session.State = Read-State -Session $Session"
DISCARD = 'Write-Line -Session $Session -Text "discarded ${path}: it is not'
IN_USE = 'throw "$To is in use by service ${users}: stop service $users, or rebuild the image"'
SAVE_SETTING = "Save-Outcome -Session $Session -Entry $Entry -Status 'setting' -Milliseconds 0"
SAVED = "$saved = $Session.State.Resources[$Entry.Id]"
KEEP = "$Status -ceq 'changed' -or $null -eq $saved -or @('changed', 'setting') -cnotcontains $saved.status"
WRITE_OUTCOME = "$Session.State.Resources[$Entry.Id] = [ordered]@{ status = $Status; ms = $Milliseconds }"
BEGUN = "$reasons.Count -eq 0 -and $null -ne $saved -and $saved.status -ceq 'setting'"
BEGUN_REASON = "$reasons = @('an earlier run began to set it')"
OWN_BEGUN = "@(Get-ChangedEntry -Session $Session -Phase $Own.name -Status 'changed', 'setting').Count -gt 0"
NO_DEFENDER = "return [ordered]@{ absent = $true }"
DEFENDER_OFF = "-not $there -or (Get-RegistryData -Key $service -Name 'Start' -Default 4) -eq 4"
UNAVAILABLE = "return [ordered]@{ unavailable = $why }"
WAITED = "$clock.Elapsed.TotalSeconds -gt $limit"
NO_RESTART = "$Session.Restart -and -not $Session.MayRestart"
NEEDS_RESTART = (
    'throw (Get-Failure -ExitCode 6 -Message "step $($Entry.Step), resource $($Entry.Id): it was set and needs'
)
MAY_RESTART = "$Session.MayRestart = [bool]$phases[$index].restart"
OLDER_TLS = "[int]$script:Protocol -ne 0"
ADD_TLS = "[System.Net.ServicePointManager]::SecurityProtocol = $script:Protocol -bor"
TELL_REASONS = '& $part | ForEach-Object -Process { $code = 1; [System.Console]::Out.WriteLine("failed: $_") }'
TELL_ERROR = '[System.Console]::Out.WriteLine("failed: $($_.Exception.Message)`r`nfailed: $($_.ScriptStackTrace)")'
NEW_FOLDER = "$null = [System.IO.Directory]::CreateDirectory($root)"
CHECK_FOLDER = "$root = [System.IO.Path]::Combine($env:SystemRoot, 'imagegen-check')"
OPEN_LOCK = (
    "return (New-Object -TypeName System.IO.FileStream -ArgumentList $Path, $mode, $access, $share, 1, $Options)"
)
HOLD = '$lock = Open-Lock -Path "${root}.lock" -Options DeleteOnClose -Seconds 0'
HOLD_PHASE = '$lock = Open-Lock -Path "$root\\engine.lock" -Options None -Seconds 86400'
IN_TURN = "$clock.Elapsed.TotalSeconds -ge $Seconds -or $_.Exception.GetBaseException().HResult -ne -2147024864"
IS_LINK = "[System.IO.File]::GetAttributes($Path).HasFlag([System.IO.FileAttributes]::ReparsePoint)"
REMOVE_OWN = "try { Remove-Path -Path $root }"
GRANT = "$root '/inheritance:r' '/grant:r' '*S-1-5-18:(OI)(CI)F' '*S-1-5-32-544:(OI)(CI)F'"
RUN_ENGINE = "$code = [int](Invoke-Engine -Root $root"
NO_LOG = "if ($null -eq $Session.Log) { return }"
BYPASS = "$through.BypassList = [string[]]@($Proxy.bypass)"
USE_PROXY = "if ($null -ne $Item.Proxy) { $handler.Proxy = $Item.Proxy }"
RESTART_KEY = "'HKLM:\\SOFTWARE\\imagegen-restart'"
STILL_NEEDED = (
    "$Session.Restart = $restart -and $Own.restart -and "
    f"($saved.status -cne 'finished' -or (Test-RegistryKey -Key {RESTART_KEY}))"
)
LOST_MEMBER = "if (-not $others.Remove($member.path)) { throw"
PLACE_MEMBER = (
    "Copy-IntoPlace -From ([System.IO.Path]::Combine($Staging, $member.path)) -To $target -Digest $member.sha256"
)
UNKNOWN_FILE = "$Context.Signatures.Count -gt 0 -and -not $Context.Signatures.ContainsKey($Digest)"
REFUSE_UNKNOWN = 'throw (Get-Failure -ExitCode 4 -Message "$Name has the sha256 ${Digest}: the plan requires signatures'
TRUST_FIRST = (
    "foreach ($entry in $Entries) { if ($entry.Kind -ceq 'certificate') { "
    "Invoke-Entry -Session $Session -Entry $entry } }"
)
