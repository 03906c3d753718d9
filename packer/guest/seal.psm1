# What every cloud's generalise script does around its own sysprep: nothing of the build stays in the image.
# Judges first and deletes last: a machine that was refused, or that sysprep gave up, still has its logs and can be sealed by another try.
# Imported from the bundle, whose folder it deletes in the end: what is needed afterwards is in memory by then.
Set-StrictMode -Version Latest
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'

Import-Module -Name ([System.IO.Path]::Combine($PSScriptRoot, 'common.psm1')) -Global -Force -DisableNameChecking

$script:Listeners = 'SOFTWARE\Microsoft\Windows\CurrentVersion\WSMAN\Listener'
$script:SetupScripts = 'C:\Windows\Setup\Scripts'

# Refuses to seal a machine that would make a bad image.
function Assert-ReadyToSeal {
    [CmdletBinding()]
    param()
    $sysprep = Get-SystemTool -Name 'Sysprep\sysprep.exe'
    if (-not [System.IO.File]::Exists($sysprep)) { throw "there is no $sysprep" }
    if (-not [System.IO.File]::Exists('C:\ProgramData\imagegen\report.json')) { throw 'there is no report.json: the last phase has not finished' }
    if (Test-RestartPending) { throw 'Windows has a restart pending' }
    # Started before the image is sealed, it would take the build for a node's first boot.
    $start = Get-RegistryData -Key 'HKLM:\SYSTEM\CurrentControlSet\Services\cloudbase-init' -Name 'Start' -Default 0
    if ($start -ne 3) { throw 'service cloudbase-init must be there with start manual' }
    $status = [string](Get-Service -Name 'cloudbase-init').Status
    if ($status -ne 'Stopped') { throw "service cloudbase-init is $status, not Stopped" }
    $logon = 'HKLM:\SOFTWARE\Microsoft\Windows NT\CurrentVersion\Winlogon'
    if ([string](Get-RegistryData -Key $logon -Name 'AutoAdminLogon' -Default '0') -ne '0') { throw 'AutoAdminLogon is on' }
    if ($null -ne (Get-RegistryValue -Key $logon -Name 'DefaultPassword')) { throw 'there is a DefaultPassword' }
    foreach ($name in 'auth_basic', 'allow_unencrypted') {
        if ((Get-RegistryData -Key 'HKLM:\SOFTWARE\Microsoft\Windows\CurrentVersion\WSMAN\Service' -Name $name -Default 0) -ne 0) { throw "WinRM has $name on" }
    }
}

# The answer files of the base image's own first boot, which can hold a password.
function Get-AnswerFile {
    [CmdletBinding()]
    param()
    foreach ($path in 'C:\Windows\Panther\unattend.xml', 'C:\Windows\Panther\Unattend\unattend.xml', 'C:\Windows\System32\Sysprep\unattend.xml') {
        if ([System.IO.File]::Exists($path)) { $path }
    }
}

# What builder, engine and people leave behind. The running script is among it: it was read whole before it ran.
# The engine's folder comes last: as long as anything else is still there, so is what deletes it.
function Get-Leftover {
    [CmdletBinding()]
    param()
    $places = @(
        @('C:\Windows\Temp', 'imagegen-*'), @('C:\Windows\Temp', 'packer-*'), @('C:\Windows\Temp', 'script-*.ps1'), @('C:\Windows\Temp', 'winrmcp-*'),
        @('C:\ProgramData\ssh', 'ssh_host_*')
    )
    $profiles = @([System.IO.Directory]::GetDirectories('C:\Users')) + @('C:\Windows\System32\config\systemprofile')
    foreach ($profilePath in $profiles) {
        $places += ,@("$profilePath\AppData\Roaming\Microsoft\Windows\PowerShell\PSReadLine", '*_history.txt')
        $places += ,@("$profilePath\AppData\Local\Temp", 'winrmcp-*')
    }
    foreach ($place in $places) {
        # GetFiles reads '*' only, so a folder with brackets in its name is no wildcard.
        if ([System.IO.Directory]::Exists($place[0])) { [System.IO.Directory]::GetFiles($place[0], $place[1]) }
    }
    # What a look at the machine left that was ended before its own end.
    [System.IO.Directory]::GetDirectories('C:\Windows\Temp', 'imagegen-look-*')
    if ([System.IO.Directory]::Exists('C:\ProgramData\imagegen')) { 'C:\ProgramData\imagegen' }
}

