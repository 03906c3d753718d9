# Rotates the logs of a list. Each line of it has the maximum size in bytes, the number of copies to keep, and the path of a log. A scheduled task runs this script.
# The program that writes a log keeps it open, so that others cannot rename it. Therefore the log is copied and then emptied. Its program only appends, and
# continues at the new end. What it writes between the end of the copy and the emptying is lost.
[CmdletBinding(PositionalBinding = $false)]
param([string]$List = 'C:\k\rotated-logs.txt')
Set-StrictMode -Version Latest
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'

# Moves <path>.1 to <path>.2 and so on, up to the first free number. If no number is free, the oldest copy is deleted.
function Move-Copy {
    [CmdletBinding()]
    param([string]$Path, [int]$Keep)
    $free = 1
    while ($free -lt $Keep -and [System.IO.File]::Exists("$Path.$free")) { $free++ }
    [System.IO.File]::Delete("$Path.$free")
    for ($number = $free; $number -gt 1; $number--) { [System.IO.File]::Move("$Path.$($number - 1)", "$Path.$number") }
}

# Copies the rest of an open log to <path>.1 and empties the log. If either fails, the log is as before, and the copy is deleted.
function Clear-Log {
    [CmdletBinding()]
    param($Log, [string]$Path)
    $emptied = $false
    $copy = New-Object -TypeName System.IO.FileStream -ArgumentList "$Path.1", 'CreateNew', 'Write', 'Read'
    try {
        $Log.CopyTo($copy)
        $copy.Flush()
        $Log.SetLength(0)
        $emptied = $true
    }
    finally {
        # Closing fails too if the disk is full.
        try { $copy.Dispose() }
        finally { if (-not $emptied) { [System.IO.File]::Delete("$Path.1") } }
    }
}

function Limit-Log {
    [CmdletBinding()]
    param([string]$Path, [long]$Size, [int]$Keep)
    # The program may not have written anything yet.
    if (-not [System.IO.File]::Exists($Path)) { return }
    $log = New-Object -TypeName System.IO.FileStream -ArgumentList $Path, 'Open', 'ReadWrite', 'ReadWrite'
    try {
        if ($log.Length -le $Size) { return }
        Move-Copy -Path $Path -Keep $Keep
        # Of a log that grew much too fast, only the end is kept: the copies must not fill the disk.
        $null = $log.Seek([System.Math]::Max([long]0, $log.Length - 2 * $Size), 'Begin')
        Clear-Log -Log $log -Path $Path
    }
    finally { $log.Dispose() }
}

$code = 0
try {
    foreach ($line in [System.IO.File]::ReadAllLines($List)) {
        if ($line -eq '') { continue }
        # Each log by itself: one that cannot be rotated must not keep another from being rotated.
        try {
            $size, $keep, $path = $line -split ' ', 3
            if ($null -eq $path) { throw 'the line must have a size, a number and a path' }
            Limit-Log -Path $path -Size $size -Keep $keep
        }
        catch {
            $code = 1
            [System.Console]::Error.WriteLine("rotate-logs: ${line}: $($_.Exception.Message)")
        }
    }
}
catch {
    $code = 1
    [System.Console]::Error.WriteLine("rotate-logs: $($_.Exception.Message)")
}
exit $code
