# Checks first and deletes last: after a failed check or a failed sysprep the machine still has its logs and can be sealed again.
# Imported from the bundle, whose folder it deletes at the end: the code that runs afterwards is in memory.
Set-StrictMode -Version Latest; $ErrorActionPreference, $ProgressPreference = 'Stop', 'SilentlyContinue'

Import-Module -Name ([System.IO.Path]::Combine($PSScriptRoot, 'common.psm1')) -Global -Force -DisableNameChecking

$script:Generalised = 'IMAGE_STATE_GENERALIZE_RESEAL_TO_OOBE'

function Assert-ReadyToSeal { [CmdletBinding()] param()
    $sysprep = Get-SystemTool -Name 'Sysprep\sysprep.exe'
    if (-not [System.IO.File]::Exists($sysprep)) { throw "there is no $sysprep" }
    if (-not [System.IO.File]::Exists('C:\ProgramData\imagegen\report.json')) { throw 'there is no report.json: the last phase has not finished' }
    if (Test-RestartPending) { throw 'Windows has a restart pending' }
    # If cloudbase-init started before the image is sealed, it would take the builder for a node at its first boot.
    $start = Get-RegistryData -Key 'HKLM:\SYSTEM\CurrentControlSet\Services\cloudbase-init' -Name 'Start' -Default 0
    if ($start -ne 3) { throw 'service cloudbase-init must exist with start type manual' }
    $status = [string](Get-Service -Name 'cloudbase-init').Status
    if ($status -ne 'Stopped') { throw "service cloudbase-init is $status, not Stopped" }
    $logon = 'HKLM:\SOFTWARE\Microsoft\Windows NT\CurrentVersion\Winlogon'
    if ([string](Get-RegistryData -Key $logon -Name 'AutoAdminLogon' -Default '0') -notin '', '0') { throw 'AutoAdminLogon is on' }
    if ([string](Get-RegistryData -Key $logon -Name 'DefaultPassword') -ne '') { throw 'a DefaultPassword is set' }
    foreach ($name in 'auth_basic', 'allow_unencrypted') {
        if ((Get-RegistryData -Key 'HKLM:\SOFTWARE\Microsoft\Windows\CurrentVersion\WSMAN\Service' -Name $name -Default 0) -ne 0) { throw "WinRM has $name on" }
    }
}

