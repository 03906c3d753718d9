# Runs one phase of plan.json, or checks it: events, state.json and report.json as in docs/guest.md.
# start.ps1 has verified every byte of the bundle before it imports this file.
Set-StrictMode -Version Latest; $ErrorActionPreference, $ProgressPreference = 'Stop', 'SilentlyContinue'

Import-Module -Name ([System.IO.Path]::Combine($PSScriptRoot, 'common.psm1')) -Global -Force -DisableNameChecking
Import-Module -Name ([System.IO.Path]::Combine($PSScriptRoot, 'download.psm1')) -Force -DisableNameChecking

function Write-Line { [CmdletBinding()] param($Session, [string]$Text)
    [System.Console]::Out.WriteLine($Text)
    # -Check writes no log.
    if ($null -eq $Session.Log) { return }
    $stamp = [System.DateTime]::UtcNow.ToString('yyyy-MM-ddTHH:mm:ssZ', [System.Globalization.CultureInfo]::InvariantCulture)
    [System.IO.File]::AppendAllText($Session.Log, "$stamp $Text`n")
}

# One event line. Only its reason can make it too long.
function Write-EventLine { [CmdletBinding()] param($Session, [System.Collections.Specialized.OrderedDictionary]$Fields)
    if ($Fields.Contains('reason') -and $Fields['reason'].Length -gt 600) { $Fields['reason'] = $Fields['reason'].Substring(0, 600) }
    $json = ConvertTo-AsciiJson -Value $Fields
    while ($json.Length -gt 1000 -and $Fields.Contains('reason') -and $Fields['reason'].Length -gt 0) {
        # JSON writes a character as at most six, so this cuts no more than needed.
        $cut = [int][Math]::Ceiling(($json.Length - 1000) / 6)
        $Fields['reason'] = $Fields['reason'].Substring(0, [Math]::Max(0, $Fields['reason'].Length - $cut))
        $json = ConvertTo-AsciiJson -Value $Fields
    }
    Write-Line -Session $Session -Text "imagegen: $json"
}

function Write-PhaseEvent { [CmdletBinding()] param($Session, [string]$Phase, [string]$Status, [int]$Resources, [long]$Milliseconds, [string]$Reason = '')
    Write-EventLine -Session $Session -Fields ([ordered]@{
            event = 'phase'; phase = $Phase; status = $Status; resources = $Resources; changed = $Session.Changed
            restart = $Session.Restart; ms = $Milliseconds; reason = $Reason
        })
}

function Write-ResourceEvent { [CmdletBinding()] param($Session, $Entry, [string]$Status, [long]$Milliseconds, [string]$Reason = '')
    Write-EventLine -Session $Session -Fields ([ordered]@{ event = 'resource'; phase = $Entry.Phase; id = $Entry.Id; status = $Status; ms = $Milliseconds; reason = $Reason })
}

function ConvertFrom-StateText { [CmdletBinding()] param([string]$Text)
    $saved = ConvertFrom-Json -InputObject $Text
    if ($null -eq $saved -or $saved.state_version -ne 1) { throw 'this is not a state of version 1' }
    $state = @{ PlanDigest = [string]$saved.plan_sha256; Phases = [ordered]@{}; Resources = [ordered]@{}; Checked = @{}; LeftOut = [ordered]@{} }
    foreach ($digest in @($saved.signatures)) { $state.Checked[$digest] = $true }
    foreach ($one in $saved.left_out.PSObject.Properties) { $state.LeftOut[$one.Name] = [ordered]@{ count = [int]$one.Value.count; names = [string[]]@($one.Value.names) } }
    foreach ($one in $saved.phases.PSObject.Properties) {
        $state.Phases[$one.Name] = [ordered]@{ status = [string]$one.Value.status; changed = [int]$one.Value.changed; restart = [bool]$one.Value.restart; ms = [long]$one.Value.ms }
    }
    foreach ($one in $saved.resources.PSObject.Properties) { $state.Resources[$one.Name] = [ordered]@{ status = [string]$one.Value.status; ms = [long]$one.Value.ms } }
    return $state
}

