# Adds the OpenSSH server of Windows. Windows Update serves no network logon, such as the builder's over WinRM: a scheduled task runs this script again as SYSTEM, with -Result, the file for
# what became of it. With -Show it only prints whether the server is there: some releases already have it.
[CmdletBinding(PositionalBinding = $false)] param([switch]$Show, [string]$Result = '')
Set-StrictMode -Version Latest
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'

$script:Task = 'imagegen-add-ssh-server'
# Less than the time of the step.
$script:LimitS = 1500
$script:System = [System.Environment]::GetFolderPath('System')

# Prints whether the program and its service are there.
function Show-Server {
    [CmdletBinding()] param()
    $program = [System.IO.File]::Exists([System.IO.Path]::Combine($script:System, 'OpenSSH', 'sshd.exe'))
    $service = Test-Path -LiteralPath 'HKLM:\SYSTEM\CurrentControlSet\Services\sshd'
    [System.Console]::Out.WriteLine("installed=$($program -and $service)")
}

# Adds the server, as SYSTEM. The file comes into place whole.
function Add-Server {
    [CmdletBinding()] param([string]$File)
    $text = 'done'
    try { $null = Add-WindowsCapability -Online -Name 'OpenSSH.Server~~~~0.0.1.0' -ErrorAction Stop }
    catch { $text = '{0} (0x{1:X8})' -f $_.Exception.Message, $_.Exception.HResult }
    [System.IO.File]::WriteAllText("${File}.new", $text, (New-Object -TypeName System.Text.UTF8Encoding -ArgumentList $false))
    [System.IO.File]::Move("${File}.new", $File)
}

# Runs this script as SYSTEM, and returns what became of it.
function Invoke-AsSystem {
    [CmdletBinding()] param([string]$File)
    [System.IO.File]::Delete($File)
    $program = [System.IO.Path]::Combine($script:System, 'WindowsPowerShell', 'v1.0', 'powershell.exe')
    $arguments = '-NoProfile -NonInteractive -ExecutionPolicy Bypass -File "{0}" -Result "{1}"' -f $PSCommandPath, $File
    $task = @{
        TaskName = $script:Task
        Action = New-ScheduledTaskAction -Execute $program -Argument $arguments
        Principal = New-ScheduledTaskPrincipal -UserId 'S-1-5-18' -LogonType ServiceAccount -RunLevel Highest
        Settings = New-ScheduledTaskSettingsSet -AllowStartIfOnBatteries -DontStopIfGoingOnBatteries
    }
    $null = Register-ScheduledTask @task -Force -ErrorAction Stop
    try {
        Start-ScheduledTask -TaskName $script:Task -ErrorAction Stop
        $watch = [System.Diagnostics.Stopwatch]::StartNew()
        while (-not [System.IO.File]::Exists($File)) {
            if ($watch.Elapsed.TotalSeconds -gt $script:LimitS) { throw "the task $($script:Task) did not end within $($script:LimitS) seconds" }
            Start-Sleep -Seconds 2
        }
    }
    finally {
        $null = Stop-ScheduledTask -TaskName $script:Task -ErrorAction SilentlyContinue
        $null = Unregister-ScheduledTask -TaskName $script:Task -Confirm:$false -ErrorAction Stop
    }
    [System.IO.File]::ReadAllText($File)
    [System.IO.File]::Delete($File)
}

$code = 0
try {
    if ($Show) { Show-Server }
    elseif ($Result -ne '') { Add-Server -File $Result }
    else {
        $said = Invoke-AsSystem -File ([System.IO.Path]::Combine($PSScriptRoot, 'result.txt'))
        if ($said -ne 'done') { throw "Windows Update gave no OpenSSH server: $said. Where the builder cannot reach Windows Update, write ssh.source: zip" }
    }
}
catch {
    $code = 1
    [System.Console]::Out.WriteLine("failed: $($_.Exception.Message)")
}
exit $code
