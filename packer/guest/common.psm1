# What the engine and the kinds share: failures with an exit code, text, native programs, the registry.
# Imported -Global, so that the functions of a kind find it wherever they run.
Set-StrictMode -Version Latest
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'

$script:Utf8 = New-Object -TypeName System.Text.UTF8Encoding -ArgumentList $false
# The 64-bit view by name: a 32-bit host would otherwise read another machine.
$script:LocalMachine = [Microsoft.Win32.RegistryKey]::OpenBaseKey([Microsoft.Win32.RegistryHive]::LocalMachine, [Microsoft.Win32.RegistryView]::Registry64)

# An exception to throw that says with which code the entry script must end.
function Get-Failure {
    [CmdletBinding()]
    param([int]$ExitCode, [string]$Message)
    $failure = New-Object -TypeName System.InvalidOperationException -ArgumentList $Message
    $failure.Data['ExitCode'] = $ExitCode
    $failure
}

# The innermost message: what .NET wraps around it names methods, not causes.
function Get-Cause {
    [CmdletBinding()]
    param($ErrorRecord)
    $ErrorRecord.Exception.GetBaseException().Message
}

# Ordinal: the operators -eq and -ceq compare by culture, which ignores some characters.
function Test-SameText {
    [CmdletBinding()]
    param([string]$Left, [string]$Right, [switch]$IgnoreCase)
    $comparison = [System.StringComparison]::Ordinal
    if ($IgnoreCase) { $comparison = [System.StringComparison]::OrdinalIgnoreCase }
    [string]::Equals($Left, $Right, $comparison)
}

function Test-SameList {
    [CmdletBinding()]
    param([object[]]$Left, [object[]]$Right, [switch]$IgnoreCase)
    if ($Left.Count -ne $Right.Count) { return $false }
    for ($index = 0; $index -lt $Left.Count; $index++) {
        if (-not (Test-SameText -Left $Left[$index] -Right $Right[$index] -IgnoreCase:$IgnoreCase)) { return $false }
    }
    return $true
}

# Each text once, in ordinal order: Sort-Object goes by culture and passes over hyphens.
function Get-SortedText {
    [CmdletBinding()]
    param([string[]]$Text)
    $set = New-Object -TypeName 'System.Collections.Generic.SortedSet[string]' -ArgumentList ([System.StringComparer]::Ordinal)
    foreach ($one in $Text) { $null = $set.Add($one) }
    foreach ($one in $set) { $one }
}

# The sha256 of a file, as the plan writes it.
function Get-Digest {
    [CmdletBinding()]
    param([string]$Path)
    (Get-FileHash -LiteralPath $Path -Algorithm SHA256 -ErrorAction Stop).Hash.ToLowerInvariant()
}

# One line of JSON in ASCII. Depth: 5.1 cuts at two levels and says nothing.
function ConvertTo-AsciiJson {
    [CmdletBinding()]
    param($Value)
    $json = ConvertTo-Json -InputObject $Value -Compress -Depth 10
    [regex]::Replace($json, '[^\x20-\x7e]', { param($Found) '\u{0:x4}' -f [int][char]$Found.Value })
}

# .NET Framework has no move that overwrites. Whoever reads $To after a crash in between finds $From whole.
function Move-IntoPlace {
    [CmdletBinding()]
    param([string]$From, [string]$To)
    [System.IO.File]::Delete($To)
    [System.IO.File]::Move($From, $To)
}

function Write-TextFile {
    [CmdletBinding()]
    param([string]$Path, [string]$Text)
    $new = $Path + '.new'
    [System.IO.File]::WriteAllText($new, $Text, $script:Utf8)
    Move-IntoPlace -From $new -To $Path
}

# The running services whose command names a file.
function Get-ServiceUsing {
    [CmdletBinding()]
    param([string]$Path)
    $services = 'HKLM:\SYSTEM\CurrentControlSet\Services'
    $pattern = '(^|[\s"=])' + [regex]::Escape($Path) + '($|[\s"])'
    foreach ($name in Get-RegistrySubKey -Key $services) {
        # Some guards of Windows shut their keys to administrators too; none of them runs a file of the plan.
        try { $command = [string](Get-RegistryData -Key "$services\$name" -Name 'ImagePath' -Default '') }
        catch [System.Security.SecurityException] { continue }
        if ($command -notmatch $pattern) { continue }
        foreach ($service in @(Get-Service -Name $name -ErrorAction SilentlyContinue)) {
            if ([string]$service.Status -ne 'Stopped') { $name }
        }
    }
}