# The state of earlier runs of this plan. A crash may leave an incomplete file, or in the middle of a move only the complete .new file.
function Read-State { [CmdletBinding()] param($Session)
    foreach ($path in $Session.StatePath, ($Session.StatePath + '.new')) {
        if (-not [System.IO.File]::Exists($path)) { continue }
        $text = [System.IO.File]::ReadAllText($path)
        try { $state = ConvertFrom-StateText -Text $text }
        catch {
            Write-Line -Session $Session -Text "discarded ${path}: it is not a complete state of version 1"
            continue
        }
        if ($state.PlanDigest -ceq $Session.PlanDigest) { return $state }
        Write-Line -Session $Session -Text "discarded ${path}: it is the state of another plan"
    }
    return $Session.State
}

function Save-State { [CmdletBinding()] param($Session)
    foreach ($name in @($Session.State.Phases.Keys)) {
        $Session.State.Phases[$name].changed = @(Get-ChangedEntry -Session $Session -Phase $name).Count
    }
    $state = [ordered]@{ state_version = 1; plan_sha256 = $Session.PlanDigest; phases = $Session.State.Phases; resources = $Session.State.Resources }
    $state.signatures = [string[]]@(Get-SortedText -Text @($Session.State.Checked.Keys))
    $state.left_out = $Session.State.LeftOut
    Write-TextFile -Path $Session.StatePath -Text (ConvertTo-AsciiJson -Value $state)
}

function Get-ChangedEntry { [CmdletBinding()] param($Session, [string]$Phase, [string[]]$Status = @('changed'))
    foreach ($entry in $Session.Entries) {
        $saved = $Session.State.Resources[$entry.Id]
        if ($entry.Phase -ceq $Phase -and $null -ne $saved -and $Status -ccontains $saved.status) { $entry }
    }
}

# 'changed' is never overwritten: the report says what the whole build did, not only its last run.
# 'setting' is overwritten only by 'changed': a set that failed or was killed may have changed something.
function Save-Outcome { [CmdletBinding()] param($Session, $Entry, [string]$Status, [long]$Milliseconds)
    $saved = $Session.State.Resources[$Entry.Id]
    if ($Status -ceq 'changed' -or $null -eq $saved -or @('changed', 'setting') -cnotcontains $saved.status) {
        $Session.State.Resources[$Entry.Id] = [ordered]@{ status = $Status; ms = $Milliseconds }
    }
    Save-State -Session $Session
}

function Get-Entry { [CmdletBinding()] param($Plan)
    foreach ($phase in $Plan.phases) {
        foreach ($step in $phase.steps) {
            # Starts when the first of these resources is set.
            $clock = New-Object -TypeName System.Diagnostics.Stopwatch
            foreach ($resource in $step.resources) {
                $artifact = $resource.fields.PSObject.Properties['artifact']
                @{
                    Phase = $phase.name; Step = $step.name; Repeated = [bool]$step.repeated; Clock = $clock; LimitSeconds = [int]$step.timeout_s
                    Id = $resource.id; Kind = $resource.kind; Fields = $resource.fields; Artifact = $(if ($null -ne $artifact) { $artifact.Value }); Until = $resource.until
                    # Those of a file come when a node runs it, and those of a round with the last one.
                    Effects = @(if ($resource.kind -cne 'file' -and -not $step.repeated) { $resource.effects })
                }
            }
        }
    }
}

