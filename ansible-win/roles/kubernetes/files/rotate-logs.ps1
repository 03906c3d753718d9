# Rotates the logs of a list. Each line of it has the maximum size in bytes, the number of copies to keep, and the path of a log. A scheduled task runs this script.
# A log's program keeps it open, so that others cannot rename it: the log is copied and then emptied, and its program appends at the new end.
# The task scheduler may end this script anywhere. Therefore a log is emptied only when its copy is on the disk and has its final name.
[CmdletBinding(PositionalBinding = $false)] param([string]$List = 'C:\k\rotated-logs.txt')
Set-StrictMode -Version Latest; $ErrorActionPreference, $ProgressPreference = 'Stop', 'SilentlyContinue'

# ERROR_HANDLE_DISK_FULL and ERROR_DISK_FULL as .NET's exceptions have them: 0x80070027 and 0x80070070.
$script:DiskFull = @(-2147024857, -2147024784)

# Copies the rest of an open log to a file, and returns when the copy is on the disk: a power cut would take what is only in Windows' cache.
function Copy-Rest { [CmdletBinding()] param($Log, [string]$Path, [string]$Mode)
    $copy = New-Object -TypeName System.IO.FileStream -ArgumentList $Path, $Mode, 'Write', 'Read'
    try {
        $Log.CopyTo($copy)
        $copy.Flush($true)
    }
    finally { $copy.Dispose() }
}

# Moves <path>.1 to <path>.2 and so on, up to the first free number, and <path>.new to <path>.1. If no number is free, the oldest copy is deleted.
function Move-Copy { [CmdletBinding()] param([string]$Path, [int]$Keep)
    $free = 1
    while ($free -lt $Keep -and [System.IO.File]::Exists("$Path.$free")) { $free++ }
    if ([System.IO.File]::Exists("$Path.$free")) { [System.IO.File]::SetAttributes("$Path.$free", [System.IO.FileAttributes]::Normal) }
    [System.IO.File]::Delete("$Path.$free")
    for ($number = $free; $number -gt 1; $number--) { [System.IO.File]::Move("$Path.$($number - 1)", "$Path.$number") }
    [System.IO.File]::Move("${Path}.new", "$Path.1")
}

# Frees space on a full disk: deletes the oldest copy of an open log, or a newer one if another program holds that open, or empties the log if no copy can be deleted. Returns what it did.
function Clear-Space { [CmdletBinding()] param($Log, [string]$Path, [int]$Keep)
    for ($number = $Keep; $number -ge 1; $number--) {
        if (-not [System.IO.File]::Exists("$Path.$number")) { continue }
        try { [System.IO.File]::Delete("$Path.$number") }
        catch { continue }
        return "Its copy $Path.$number was deleted."
    }
    $Log.SetLength(0)
    return 'It was emptied without a copy.'
}

function Limit-Log { [CmdletBinding()] param([string]$Path, [long]$Size, [int]$Keep)
    # The program may not have written anything yet.
    if (-not [System.IO.File]::Exists($Path)) { return }
    $log = New-Object -TypeName System.IO.FileStream -ArgumentList $Path, 'Open', 'ReadWrite', 'ReadWrite'
    try {
        if ($log.Length -le $Size) { return }
        # Of a log that grew much too fast, only the end is kept: the copies must not fill the disk.
        $null = $log.Seek([System.Math]::Max([long]0, $log.Length - 2 * $Size), 'Begin')
        $copy = "${Path}.new"
        try {
            Copy-Rest -Log $log -Path $copy -Mode 'Create'
            Move-Copy -Path $Path -Keep $Keep
            $copy = "$Path.1"
            # What the program wrote meanwhile. It writes on while a copy goes to the disk, so this is repeated, but not for ever.
            for ($round = 0; $round -lt 3 -and $log.Position -lt $log.Length; $round++) { Copy-Rest -Log $log -Path $copy -Mode 'Append' }
            if ($log.Position -gt $log.Length) {
                # If another run did, .1 may be its copy by now, and must stay.
                $copy = "${Path}.new"
                throw 'another program emptied the log meanwhile'
            }
            $log.SetLength(0)
        }
        catch {
            $cause = $_.Exception.GetBaseException()
            $reason = $cause.Message
            # The log still has everything.
            try { [System.IO.File]::Delete($copy) }
            catch { $reason += " $copy could not be deleted: $($_.Exception.Message)" }
            if ($script:DiskFull -contains $cause.HResult) { $reason += ' ' + (Clear-Space -Log $log -Path $Path -Keep $Keep) }
            throw $reason
        }
    }
    finally { $log.Dispose() }
}

$failures = @()
try {
    foreach ($line in [System.IO.File]::ReadAllLines($List)) {
        if ($line -eq '') { continue }
        # Each log by itself: one that cannot be rotated must not keep another from being rotated.
        try {
            if ($line -notmatch '\A[1-9][0-9]{0,17} [1-9][0-9]{0,8} \S') { throw 'the line must have a size, a number and a path, with both numbers above 0' }
            $size, $keep, $path = $line -split ' ', 3
            Limit-Log -Path $path -Size $size -Keep $keep
        }
        catch { $failures += "${line}: $($_.Exception.Message)" }
    }
}
catch { $failures += $_.Exception.Message }
# The task scheduler discards what this script writes to its console. The file has the access rights of its folder.
$failed = $List + '.failed'
try {
    if ($failures.Count -eq 0) { [System.IO.File]::Delete($failed) }
    else { [System.IO.File]::WriteAllLines($failed, [string[]]$failures) }
}
catch { $failures += "${failed}: $($_.Exception.Message)" }
foreach ($failure in $failures) { [System.Console]::Error.WriteLine("rotate-logs: $failure") }
exit [int]($failures.Count -gt 0)