# Puts a copy of a file at its place once it is whole there and has this sha256. <path>.new goes, whatever happens.
# A copy, since that takes its access from the folder it is made in; a moved file would keep the one it had.
function Copy-IntoPlace {
    [CmdletBinding()]
    param([string]$From, [string]$To, [string]$Digest)
    $new = $To + '.new'
    try {
        # A run that was cut off may have left one that is read-only.
        if ([System.IO.File]::Exists($new)) { [System.IO.File]::SetAttributes($new, [System.IO.FileAttributes]::Normal) }
        [System.IO.File]::Copy($From, $new, $true)
        # A read-only file can be neither replaced nor deleted, and a copy is as read-only as its original.
        [System.IO.File]::SetAttributes($new, [System.IO.FileAttributes]::Normal)
        $found = Get-Digest -Path $new
        if ($found -cne $Digest) { throw "the sha256 of $new is $found, not $Digest" }
        try {
            if ([System.IO.File]::Exists($To)) { [System.IO.File]::SetAttributes($To, [System.IO.FileAttributes]::Normal) }
            Move-IntoPlace -From $new -To $To
        }
        catch {
            $users = @(Get-ServiceUsing -Path $To) -join ', '
            if ($users -eq '') { throw }
            throw "$To is in use by service ${users}: stop service $users, or rebuild the image"
        }
    }
    finally {
        if ([System.IO.File]::Exists($new)) { [System.IO.File]::Delete($new) }
    }
}

# Deletes a folder and all in it; a virus scanner may hold a file for a moment.
function Clear-Tree {
    [CmdletBinding()]
    param([string]$Path)
    $clock = [System.Diagnostics.Stopwatch]::StartNew()
    while ([System.IO.Directory]::Exists($Path)) {
        try {
            # An archive can bring read-only files and folders, which nothing deletes. Of a folder, Normal keeps what it is.
            foreach ($entry in [System.IO.Directory]::GetFileSystemEntries($Path, '*', [System.IO.SearchOption]::AllDirectories)) {
                [System.IO.File]::SetAttributes($entry, [System.IO.FileAttributes]::Normal)
            }
            [System.IO.Directory]::Delete($Path, $true)
            return
        }
        catch {
            if ($clock.Elapsed.TotalSeconds -gt 30) { throw }
            Start-Sleep -Milliseconds 250
        }
    }
}

# The last lines of a log that its writer may still hold open; an absent log has none.
function Get-LogTail {
    [CmdletBinding()]
    param([string]$Path, [int]$Lines)
    if (-not [System.IO.File]::Exists($Path)) { return }
    $stream = New-Object -TypeName System.IO.FileStream -ArgumentList $Path, 'Open', 'Read', 'ReadWrite'
    $reader = New-Object -TypeName System.IO.StreamReader -ArgumentList $stream
    try { $text = $reader.ReadToEnd() }
    finally { $reader.Dispose() }
    $text -split '\r?\n' | Where-Object -FilterScript { $_.Trim() -ne '' } | Select-Object -Last $Lines
}

# What is left of a step's time; never nothing, so that a wait still looks once.
function Get-SecondsLeft {
    [CmdletBinding()]
    param($Context)
    [int][Math]::Max(1, $Context.LimitSeconds - $Context.Clock.Elapsed.TotalSeconds)
}

function Get-SystemTool {
    [CmdletBinding()]
    param([string]$Name)
    [System.IO.Path]::Combine($env:SystemRoot, 'System32', $Name)
}

# One argument as the Windows C runtime reads it back.
function ConvertTo-NativeArgument {
    [CmdletBinding()]
    param([string]$Value)
    if ($Value -ne '' -and $Value -notmatch '[\s"]') { return $Value }
    $escaped = $Value -replace '(\\*)"', '$1$1\"'
    $escaped = $escaped -replace '(\\+)$', '$1$1'
    return '"' + $escaped + '"'
}

# Runs a program to its end within a deadline; throws on an exit code that was not expected.
# -ArgumentLine goes out as it is, for programs with a quoting of their own.
function Invoke-Native {
    [CmdletBinding()]
    param([string]$FilePath, [string[]]$ArgumentList = @(), [string]$ArgumentLine = '', [int[]]$GoodExitCode = @(0), [int]$TimeoutSeconds = 120)
    $start = New-Object -TypeName System.Diagnostics.ProcessStartInfo
    $start.FileName = $FilePath
    $start.Arguments = (@(foreach ($one in $ArgumentList) { ConvertTo-NativeArgument -Value $one }) + @($ArgumentLine) -join ' ').Trim()
    $start.UseShellExecute = $false
    $start.CreateNoWindow = $true
    $start.RedirectStandardInput = $true
    $start.RedirectStandardOutput = $true
    $start.RedirectStandardError = $true
    $process = [System.Diagnostics.Process]::Start($start)
    try {
        $out = $process.StandardOutput.ReadToEndAsync()
        $err = $process.StandardError.ReadToEndAsync()
        # A program that asks is answered by the end of its input, and cannot wait for ever.
        $process.StandardInput.Close()
        if (-not $process.WaitForExit($TimeoutSeconds * 1000)) {
            $process.Kill()
            throw "$FilePath did not end within $TimeoutSeconds s"
        }
        # Something it started may hold its output open: the exit code stands without the text.
        $text = 'its output is still open'
        if ([System.Threading.Tasks.Task]::WaitAll([System.Threading.Tasks.Task[]]@($out, $err), 5000)) { $text = ($err.Result + $out.Result).Trim() }
        if ($GoodExitCode -notcontains $process.ExitCode) { throw "$FilePath ended with $($process.ExitCode): $text" }
        [pscustomobject]@{ ExitCode = $process.ExitCode; Output = $text }
    }
    finally { $process.Dispose() }
}

