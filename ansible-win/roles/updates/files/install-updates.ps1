# Asks Windows Update once, and installs what the order wants. A task runs this script as SYSTEM: a network logon may search, and gets 0x80070005 for the rest.
# The answer has what was found, installed and refused, with Windows' own codes. It is there only when the script has finished.
[CmdletBinding(PositionalBinding = $false)] param([string]$Order = 'C:\ProgramData\imagegen\updates\order.json', [string]$Answer = 'C:\ProgramData\imagegen\updates\answer.json')
Set-StrictMode -Version Latest; $ErrorActionPreference, $ProgressPreference = 'Stop', 'SilentlyContinue'

function Get-Kb { [CmdletBinding()] param($Update); foreach ($number in $Update.KBArticleIDs) { "KB$number" } }

# What the order wants of the updates that Windows Update offers, each once. A category does not take an update that another one in the answer replaces; a KB in the order is taken even then.
function Select-Update { [CmdletBinding()] param($Session, $Wanted)
    $searcher = $Session.CreateUpdateSearcher()
    $seen = @{}
    $questions = @(foreach ($guid in $Wanted.categories) { "IsInstalled=0 and IsHidden=0 and Type='Software' and CategoryIDs contains '$guid'" })
    if (@($Wanted.kbs).Count -gt 0) { $questions += "IsInstalled=0 and IsHidden=0 and Type='Software'" }
    foreach ($question in $questions) {
        $byKb = -not $question.Contains('CategoryIDs')
        $searcher.IncludePotentiallySupersededUpdates = $byKb
        foreach ($update in $searcher.Search($question).Updates) {
            $names = @(Get-Kb -Update $update)
            $excluded = @($names | Where-Object -FilterScript { $Wanted.exclude -ccontains $_ }).Count -gt 0
            $named = @($names | Where-Object -FilterScript { $Wanted.kbs -ccontains $_ }).Count -gt 0
            if ($excluded -or $seen.ContainsKey($update.Identity.UpdateID) -or ($byKb -and -not $named)) { continue }
            $seen[$update.Identity.UpdateID] = $true
            $update
        }
    }
}

# Installs when nothing else does: Windows' own updates may run at the same time (0x80240016, https://github.com/rgl/packer-plugin-windows-update/issues/76). A pending restart has the same code.
function Install-Update { [CmdletBinding()] param($Worker)
    $clock = [System.Diagnostics.Stopwatch]::StartNew()
    while ($true) {
        try { return $Worker.Install() }
        catch {
            if ($_.Exception.GetBaseException().HResult -ne -2145124330 -or $Worker.RebootRequiredBeforeInstallation -or $clock.Elapsed.TotalSeconds -gt 1200) { throw }
            Start-Sleep -Seconds 15
        }
    }
}

# Downloads or installs updates together. Returns those that succeeded, and adds the others to the failures. 2 is Succeeded, and 3 SucceededWithErrors.
function Invoke-Step { [CmdletBinding()] param($Worker, [string]$Step, [object[]]$Updates, $Told)
    if ($Updates.Count -eq 0) { return }
    $all = New-Object -ComObject 'Microsoft.Update.UpdateColl'
    foreach ($update in $Updates) { $null = $all.Add($update) }
    $Worker.Updates = $all
    if ($Step -ceq 'download') { $result = $Worker.Download() }
    else {
        $result = Install-Update -Worker $Worker
        $Told.restart = [bool]$result.RebootRequired
    }
    for ($index = 0; $index -lt $Updates.Count; $index++) {
        $one = $result.GetUpdateResult($index)
        if (@(2, 3) -contains $one.ResultCode) { $Updates[$index] }
        else { $Told.failed += @([ordered]@{ kb = @(Get-Kb -Update $Updates[$index]) -join ' '; title = [string]$Updates[$index].Title; step = $Step; code = '0x{0:x8}' -f $one.HResult }) }
    }
}

Import-Module -Name 'C:\ProgramData\imagegen\bundle\common.psm1' -Force -DisableNameChecking
$told = [ordered]@{ found = @(); installed = @(); failed = @(); restart = $false; code = ''; message = '' }
try {
    $wanted = ConvertFrom-Json -InputObject ([System.IO.File]::ReadAllText($Order))
    $session = New-Object -ComObject 'Microsoft.Update.Session'
    $session.ClientApplicationID = 'imagegen'
    $chosen = @(Select-Update -Session $session -Wanted $wanted)
    # Not by its KB number, which an update need not have.
    $told.found = @(foreach ($update in $chosen) { [string]$update.Title })
    foreach ($update in $chosen) { if (-not $update.EulaAccepted) { $update.AcceptEula() } }
    $here = @(Invoke-Step -Worker ($session.CreateUpdateDownloader()) -Step 'download' -Updates $chosen -Told $told)
    $installer = $session.CreateUpdateInstaller()
    $installer.ForceQuiet = $true
    $done = @(Invoke-Step -Worker $installer -Step 'install' -Updates $here -Told $told)
    $told.installed = @(foreach ($update in $done) { Get-Kb -Update $update })
}
catch {
    $cause = $_.Exception.GetBaseException()
    # The codes of other errors than Windows Update's explain nothing.
    $told.code, $told.message = ('0x{0:x8}' -f $cause.HResult), $(if ($cause -isnot [System.Runtime.InteropServices.COMException]) { $cause.Message })
}
Write-TextFile -Path $Answer -Text (ConvertTo-AsciiJson -Value $told)
exit 0
