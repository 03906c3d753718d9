# Packer's last script on the machine of a failed build: prints the newest logs as a zip, before the machine is deleted.
# Changes nothing and needs no bundle: the build may have failed before there was one, or while the engine was killed. See docs/guest.md.
Set-StrictMode -Version Latest; $ErrorActionPreference, $ProgressPreference = 'Stop', 'SilentlyContinue'
trap { [System.Console]::Out.WriteLine("failed: $($_.Exception.Message)`r`n$($_.ScriptStackTrace)"); exit 1 }

# The folder in the zip, the folder on the machine and a pattern: only logs, and no answer file, which may hold a password.
$script:Places = @(
    @('imagegen', 'C:\ProgramData\imagegen', '*.log'),
    @('imagegen', 'C:\ProgramData\imagegen', 'state.json'),
    @('cbs', 'C:\Windows\Logs\CBS', 'CBS.log'),
    @('dism', 'C:\Windows\Logs\DISM', 'dism.log'),
    @('panther', 'C:\Windows\Panther', 'setup*.log'),
    @('sysprep', 'C:\Windows\System32\Sysprep\Panther', 'setup*.log'),
    @('containerd', 'C:\ProgramData\containerd', '*.log'),
    @('kubelet', 'C:\var\log\kubelet', '*.log'),
    @('csi-proxy', 'C:\var\log\csi-proxy', '*.log'),
    @('cri-dockerd', 'C:\var\log\cri-dockerd', '*.log'),
    @('cloudbase-init', 'C:\Program Files\Cloudbase Solutions\Cloudbase-Init\log', '*.log')
)
$script:EventCount = 200
# Bytes of the end of each file, and of all together before they are compressed.
$script:FileLimit = 524288
$script:TotalLimit = 4000000
$script:LineLength = 900
# Packer waits no longer than its own limit for this script.
$script:Seconds = 90

function Get-LogFile { [CmdletBinding()] param([System.Collections.Generic.List[string]]$Notes)
    $found = @(foreach ($place in $script:Places) {
            if (-not [System.IO.Directory]::Exists($place[1])) { continue }
            try {
                foreach ($path in [System.IO.Directory]::GetFiles($place[1], $place[2])) {
                    $name = [System.IO.Path]::GetFileName($path)
                    [pscustomobject]@{ Name = "$($place[0])/$name"; Path = $path; Own = $place[0] -ceq 'imagegen'; Written = [System.IO.File]::GetLastWriteTimeUtc($path) }
                }
            }
            catch { $null = $Notes.Add("$($place[1]): $($_.Exception.GetBaseException().Message)") }
        })
    $found | Where-Object -FilterScript { $_.Own }
    $found | Where-Object -FilterScript { -not $_.Own } | Sort-Object -Property Written -Descending
}

# The end of a file that its writer may still have open.
function Read-Tail { [CmdletBinding()] param([string]$Path, [long]$Limit)
    $stream = New-Object -TypeName System.IO.FileStream -ArgumentList $Path, 'Open', 'Read', 'ReadWrite'
    try {
        $size = [int][Math]::Min($stream.Length, $Limit)
        $stream.Position = $stream.Length - $size
        return ,(New-Object -TypeName System.IO.BinaryReader -ArgumentList $stream).ReadBytes($size)
    }
    finally { $stream.Dispose() }
}