function Get-Session { [CmdletBinding()] param([string]$Root, $Plan, [string]$PlanDigest, [hashtable]$Secrets)
    $utf8 = New-Object -TypeName System.Text.UTF8Encoding
    $session = @{
        Registries = $utf8.GetString([System.Convert]::FromBase64String($Secrets.REGISTRIES))
        Root = $Root; Bundle = "$Root\bundle"; Artifacts = @{}; Log = "$Root\engine.log"
        StatePath = "$Root\state.json"; ReportPath = "$Root\report.json"
        Plan = $Plan; PlanDigest = $PlanDigest; Entries = @(Get-Entry -Plan $Plan); Kinds = @{}
        State = @{ Phases = [ordered]@{}; Resources = [ordered]@{}; Checked = @{}; LeftOut = [ordered]@{} }; Signatures = @{}; Changed = 0; Restart = $false; Phase = ''; MayRestart = $false
    }
    foreach ($one in $Plan.signatures.PSObject.Properties) { $session.Signatures[$one.Name] = $one.Value }
    try { $downloads = ConvertFrom-Json -InputObject ($utf8.GetString([System.Convert]::FromBase64String($Secrets.DOWNLOADS))) }
    # The message of PowerShell quotes the text, which has secrets.
    catch { throw 'the addresses of private artifacts are not valid JSON in base64' }
    foreach ($one in $Plan.artifacts.PSObject.Properties) {
        # A private artifact has another URL, with a query, and a header for the first host.
        $private = $downloads.PSObject.Properties[$one.Name]
        $from, $authorization = if ($null -ne $private) { $private.Value.url, $private.Value.authorization } else { $one.Value.url, '' }
        $session.Artifacts[$one.Name] = @{
            Name = $one.Name; Url = [System.Uri]$one.Value.url; From = [System.Uri]$from; Authorization = [string]$authorization
            Digest = $one.Value.sha256; Size = $one.Value.size; Path = "$Root\artifacts\$($one.Value.sha256)"
        }
    }
    # The blocks of the kinds run in this module, with its settings.
    foreach ($kind in Get-SortedText -Text @($session.Entries | ForEach-Object -Process { $_.Kind; foreach ($effect in $_.Effects) { $effect.kind } })) {
        $session.Kinds[$kind] = & ([System.IO.Path]::Combine($session.Bundle, 'kinds', $kind + '.ps1'))
    }
    return $session
}

function Get-EntryFailure { [CmdletBinding()] param($Entry, $ErrorRecord)
    $code = $ErrorRecord.Exception.Data['ExitCode']
    if ($null -eq $code) { $code = 6 }
    Get-Failure -ExitCode $code -Message "step $($Entry.Step), resource $($Entry.Id): $(Get-Cause -ErrorRecord $ErrorRecord)"
}

function Read-Entry { [CmdletBinding()] param($Session, $Entry)
    $kind = $Session.Kinds[$Entry.Kind]
    $now = & $kind.Get $Entry.Fields
    $reasons = @(& $kind.Test $Entry.Fields $now)
    # The effects of a script that has not run, or that waits for a restart, may not be there yet. Programs fail where there is nothing to show.
    if ($reasons.Count -eq 0 -and -not ($Session.Restart -and $Entry.Phase -ceq $Session.Phase)) {
        $reasons = @(foreach ($effect in $Entry.Effects) {
                $own = $Session.Kinds[$effect.kind]
                @(try { & $own.Test $effect.fields (& $own.Get $effect.fields) } catch { Get-Cause -ErrorRecord $_ }) | ForEach-Object -Process { "effect $($effect.label): $_" }
            })
    }
    return @{ Now = $now; Reasons = $reasons }
}

function Receive-EntryArtifact { [CmdletBinding()] param($Session, [object[]]$Entries, [int]$TimeoutSeconds)
    $wanted = [ordered]@{}
    foreach ($entry in $Entries) {
        $artifact = $Session.Artifacts[$entry.Artifact]
        if (-not $wanted.Contains($artifact.Digest)) { $wanted[$artifact.Digest] = $artifact }
    }
    if ($wanted.Count -eq 0) { return }
    $null = [System.IO.Directory]::CreateDirectory("$($Session.Root)\artifacts")
    Receive-Artifact -Artifact @($wanted.Values) -Proxy $Session.Plan.proxy -TimeoutSeconds $TimeoutSeconds -Announce {
        param($Name, $Status, $Size)
        Write-EventLine -Session $Session -Fields ([ordered]@{ event = 'artifact'; name = $Name; status = $Status; size = $Size })
    }
}