# HKLM:\A\B as .NET wants it. The provider is not used: it takes '*' and '[' in a name for wildcards.
function Open-RegistryKey {
    [CmdletBinding()]
    param([string]$Key)
    $script:LocalMachine.OpenSubKey($Key.Substring('HKLM:\'.Length))
}

function Test-RegistryKey {
    [CmdletBinding()]
    param([string]$Key)
    $opened = Open-RegistryKey -Key $Key
    if ($null -eq $opened) { return $false }
    $opened.Dispose()
    return $true
}

# The names of the keys below one; none when it is not there.
function Get-RegistrySubKey {
    [CmdletBinding()]
    param([string]$Key)
    $opened = Open-RegistryKey -Key $Key
    if ($null -eq $opened) { return }
    try { $opened.GetSubKeyNames() }
    finally { $opened.Dispose() }
}

# A value as {type, data}: unexpanded, numbers unsigned; $null when the key or the value is not there.
function Get-RegistryValue {
    [CmdletBinding()]
    param([string]$Key, [string]$Name)
    $opened = Open-RegistryKey -Key $Key
    if ($null -eq $opened) { return $null }
    try {
        $data = $opened.GetValue($Name, $null, [Microsoft.Win32.RegistryValueOptions]::DoNotExpandEnvironmentNames)
        if ($null -eq $data) { return $null }
        $type = [string]$opened.GetValueKind($Name)
    }
    finally { $opened.Dispose() }
    if ($type -eq 'DWord') { $data = [long]$data -band 4294967295 }
    if ($type -eq 'QWord' -and $data -lt 0) { $data = [System.BitConverter]::ToUInt64([System.BitConverter]::GetBytes([long]$data), 0) }
    return [ordered]@{ type = $type; data = $data }
}

# The data of a value, or what to take when it is not there. For single values: a list would be unrolled.
function Get-RegistryData {
    [CmdletBinding()]
    param([string]$Key, [string]$Name, $Default = $null)
    $value = Get-RegistryValue -Key $Key -Name $Name
    if ($null -eq $value) { return $Default }
    return $value.data
}

# CreateSubKey opens a key that is there: its other values and keys stay.
function Write-RegistryValue {
    [CmdletBinding()]
    param([string]$Key, [string]$Name, [string]$Type, $Data)
    $opened = $script:LocalMachine.CreateSubKey($Key.Substring('HKLM:\'.Length))
    try {
        $kind = [Microsoft.Win32.RegistryValueKind]$Type
        # .NET takes a signed number; the same bits, or one above 0x7fffffff would be refused.
        if ($Type -eq 'DWord') { $opened.SetValue($Name, [System.BitConverter]::ToInt32([System.BitConverter]::GetBytes([uint32]$Data), 0), $kind) }
        elseif ($Type -eq 'QWord') { $opened.SetValue($Name, [long]$Data, $kind) }
        elseif ($Type -eq 'MultiString') { $opened.SetValue($Name, [string[]]@($Data), $kind) }
        else { $opened.SetValue($Name, [string]$Data, $kind) }
    }
    finally { $opened.Dispose() }
}

# What Windows this is, as the report has it. CurrentState 112 is installed.
function Get-MachineFact {
    [CmdletBinding()]
    param()
    $windows = 'HKLM:\SOFTWARE\Microsoft\Windows NT\CurrentVersion'
    $packages = 'HKLM:\SOFTWARE\Microsoft\Windows\CurrentVersion\Component Based Servicing\Packages'
    $updates = @(foreach ($name in Get-RegistrySubKey -Key $packages) {
            $key = "$packages\$name"
            if ((Get-RegistryData -Key $key -Name 'CurrentState' -Default 0) -ne 112) { continue }
            # A cumulative update's own name has no number; where it came from has.
            $origin = Get-RegistryData -Key $key -Name 'InstallLocation' -Default ''
            foreach ($found in [regex]::Matches("$name $origin", 'KB\d+')) { $found.Value }
        })
    return [ordered]@{
        product = [string](Get-RegistryData -Key $windows -Name 'ProductName')
        edition = [string](Get-RegistryData -Key $windows -Name 'EditionID')
        installation = [string](Get-RegistryData -Key $windows -Name 'InstallationType')
        build = [int](Get-RegistryData -Key $windows -Name 'CurrentBuildNumber')
        ubr = [int](Get-RegistryData -Key $windows -Name 'UBR')
        updates = @(Get-SortedText -Text $updates)
    }
}

# 1.2 stands for 1.2 and for every 1.2.x.
function Test-SameVersion {
    [CmdletBinding()]
    param([string]$Found, [string]$Wanted)
    return ($Found -ceq $Wanted -or $Found.StartsWith($Wanted + '.', [System.StringComparison]::Ordinal))
}

# The version an MSI product is registered with; $null when it is not. Of several registrations the one that fits counts, or else the last.
function Get-PackageVersion {
    [CmdletBinding()]
    param([string]$Product, [string]$Version)
    $found = $null
    foreach ($root in 'HKLM:\SOFTWARE\Microsoft\Windows\CurrentVersion\Uninstall', 'HKLM:\SOFTWARE\WOW6432Node\Microsoft\Windows\CurrentVersion\Uninstall') {
        foreach ($name in Get-RegistrySubKey -Key $root) {
            $registered = Get-RegistryData -Key "$root\$name" -Name 'DisplayName'
            if ($null -eq $registered -or -not (Test-SameText -Left $registered -Right $Product)) { continue }
            if ($null -eq $found -or -not (Test-SameVersion -Found $found -Wanted $Version)) {
                $found = [string](Get-RegistryData -Key "$root\$name" -Name 'DisplayVersion')
            }
        }
    }
    return $found
}

# A service's failure actions as {restart_after_s, reset_after_s}; $null unless every action is a restart after the same time.
function Get-ServiceRecovery {
    [CmdletBinding()]
    param([string]$Key)
    $value = Get-RegistryValue -Key $Key -Name 'FailureActions'
    if ($null -eq $value -or $value.type -ne 'Binary') { return $null }
    # SERVICE_FAILURE_ACTIONS as the registry keeps it: reset period, two unused words, count, offset, and (type, milliseconds) for each action.
    $bytes = [byte[]]$value.data
    if ($bytes.Length -lt 28) { return $null }
    $count = [System.BitConverter]::ToInt32($bytes, 12)
    if ($count -lt 1 -or $bytes.Length -lt 20 + 8 * $count) { return $null }
    $delay = [long][System.BitConverter]::ToUInt32($bytes, 24)
    for ($index = 0; $index -lt $count; $index++) {
        $at = 20 + 8 * $index
        if ([System.BitConverter]::ToInt32($bytes, $at) -ne 1 -or [System.BitConverter]::ToUInt32($bytes, $at + 4) -ne $delay) { return $null }
    }
    return [ordered]@{ restart_after_s = $delay / 1000; reset_after_s = [long][System.BitConverter]::ToUInt32($bytes, 0) }
}

# Starts or stops a service and waits for it within the step's time. One that dies on the way up fails at once.
function Wait-ServiceState {
    [CmdletBinding()]
    param([string]$Name, [string]$State, $Context)
    $service = Get-Service -Name $Name
    $status = [string]$service.Status
    $up = $State -eq 'running'
    if ($up -and $status -notin 'Running', 'StartPending') { $null = $service.Start() }
    if (-not $up -and $status -notin 'Stopped', 'StopPending') { $null = Stop-Service -Name $Name -Force -NoWait }
    while ($true) {
        $service.Refresh()
        $status = [string]$service.Status
        if ($status -eq $State) { return }
        if ($up -and $status -eq 'Stopped') { throw "service $Name came up and stopped again" }
        if ($Context.Clock.Elapsed.TotalSeconds -gt $Context.LimitSeconds) { throw "service $Name is $status, not $State, and the step's time is over" }
        Start-Sleep -Milliseconds 200
    }
}

function Test-RestartPending {
    [CmdletBinding()]
    param()
    foreach ($key in 'HKLM:\SOFTWARE\Microsoft\Windows\CurrentVersion\Component Based Servicing\RebootPending',
        'HKLM:\SOFTWARE\Microsoft\Windows\CurrentVersion\WindowsUpdate\Auto Update\RebootRequired') {
        if (Test-RegistryKey -Key $key) { return $true }
    }
    return $false
}
