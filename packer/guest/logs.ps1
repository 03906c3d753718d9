# Packer's last script on the machine of a failed build: prints the newest logs as a zip, before the machine is deleted.
# Changes nothing and needs no bundle: the build may have failed before there was one, or while the engine was killed. See docs/guest.md.
Set-StrictMode -Version Latest; $ErrorActionPreference, $ProgressPreference = 'Stop', 'SilentlyContinue'
trap { [System.Console]::Out.WriteLine("failed: $($_.Exception.Message)`r`n$($_.ScriptStackTrace)"); exit 1 }

# The folder in the zip, the folder on the machine and a pattern: only logs, and no answer file, which may hold a password.
$script:Places = @(
    @('imagegen', 'C:\ProgramData\imagegen', '*.log'), @('imagegen', 'C:\ProgramData\imagegen', 'state.json'),
    @('cbs', 'C:\Windows\Logs\CBS', 'CBS.log'), @('dism', 'C:\Windows\Logs\DISM', 'dism.log'),
    @('panther', 'C:\Windows\Panther', 'setup*.log'), @('sysprep', 'C:\Windows\System32\Sysprep\Panther', 'setup*.log'),
    @('containerd', 'C:\var\log\containerd', '*.log'), @('kubelet', 'C:\var\log\kubelet', '*.log'),
    @('csi-proxy', 'C:\var\log\csi-proxy', '*.log'), @('cri-dockerd', 'C:\var\log\cri-dockerd', '*.log'),
    @('cloudbase-init', 'C:\Program Files\Cloudbase Solutions\Cloudbase-Init\log', '*.log')
)
# Bytes of the end of each file, and of all together before they are compressed.
$script:FileLimit = 524288
$script:Left = 4000000
$script:LineLength = 900
# Packer waits no longer than its own limit for this script.
$script:Seconds = 90
$script:Clock = [System.Diagnostics.Stopwatch]::StartNew()
$script:Notes = New-Object -TypeName 'System.Collections.Generic.List[string]'
$script:Utf8 = New-Object -TypeName System.Text.UTF8Encoding -ArgumentList $false

# The engine's files, then the others, the newest first.
function Get-LogFile { [CmdletBinding()] param()
    $found = @(foreach ($place in $script:Places) {
            if (-not [System.IO.Directory]::Exists($place[1])) { continue }
            try {
                foreach ($path in [System.IO.Directory]::GetFiles($place[1], $place[2])) {
                    $name = "$($place[0])/$([System.IO.Path]::GetFileName($path))"
                    [pscustomobject]@{ Name = $name; Path = $path; Own = $place[0] -ceq 'imagegen'; Written = [System.IO.File]::GetLastWriteTimeUtc($path) }
                }
            }
            catch { $null = $script:Notes.Add("$($place[1]): $($_.Exception.GetBaseException().Message)") }
        })
    $found | Sort-Object -Property 'Own', 'Written' -Descending
}

# The end of a file that its writer may still have open.
function Read-Tail { [CmdletBinding()] param([string]$Path, [int]$Limit)
    $stream = New-Object -TypeName System.IO.FileStream -ArgumentList $Path, 'Open', 'Read', 'ReadWrite'
    try {
        $size = [int][Math]::Min($stream.Length, $Limit)
        $stream.Position = $stream.Length - $size
        return ,(New-Object -TypeName System.IO.BinaryReader -ArgumentList $stream).ReadBytes($size)
    }
    finally { $stream.Dispose() }
}

# The newest entries of one of Windows' event logs as text, the newest first.
# Not with Get-WinEvent: under Stop, one message that Windows cannot render ends it (https://github.com/PowerShell/PowerShell/issues/7664).
function Read-Event { [CmdletBinding()] param([string]$Name, [int]$Limit)
    $line = "qe $Name /c:200 /rd:true /f:text"
    $start = New-Object -TypeName System.Diagnostics.ProcessStartInfo -ArgumentList "$env:SystemRoot\System32\wevtutil.exe", $line
    $start.UseShellExecute = $false
    $start.RedirectStandardOutput = $true
    $process = [System.Diagnostics.Process]::Start($start)
    $reading = $process.StandardOutput.ReadToEndAsync()
    if (-not $process.WaitForExit(30000)) {
        $process.Kill()
        throw 'wevtutil.exe did not end within 30 s'
    }
    if ($process.ExitCode -ne 0) { throw "wevtutil.exe ended with $($process.ExitCode)" }
    # UTF-8 has at most three bytes for a character of .NET.
    return ,$script:Utf8.GetBytes($reading.Result.Substring(0, [Math]::Min($reading.Result.Length, [int][Math]::Floor($Limit / 3))))
}

function Write-Entry { [CmdletBinding()] param($Zip, [string]$Name, [byte[]]$Data)
    $target = $Zip.CreateEntry($Name).Open()
    try { $target.Write($Data, 0, $Data.Length) }
    finally { $target.Dispose() }
}

# Puts one log into the zip. One that cannot be read, or for which there is no space or time, is a line of the notes.
function Add-Log { [CmdletBinding()] param($Zip, [string]$Name, [string]$Path, [scriptblock]$Read)
    # Even: a log in UTF-16 must not be cut within a character, or the host would not know a secret in it.
    $limit = [Math]::Min($script:Left, $script:FileLimit) -band -2
    try {
        if ($limit -eq 0 -or $script:Clock.Elapsed.TotalSeconds -gt $script:Seconds) { throw 'left out' }
        $data = & $Read $limit
        Write-Entry -Zip $Zip -Name $Name -Data $data
        $script:Left -= $data.Length
    }
    catch { $null = $script:Notes.Add("${Path}: $($_.Exception.GetBaseException().Message)") }
}

Add-Type -AssemblyName System.IO.Compression
$memory = New-Object -TypeName System.IO.MemoryStream
$zip = New-Object -TypeName System.IO.Compression.ZipArchive -ArgumentList $memory, 'Create', $true
foreach ($log in 'System', 'Application') {
    Add-Log -Zip $zip -Name "events/${log}.txt" -Path "the event log $log" -Read { param($Limit) Read-Event -Name $log -Limit $Limit }
}
foreach ($file in @(Get-LogFile)) {
    Add-Log -Zip $zip -Name $file.Name -Path $file.Path -Read { param($Limit) Read-Tail -Path $file.Path -Limit $Limit }
}
Write-Entry -Zip $zip -Name 'notes.txt' -Data ($script:Utf8.GetBytes(($script:Notes -join "`r`n")))
$zip.Dispose()
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