function Clear-Path {
    [CmdletBinding()]
    param([string[]]$Path)
    foreach ($one in $Path) {
        if ([System.IO.Directory]::Exists($one)) { Clear-Tree -Path $one }
        elseif ([System.IO.File]::Exists($one)) {
            [System.IO.File]::SetAttributes($one, [System.IO.FileAttributes]::Normal)
            [System.IO.File]::Delete($one)
        }
    }
}

function Clear-Leftover {
    [CmdletBinding()]
    param()
    Clear-Path -Path @(Get-Leftover)
    $left = @(Get-Leftover)
    if ($left.Count -gt 0) { throw "still there: $($left -join ', ')" }
}

# Waits until a service of the cloud is up: generalising before that makes images that do not provision.
function Wait-CloudService {
    [CmdletBinding()]
    param([string]$Name, [int]$TimeoutSeconds)
    $clock = [System.Diagnostics.Stopwatch]::StartNew()
    while ([string](Get-Service -Name $Name).Status -ne 'Running') {
        if ($clock.Elapsed.TotalSeconds -gt $TimeoutSeconds) { throw "service $Name is not running after $TimeoutSeconds s" }
        Start-Sleep -Seconds 2
    }
}

# Windows' own word for a generalised machine. Whoever calls sysprep has seen it end; the word can come a little later.
function Wait-ImageState {
    [CmdletBinding()]
    param([int]$TimeoutSeconds)
    $clock = [System.Diagnostics.Stopwatch]::StartNew()
    while ($true) {
        $state = Get-RegistryData -Key 'HKLM:\SOFTWARE\Microsoft\Windows\CurrentVersion\Setup\State' -Name 'ImageState' -Default ''
        if ($state -eq 'IMAGE_STATE_GENERALIZE_RESEAL_TO_OOBE') { return }
        if ($clock.Elapsed.TotalSeconds -gt $TimeoutSeconds) { throw "the machine is not generalised after $TimeoutSeconds s: its state is '$state'" }
        Start-Sleep -Seconds 2
    }
}

# For the build's log: the machine is gone when somebody asks why.
function Write-SetupLog {
    [CmdletBinding()]
    param()
    foreach ($name in 'setuperr.log', 'setupact.log') {
        $path = "C:\Windows\System32\Sysprep\Panther\$name"
        [System.Console]::Out.WriteLine("--- the end of $path")
        foreach ($line in Get-LogTail -Path $path -Lines 40) { [System.Console]::Out.WriteLine($line) }
    }
}

# Takes every listener out of the image without cutting the session this runs in: the running service does not look there again, the next boot does.
# Certificates stay until first boot for the same reason; first-boot.ps1 removes those named in the list.
function Clear-WinRmListener {
    [CmdletBinding()]
    param()
    # A key is named '*+HTTPS': by .NET, since the provider takes the star for a wildcard.
    $parent = [Microsoft.Win32.Registry]::LocalMachine.OpenSubKey($script:Listeners, $true)
    if ($null -eq $parent) { return }
    try {
        $prints = @(foreach ($name in $parent.GetSubKeyNames()) {
                $print = [string](Get-RegistryData -Key "HKLM:\$($script:Listeners)\$name" -Name 'certThumbprint' -Default '')
                if ($print -ne '') { $print.Replace(' ', '') }
            })
        $null = [System.IO.Directory]::CreateDirectory($script:SetupScripts)
        Write-TextFile -Path "$($script:SetupScripts)\certificates.txt" -Text (($prints + '') -join "`r`n")
        foreach ($name in $parent.GetSubKeyNames()) { $parent.DeleteSubKeyTree($name) }
        if (@($parent.GetSubKeyNames()).Count -gt 0) { throw 'a WinRM listener is still there' }
    }
    finally { $parent.Dispose() }
}

# All of it, in order. $Assert refuses for the cloud's own reasons, $Generalise is its own sysprep.
function Invoke-Seal {
    [CmdletBinding()]
    param([scriptblock]$Assert, [scriptblock]$Generalise)
    Assert-ReadyToSeal
    & $Assert
    # Not after sysprep, which keeps in the same place the answer file that a node's first boot reads.
    Clear-Path -Path @(Get-AnswerFile)
    try {
        & $Generalise
        Wait-ImageState -TimeoutSeconds 300
    }
    catch {
        Write-SetupLog
        throw
    }
    Clear-Leftover
    Clear-WinRmListener
}

Export-ModuleMember -Function @('Invoke-Seal', 'Wait-CloudService')