# set and a second test. Saves before set that it begins, and saves a needed restart before anything else can fail.
function Invoke-Set { [CmdletBinding()] param($Session, $Entry)
    $Entry.Clock.Start()
    $context = @{
        Id = $Entry.Id; Bundle = $Session.Bundle; Artifact = $null; Log = $Session.Root; Clock = $Entry.Clock; LimitSeconds = $Entry.LimitSeconds; Registries = $Session.Registries
        Files = $Session.Plan.files; Signatures = $Session.Signatures; Checked = $Session.State.Checked; LeftOut = $Session.State.LeftOut
    }
    if ($context.Clock.Elapsed.TotalSeconds -gt $context.LimitSeconds) { throw "the step's $($context.LimitSeconds) s are over" }
    if ($null -ne $Entry.Artifact) {
        $context.Artifact = $Session.Artifacts[$Entry.Artifact].Path
        # Missing if the resource was as planned when the phase began, and was changed since.
        if (-not [System.IO.File]::Exists($context.Artifact)) {
            Receive-EntryArtifact -Session $Session -Entries @($Entry) -TimeoutSeconds (Get-SecondsLeft -Context $context)
        }
    }
    $kind = $Session.Kinds[$Entry.Kind]
    Save-Outcome -Session $Session -Entry $Entry -Status 'setting' -Milliseconds 0
    $answer = & $kind.Set $Entry.Fields $context
    if ($null -ne $answer -and $answer -isnot [bool]) { throw "set of kind $($Entry.Kind) must return nothing, or whether a restart is needed" }
    if ($answer) {
        $Session.Restart = $true
        $Session.State.Phases[$Session.Phase].restart = $true
        Save-State -Session $Session
    }
    $again = (Read-Entry -Session $Session -Entry $Entry).Reasons
    if ($again.Count -gt 0) { throw "not as planned after it was set: $($again -join '; ')" }
}

function Invoke-Entry { [CmdletBinding()] param($Session, $Entry, [switch]$Quiet)
    $clock = [System.Diagnostics.Stopwatch]::StartNew()
    try {
        $reasons = (Read-Entry -Session $Session -Entry $Entry).Reasons
        if ($reasons.Count -gt 0) { Invoke-Set -Session $Session -Entry $Entry }
    }
    catch {
        Write-Line -Session $Session -Text $_.ScriptStackTrace
        Save-Outcome -Session $Session -Entry $Entry -Status 'failed' -Milliseconds $clock.ElapsedMilliseconds
        Write-ResourceEvent -Session $Session -Entry $Entry -Status 'failed' -Milliseconds $clock.ElapsedMilliseconds -Reason (Get-Cause -ErrorRecord $_)
        throw (Get-EntryFailure -Entry $Entry -ErrorRecord $_)
    }
    $saved = $Session.State.Resources[$Entry.Id]
    if ($reasons.Count -eq 0 -and $null -ne $saved -and $saved.status -ceq 'setting') { $reasons = @('an earlier run began to set it') }
    $status = if ($reasons.Count -gt 0) { 'changed' } else { 'ok' }
    if ($status -ceq 'changed') { $Session.Changed++ }
    if ($Quiet -and $status -ceq 'ok' -and $null -ne $saved -and $saved.status -cne 'failed') { return }
    Save-Outcome -Session $Session -Entry $Entry -Status $status -Milliseconds $clock.ElapsedMilliseconds
    Write-ResourceEvent -Session $Session -Entry $Entry -Status $status -Milliseconds $clock.ElapsedMilliseconds -Reason ($reasons -join '; ')
    # Fails at once and names the resource, because no restart follows this phase.
    if ($Session.Restart -and -not $Session.MayRestart) {
        throw (Get-Failure -ExitCode 6 -Message "step $($Entry.Step), resource $($Entry.Id): it was set and needs a restart, but the plan has none after $($Session.Phase)")
    }
}

function Invoke-Prefetch { [CmdletBinding()] param($Session, [object[]]$Entries, [int]$TimeoutSeconds)
    $missing = @(foreach ($entry in $Entries) {
            if ($null -eq $entry.Artifact) { continue }
            # One that cannot be read yet may be set in this phase: an image, before its runtime runs.
            try { if ((Read-Entry -Session $Session -Entry $entry).Reasons.Count -gt 0) { $entry } }
            catch { $entry }
        })
    try { Receive-EntryArtifact -Session $Session -Entries $missing -TimeoutSeconds $TimeoutSeconds }
    catch {
        $name = $_.Exception.Data['Artifact']
        $first = @(@($missing | Where-Object -FilterScript { $_.Artifact -ceq $name }) + $missing)[0]
        throw (Get-EntryFailure -Entry $first -ErrorRecord $_)
    }
}