# Throws if a program from this folder runs, or is a service. Sealing deletes only what extensions of the cloud left that have done their work: an agent would know every node as the builder.
function Assert-NoAgent { [CmdletBinding()] param([string]$Folder)
    foreach ($program in @(Get-RunningProgram) + @(Get-ServiceCommand | ForEach-Object -Process { $_.Command })) {
        if ($program.IndexOf($Folder + '\', [System.StringComparison]::OrdinalIgnoreCase) -ge 0) {
            throw "an extension is installed: $program. Remove it from the base image, or exempt the builder from the policy that adds it"
        }
    }
}

function Get-ProfileFolder { [CmdletBinding()] param(); [System.IO.Directory]::GetDirectories('C:\Users') + 'C:\Windows\System32\config\systemprofile' }

# What Packer, the engine and users left. This includes the running script, which is in memory.
# What is in the engine's folder comes last, so that another try is possible until everything else is deleted. The release record stays.
function Get-Leftover { [CmdletBinding()] param()
    $places = @(
        @('C:\Windows\Temp', 'imagegen-*'), @('C:\Windows\Temp', 'packer-*'), @('C:\Windows\Temp', 'script-*.ps1'), @('C:\Windows\Temp', 'winrmcp-*'),
        @('C:\ProgramData\ssh', 'ssh_host_*')
    )
    foreach ($profilePath in Get-ProfileFolder) {
        $places += ,@("$profilePath\AppData\Roaming\Microsoft\Windows\PowerShell\PSReadLine", '*_history.txt')
        $places += ,@("$profilePath\AppData\Local\Temp", 'winrmcp-*')
    }
    foreach ($place in $places) {
        # GetFiles has no wildcard but '*' and '?', so brackets in a folder's name are safe.
        if ([System.IO.Directory]::Exists($place[0])) { [System.IO.Directory]::GetFiles($place[0], $place[1]) }
    }
    # Left by a -Check that was killed.
    [System.IO.Directory]::GetDirectories('C:\Windows', 'imagegen-check')
    $engine = 'C:\ProgramData\imagegen'
    if ([System.IO.Directory]::Exists($engine)) { [System.IO.Directory]::GetFileSystemEntries($engine) -ne "$engine\manifest.json" }
}

# The programs of all processes. Windows hides those of some of its own.
function Get-RunningProgram { [CmdletBinding()] param(); Get-Process -ErrorAction Stop | Select-Object -ExpandProperty 'Path' -ErrorAction SilentlyContinue }

# Windows is generalised already, so nothing that stays fails the seal: it is a line in the log.
function Clear-Optional { [CmdletBinding()] param([string]$What, [scriptblock]$Clear)
    try { & $Clear }
    catch { [System.Console]::Out.WriteLine("$What stays in the image, at least in part: $(Get-Cause -ErrorRecord $_)") }
}

# Folders that the cloud's agents left. A folder from which a program runs stays whole.
function Clear-AgentFolder { [CmdletBinding()] param([string]$Parent, [string]$Name, [int]$TimeoutSeconds)
    if (-not [System.IO.Directory]::Exists($Parent)) { return }
    $clock = [System.Diagnostics.Stopwatch]::StartNew()
    Clear-Optional -What "$Name in $Parent" -Clear {
        $programs = @(Get-RunningProgram)
        foreach ($folder in @([System.IO.Directory]::GetDirectories($Parent, $Name))) {
            $running = @($programs | Where-Object -FilterScript { $_.StartsWith($folder + '\', [System.StringComparison]::OrdinalIgnoreCase) })
            # The time is for all folders together. A second is enough for a second try.
            $left = [System.Math]::Max(1, $TimeoutSeconds - $clock.Elapsed.TotalSeconds)
            if ($running.Count -gt 0) { [System.Console]::Out.WriteLine("$folder stays in the image, because $($running[0]) runs") }
            else { Clear-Optional -What $folder -Clear { Clear-Tree -Path $folder -TimeoutSeconds $left } }
        }
    }
}

function Clear-File { [CmdletBinding()] param([string]$Folder)
    if (-not [System.IO.Directory]::Exists($Folder)) { return }
    Clear-Optional -What $Folder -Clear {
        foreach ($file in @(Get-TreeEntry -Path $Folder)) { if ([System.IO.File]::Exists($file)) { Clear-Optional -What $file -Clear { Clear-Tree -Path $file -TimeoutSeconds 0 } } }
    }
}

# An image that is generalised before such a service runs does not provision.
function Wait-CloudService { [CmdletBinding()] param([string]$Name, [int]$TimeoutSeconds)
    $runs = Wait-Until -Seconds $TimeoutSeconds -Every 2 -Test {
        @(Get-Service -Name $Name -ErrorAction SilentlyContinue | Where-Object -FilterScript { [string]$_.Status -eq 'Running' }).Count -gt 0
    }
    if (-not $runs) { throw "service $Name is not running after $TimeoutSeconds s" }
}

# Removes what sysprep would call and cannot, because the DLL is gone: an agent that updates itself during the build may leave such an entry.
function Clear-SysprepCall { [CmdletBinding()] param()
    Use-RegistryKey -Key 'HKLM:\SOFTWARE\Microsoft\Windows\CurrentVersion\Setup\SysPrepExternal\Generalize' -Write -Use { param($Opened)
        foreach ($name in $Opened.GetValueNames()) {
            # An entry holds the full path of a DLL and the name of a function in it.
            $found = [regex]::Match([string]$Opened.GetValue($name), '(?i)[a-z]:\\[^,;"<>|*?]+?\.dll')
            if (-not $found.Success -or [System.IO.File]::Exists($found.Value)) { continue }
            $Opened.DeleteValue($name)
            [System.Console]::Out.WriteLine("sysprep will not call $($found.Value), because it does not exist: its entry is removed")
        }
    }
}

# Its exit code decides nothing: it is in the build's log. After sysprep, Windows' own mark says what it did.
function Invoke-Program { [CmdletBinding()] param([string]$FilePath, [string[]]$ArgumentList = @(), [string]$ArgumentLine = '', [int]$TimeoutSeconds)
    $done = Invoke-Native -FilePath $FilePath -ArgumentList $ArgumentList -ArgumentLine $ArgumentLine -GoodExitCode @() -TimeoutSeconds $TimeoutSeconds
    $output = if ($done.ExitCode -ne 0) { ": $($done.Output)" }
    [System.Console]::Out.WriteLine("$FilePath $($ArgumentList -join ' ')$ArgumentLine ended with $($done.ExitCode)$output")
}

function Get-ImageState { [CmdletBinding()] param(); [string](Get-RegistryData -Key 'HKLM:\SOFTWARE\Microsoft\Windows\CurrentVersion\Setup\State' -Name 'ImageState' -Default '') }

# Into the build's log, because the machine will be deleted.
function Write-SetupLog { [CmdletBinding()] param()
    foreach ($name in 'setuperr.log', 'setupact.log') {
        $path = "C:\Windows\System32\Sysprep\Panther\$name"
        foreach ($line in @("--- the end of $path") + @(Get-LogTail -Path $path -Lines 40)) { [System.Console]::Out.WriteLine($line) }
    }
}

# Removes all WinRM listeners from the image without cutting this session: the running service reads its listeners at the next boot only.
# Certificates stay until the first boot for the same reason. first-boot.ps1 removes those in the list.
function Clear-WinRmListener { [CmdletBinding()] param()
    $listeners = 'HKLM:\SOFTWARE\Microsoft\Windows\CurrentVersion\WSMAN\Listener'
    Use-RegistryKey -Key $listeners -Write -Use { param($Opened)
        $prints = @(foreach ($name in $Opened.GetSubKeyNames()) {
                $print = [string](Get-RegistryData -Key "$listeners\$name" -Name 'certThumbprint' -Default '')
                if ($print -ne '') { $print.Replace(' ', '') }
            })
        $null = [System.IO.Directory]::CreateDirectory('C:\Windows\Setup\Scripts')
        Write-TextFile -Path 'C:\Windows\Setup\Scripts\certificates.txt' -Text (($prints + '') -join "`r`n")
        foreach ($name in $Opened.GetSubKeyNames()) { $Opened.DeleteSubKeyTree($name) }
        if (@($Opened.GetSubKeyNames()).Count -gt 0) { throw 'a WinRM listener could not be deleted' }
    }
}

# Nodes also start without what such a program does: they are only smaller or faster.
function Invoke-Optional { [CmdletBinding()] param([string]$FilePath, [string[]]$ArgumentList, [int]$TimeoutSeconds)
    try { Invoke-Program -FilePath $FilePath -ArgumentList $ArgumentList -TimeoutSeconds $TimeoutSeconds }
    catch { [System.Console]::Out.WriteLine("$FilePath $($ArgumentList -join ' ') failed: $($_.Exception.Message)") }
}

# Windows keeps the event logs that are switched on for tracing.
function Clear-EventRecord { [CmdletBinding()] param([int]$TimeoutSeconds)
    $clock = [System.Diagnostics.Stopwatch]::StartNew()
    Clear-Optional -What 'the content of event logs' -Clear {
        $session = [System.Diagnostics.Eventing.Reader.EventLogSession]::GlobalSession
        foreach ($name in @($session.GetLogNames())) {
            if ($clock.Elapsed.TotalSeconds -gt $TimeoutSeconds) { throw "no time was left for $name and the logs after it" }
            Clear-Optional -What "event log $name" -Clear { $null = $session.ClearLog($name) }
        }
    }
}

# Seals the image. $Assert holds the cloud's own checks before it is generalised, $Generalise its own sysprep, and $Finish its own checks after it and the removal of what its agents left.
# $Trim tells the cloud's disk which blocks are free: the image then has no place for them.
function Invoke-Seal { [CmdletBinding()] param([scriptblock]$Assert, [scriptblock]$Generalise, [scriptblock]$Finish = { }, [switch]$Trim)
    Assert-ReadyToSeal
    # After a try that failed later, the machine is generalised already, and has the answer file of a node's first boot. Sysprep may have disabled the cloud's agents.
    if ((Get-ImageState) -ne $script:Generalised) {
        & $Assert
        # A killed build left them. The registry has their names: the cmdlets of tasks fail if any task of the machine is malformed.
        foreach ($name in @(Get-RegistrySubKey -Key 'HKLM:\SOFTWARE\Microsoft\Windows NT\CurrentVersion\Schedule\TaskCache\Tree')) {
            if ($name -match '\A(packer-.+|imagegen-(add-ssh-server|updates))\z') { $null = Invoke-Native -FilePath (Get-SystemTool -Name 'schtasks.exe') -ArgumentList '/Delete', '/TN', "\$name", '/F' }
        }
        # Without /ResetBase, so that an update can still be removed from a node.
        Invoke-Optional -FilePath (Get-SystemTool -Name 'dism.exe') -ArgumentList '/Online', '/Cleanup-Image', '/StartComponentCleanup', '/NoRestart', '/Quiet' -TimeoutSeconds 3600
        # Sysprep would fail.
        if (Test-RestartPending) { throw 'Windows has a restart pending, because its component store was cleaned up' }
        # Updates queue PowerShell's own assemblies, which kubelet's service waits for at first boot. Nothing at first boot is a 32-bit program.
        $ngen = [System.IO.Path]::Combine($env:SystemRoot, 'Microsoft.NET\Framework64\v4.0.30319\ngen.exe')
        Invoke-Optional -FilePath $ngen -ArgumentList 'executeQueuedItems', '/nologo', '/silent' -TimeoutSeconds 600
        # Answer files of the base image may hold a password. Before sysprep, which stores that of the first boot in the same place.
        foreach ($folder in 'C:\Windows\Panther', 'C:\Windows\Panther\Unattend', 'C:\Windows\System32\Sysprep', 'C:\') {
            if ([System.IO.Directory]::Exists($folder)) { foreach ($file in [System.IO.Directory]::GetFiles($folder, '*unattend*.xml')) { Clear-Tree -Path $file } }
        }
        Clear-SysprepCall
        try {
            & $Generalise
            # Windows' own mark may come a little later than sysprep's end.
            if (-not (Wait-Until -Seconds 600 -Every 2 -Test { (Get-ImageState) -eq $script:Generalised })) { throw "the machine is not generalised after 600 s: its state is '$(Get-ImageState)'" }
        }
        catch {
            try { Write-SetupLog }
            catch { [System.Console]::Out.WriteLine("the setup logs cannot be read: $(Get-Cause -ErrorRecord $_)") }
            throw
        }
    }
    & $Finish
    # Not before: logs are needed if sysprep fails.
    $temporary = @(foreach ($one in Get-ProfileFolder) { "$one\AppData\Local\Temp" })
    foreach ($folder in $temporary + 'C:\Windows\Temp' + 'C:\Windows\Logs') { Clear-File -Folder $folder }
    Clear-EventRecord -TimeoutSeconds 300
    Wait-Success -Seconds 30 -Try {
        foreach ($path in @(Get-Leftover)) { Clear-Tree -Path $path }
        $left = @(Get-Leftover)
        if ($left.Count -gt 0) { throw "could not be deleted: $($left -join ', ')" }
    }
    if ($Trim) { Invoke-Optional -FilePath (Get-SystemTool -Name 'defrag.exe') -ArgumentList 'C:', '/L' -TimeoutSeconds 600 }
    Clear-WinRmListener
}