# The newest entries of one of Windows' event logs as text. A level of 2 is an error, 3 a warning.
# Not with Get-WinEvent: under Stop, one message that Windows cannot render ends it (https://github.com/PowerShell/PowerShell/issues/7664).
function Get-EventText { [CmdletBinding()] param([string]$Name, $Clock)
    $query = New-Object -TypeName System.Diagnostics.Eventing.Reader.EventLogQuery -ArgumentList $Name, 'LogName'
    $query.ReverseDirection = $true
    $reader = New-Object -TypeName System.Diagnostics.Eventing.Reader.EventLogReader -ArgumentList $query
    try {
        $lines = @(for ($count = 0; $count -lt $script:EventCount; $count++) {
                if ($Clock.Elapsed.TotalSeconds -gt $script:Seconds) { break }
                $entry = $reader.ReadEvent()
                if ($null -eq $entry) { break }
                $stamp = if ($null -ne $entry.TimeCreated) { $entry.TimeCreated.ToUniversalTime().ToString('yyyy-MM-ddTHH:mm:ssZ', [System.Globalization.CultureInfo]::InvariantCulture) }
                try { $message = [string]$entry.FormatDescription() }
                catch { $message = "(no message: $($_.Exception.GetBaseException().Message))" }
                "$stamp level $($entry.Level) $($entry.ProviderName) $($entry.Id) $message"
            })
    }
    finally { $reader.Dispose() }
    return ($lines -join "`r`n")
}

function Write-Entry { [CmdletBinding()] param($Zip, [string]$Name, [byte[]]$Data)
    $target = $Zip.CreateEntry($Name).Open()
    try { $target.Write($Data, 0, $Data.Length) }
    finally { $target.Dispose() }
}

function Get-LogArchive { [CmdletBinding()] param()
    Add-Type -AssemblyName System.IO.Compression
    $clock = [System.Diagnostics.Stopwatch]::StartNew()
    $notes = New-Object -TypeName 'System.Collections.Generic.List[string]'
    $utf8 = New-Object -TypeName System.Text.UTF8Encoding -ArgumentList $false
    $memory = New-Object -TypeName System.IO.MemoryStream
    $zip = New-Object -TypeName System.IO.Compression.ZipArchive -ArgumentList $memory, 'Create', $true
    try {
        $left = $script:TotalLimit
        foreach ($name in 'System', 'Application') {
            try {
                $data = $utf8.GetBytes((Get-EventText -Name $name -Clock $clock))
                if ($data.Length -gt $script:FileLimit) { $data = $utf8.GetBytes($utf8.GetString($data, 0, $script:FileLimit)) }
                Write-Entry -Zip $zip -Name "events/${name}.txt" -Data $data
                $left -= $data.Length
            }
            catch { $null = $notes.Add("the event log ${name}: $($_.Exception.Message)") }
        }
        foreach ($file in @(Get-LogFile -Notes $notes)) {
            if ($left -lt 2 -or $clock.Elapsed.TotalSeconds -gt $script:Seconds) {
                $null = $notes.Add("$($file.Path): left out")
                continue
            }
            try {
                # Even: a log in UTF-16 must not be cut within a character, or the host would not know a secret in it.
                $data = Read-Tail -Path $file.Path -Limit ([Math]::Min($left, $script:FileLimit) -band -2)
                Write-Entry -Zip $zip -Name $file.Name -Data $data
                $left -= $data.Length
            }
            catch { $null = $notes.Add("$($file.Path): $($_.Exception.GetBaseException().Message)") }
        }
        Write-Entry -Zip $zip -Name 'notes.txt' -Data ($utf8.GetBytes(($notes -join "`r`n")))
    }
    finally { $zip.Dispose() }
    return $memory
}

$memory = Get-LogArchive
$memory.Position = 0
$digest = (Get-FileHash -InputStream $memory -Algorithm SHA256).Hash.ToLowerInvariant()
$bytes = $memory.ToArray()
[System.Console]::Out.WriteLine("imagegen-logs: begin $($bytes.Length) $digest")
$text = [System.Convert]::ToBase64String($bytes)
for ($at = 0; $at -lt $text.Length; $at += $script:LineLength) {
    [System.Console]::Out.WriteLine("imagegen-logs: $($text.Substring($at, [Math]::Min($script:LineLength, $text.Length - $at)))")
}
[System.Console]::Out.WriteLine('imagegen-logs: end')
exit 0