function Assert-Order { [CmdletBinding()] param($Session, [object[]]$Earlier, $Own)
    foreach ($phase in $Earlier) {
        $saved = $Session.State.Phases[$phase.name]
        if ($null -eq $saved -or $saved.status -cne 'finished') {
            throw (Get-Failure -ExitCode 6 -Message "$($phase.name) is not finished: it comes before $($Own.name)")
        }
    }
    if (-not (Test-RestartPending)) { return }
    $saved = $Session.State.Phases[$Own.name]
    $begun = ($null -ne $saved -and $saved.restart) -or @(Get-ChangedEntry -Session $Session -Phase $Own.name -Status 'changed', 'setting').Count -gt 0
    if ($begun -and $Own.restart) { return }
    if ($begun) {
        throw (Get-Failure -ExitCode 6 -Message "Windows has a restart pending in the middle of $($Own.name), but the plan has none there: restart Windows and run the phase again")
    }
    if ($Earlier.Count -eq 0) {
        throw (Get-Failure -ExitCode 6 -Message 'the base image has a restart pending before the first phase: use a base image without one, or windows.updates, whose build begins with a restart')
    }
    # Windows may still be finishing the restart, and removes its marks a little later.
    if (Wait-Until -Seconds 120 -Every 2 -Test { -not (Test-RestartPending) }) { return }
    throw (Get-Failure -ExitCode 6 -Message "Windows has a restart pending: the one after $($Earlier[-1].name) was not taken")
}

function Confirm-Plan { [CmdletBinding()] param($Session)
    $facts = @{}
    foreach ($entry in $Session.Entries) {
        if ($entry.Repeated) { continue }
        try {
            $reading = Read-Entry -Session $Session -Entry $entry
            if ($reading.Reasons.Count -gt 0) { throw "no longer as planned at the end: $($reading.Reasons -join '; ')" }
        }
        catch {
            Write-ResourceEvent -Session $Session -Entry $entry -Status 'failed' -Milliseconds 0 -Reason (Get-Cause -ErrorRecord $_)
            throw (Get-EntryFailure -Entry $entry -ErrorRecord $_)
        }
        $facts[$entry.Id] = $reading.Now
    }
    if (Test-RestartPending) { throw (Get-Failure -ExitCode 6 -Message 'Windows has a restart pending after the last phase') }
    return $facts
}

function Write-Report { [CmdletBinding()] param($Session, $Facts)
    $phases = @(foreach ($phase in $Session.Plan.phases) {
            $saved = $Session.State.Phases[$phase.name]
            [ordered]@{ name = $phase.name; status = $saved.status; changed = $saved.changed; restart = $saved.restart; ms = $saved.ms }
        })
    $resources = @(foreach ($entry in $Session.Entries) {
            $saved = $Session.State.Resources[$entry.Id]
            [ordered]@{ id = $entry.Id; phase = $entry.Phase; step = $entry.Step; kind = $entry.Kind; status = $saved.status; ms = $saved.ms; facts = $Facts[$entry.Id] }
        })
    $signatures = [ordered]@{}
    $signed = @($Session.Signatures.Keys | Where-Object -FilterScript { $null -ne $Session.Signatures[$_] })
    foreach ($digest in Get-SortedText -Text $signed) { $signatures[$digest] = if ($Session.State.Checked.ContainsKey($digest)) { 'machine' } else { 'host' } }
    Write-TextFile -Path $Session.ReportPath -Text (ConvertTo-AsciiJson -Value ([ordered]@{
                report_version = 1; plan_sha256 = $Session.PlanDigest; name = $Session.Plan.name; target = $Session.Plan.target
                machine = (Get-MachineFact); phases = $phases; resources = $resources; signatures = $signatures; left_out = $Session.State.LeftOut
            }))
    Write-EventLine -Session $Session -Fields ([ordered]@{ event = 'report'; path = $Session.ReportPath; sha256 = (Get-Digest -Path $Session.ReportPath) })
}

# Steps 2 to 7 of "What a phase does". Returns the exit code.
function Invoke-Sequence { [CmdletBinding()] param($Session, [object[]]$Earlier, $Own, [object[]]$Entries, $Clock)
    Assert-Order -Session $Session -Earlier $Earlier -Own $Own
    $saved = $Session.State.Phases[$Own.name]
    $restart = $null -ne $saved -and $saved.restart
    # A restart that a run needed is still needed. A start of Windows removes the volatile key of a finished run.
    $Session.Restart = $restart -and $Own.restart -and ($saved.status -cne 'finished' -or (Test-RegistryKey -Key 'HKLM:\SOFTWARE\imagegen-restart'))
    $Session.State.Phases[$Own.name] = [ordered]@{ status = 'started'; changed = 0; restart = $restart; ms = [long]0 }
    $names = @($Earlier | ForEach-Object -Process { $_.name })
    foreach ($entry in $Session.Entries) { if ($names -ccontains $entry.Phase -and -not $entry.Repeated) { Invoke-Entry -Session $Session -Entry $entry -Quiet } }
    # Before the downloads: the host of an artifact may have a certificate that Windows trusts only with these.
    foreach ($entry in $Entries) { if ($entry.Kind -ceq 'certificate') { Invoke-Entry -Session $Session -Entry $entry } }
    Invoke-Prefetch -Session $Session -Entries $Entries -TimeoutSeconds ([int][Math]::Max(1, $Own.timeout_s - $Clock.Elapsed.TotalSeconds))
    foreach ($entry in $Entries) { if ($entry.Kind -cne 'certificate') { Invoke-Entry -Session $Session -Entry $entry } }
    $last = $Own.name -ceq @($Session.Plan.phases)[-1].name
    $facts = if ($last) { Confirm-Plan -Session $Session }
    if (Test-RestartPending) { $Session.Restart = $true }
    if ($Session.Restart -and -not $Own.restart) { throw (Get-Failure -ExitCode 6 -Message "a restart is needed after $($Own.name), but the plan has none there") }
    Clear-Tree -Path "$($Session.Root)\artifacts"
    $record = $Session.State.Phases[$Own.name]
    $record.status = 'finished'
    $record.restart = $record.restart -or $Session.Restart
    if ($Session.Restart) { Use-RegistryKey -Key 'HKLM:\SOFTWARE\imagegen-restart' -Create -Options Volatile -Use { } }
    $record.ms = $Clock.ElapsedMilliseconds
    Save-State -Session $Session
    if ($last) { Write-Report -Session $Session -Facts $facts }
    if ($Session.Restart) { 3010 } else { 0 }
}

function Invoke-Phase { [CmdletBinding()] param($Session, [string]$Name)
    $clock = [System.Diagnostics.Stopwatch]::StartNew()
    $phases = @($Session.Plan.phases)
    $index = [array]::IndexOf(@($phases.name), $Name)
    $earlier = @($phases | Select-Object -First $index)
    $entries = @($Session.Entries | Where-Object -FilterScript { $_.Phase -ceq $Name })
    $Session.Phase = $Name
    $Session.MayRestart = [bool]$phases[$index].restart
    Write-PhaseEvent -Session $Session -Phase $Name -Status 'started' -Resources $entries.Count -Milliseconds 0
    try {
        $Session.State = Read-State -Session $Session
        $code = Invoke-Sequence -Session $Session -Earlier $earlier -Own $phases[$index] -Entries $entries -Clock $clock
    }
    catch {
        $record = $Session.State.Phases[$Name]
        # A phase that failed before it started is not recorded.
        if ($null -ne $record -and $record.status -ceq 'started') {
            $record.status = 'failed'
            $record.ms = $clock.ElapsedMilliseconds
            Save-State -Session $Session
        }
        Write-PhaseEvent -Session $Session -Phase $Name -Status 'failed' -Resources $entries.Count -Milliseconds $clock.ElapsedMilliseconds -Reason (Get-Cause -ErrorRecord $_)
        throw
    }
    Write-PhaseEvent -Session $Session -Phase $Name -Status 'finished' -Resources $entries.Count -Milliseconds $clock.ElapsedMilliseconds
    return $code
}

# -Check: tests every resource and changes nothing. Returns the exit code. What a node may change is passed over after its first boot.
function Invoke-Inspection { [CmdletBinding()] param($Session, [string]$Name)
    # SetupComplete.cmd writes the log at the first boot of the sealed image. Only during a build there is a state: then the log is of a base image that was such an image itself.
    $booted = [System.IO.File]::Exists("$env:SystemRoot\Setup\Scripts\first-boot.log") -and -not [System.IO.File]::Exists('C:\ProgramData\imagegen\state.json')
    $count = [ordered]@{ ok = 0; drifted = 0; skipped = 0; failed = 0 }
    $tested = @(foreach ($phase in @($Session.Plan.phases | Where-Object -FilterScript { $Name -ceq 'all' -or $_.name -ceq $Name })) {
            $clock = [System.Diagnostics.Stopwatch]::StartNew()
            $entries = @($Session.Entries | Where-Object -FilterScript { $_.Phase -ceq $phase.name -and -not $_.Repeated })
            Write-PhaseEvent -Session $Session -Phase $phase.name -Status 'started' -Resources $entries.Count -Milliseconds 0
            $end, $why = 'finished', ''
            foreach ($entry in $entries) {
                $lap = [System.Diagnostics.Stopwatch]::StartNew()
                $status, $reasons = 'skipped', @('a node may change it after its first boot')
                if (-not $booted -or $null -eq $entry.Until) {
                    try {
                        $reasons = @((Read-Entry -Session $Session -Entry $entry).Reasons)
                        $status = if ($reasons.Count -gt 0) { 'drifted' } else { 'ok' }
                    }
                    catch {
                        $status, $end, $reasons = 'failed', 'failed', @(Get-Cause -ErrorRecord $_)
                        if ($why -eq '') { $why = (Get-EntryFailure -Entry $entry -ErrorRecord $_).Message }
                        Write-Line -Session $Session -Text $_.ScriptStackTrace
                    }
                }
                $count[$status]++
                Write-ResourceEvent -Session $Session -Entry $entry -Status $status -Milliseconds $lap.ElapsedMilliseconds -Reason ($reasons -join '; ')
                [ordered]@{ id = $entry.Id; status = $status; reasons = [string[]]$reasons }
            }
            Write-PhaseEvent -Session $Session -Phase $phase.name -Status $end -Resources $entries.Count -Milliseconds $clock.ElapsedMilliseconds -Reason $why
        })
    Write-Line -Session $Session -Text ('imagegen-check: ' + (ConvertTo-AsciiJson -Value ([ordered]@{
                    check_version = 1; plan_sha256 = $Session.PlanDigest; name = $Session.Plan.name; target = $Session.Plan.target; phase = $Name
                    node = [System.Net.Dns]::GetHostName(); booted = $booted; machine = (Get-MachineFact); count = $count; resources = $tested
                })))
    if ($count['failed'] -gt 0) { 6 } elseif ($count['drifted'] -gt 0) { 5 } else { 0 }
}

# Runs the engine. Returns the exit code. A thrown failure has its exit code in Data['ExitCode'].
function Invoke-Engine { [CmdletBinding()] param([string]$Root, [string]$Phase, $Plan, [string]$PlanDigest, [hashtable]$Secrets, [switch]$Check)
    $names = @($Plan.phases | ForEach-Object -Process { $_.name })
    if ($names -cnotcontains $Phase -and -not ($Phase -ceq 'all' -and $Check)) {
        throw (Get-Failure -ExitCode 2 -Message "the plan has no phase '$Phase': it has $($names -join ', ')")
    }
    $build = Get-RegistryData -Key 'HKLM:\SOFTWARE\Microsoft\Windows NT\CurrentVersion' -Name 'CurrentBuildNumber' -Default ''
    if ([string]$build -cne [string]$Plan.windows.build) {
        throw (Get-Failure -ExitCode 4 -Message "the plan is for Windows Server $($Plan.windows.release), build $($Plan.windows.build); this machine has build $build")
    }
    $session = Get-Session -Root $Root -Plan $Plan -PlanDigest $PlanDigest -Secrets $Secrets
    if (-not $Check) { return (Invoke-Phase -Session $session -Name $Phase) }
    $session.Log = $null
    return (Invoke-Inspection -Session $session -Name $Phase)
}
