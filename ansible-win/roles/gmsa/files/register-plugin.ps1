# Registers the plugin from which Windows gets the credentials of gMSAs: imports registerplugin.reg, which lies beside this script. With -Show it only prints what is registered.
# Only TrustedInstaller may write below the key that lists such plugins. The key gets another owner and one more entry for that, and both are taken back at once. Meanwhile they are in a
# file: another run of this script restores them if this one is killed.
[CmdletBinding(PositionalBinding = $false)] param([switch]$Show)
Set-StrictMode -Version Latest; $ErrorActionPreference, $ProgressPreference = 'Stop', 'SilentlyContinue'
trap { [System.Console]::Out.WriteLine("failed: $($_.Exception.Message)"); exit 1 }

$script:Locked = 'SYSTEM\CurrentControlSet\Control\CCG\COMClasses'
$script:Saved = [System.IO.Path]::Combine($PSScriptRoot, 'access.txt')

# Enables privileges of this thread, which administrators have but must enable, and returns them. .NET has a class for that, which it does not let others name.
# They must be reverted on this thread: .NET would try it on another one.
function Enable-Privilege { [CmdletBinding()] param()
    $type = [System.Security.AccessControl.RegistrySecurity].BaseType.Assembly.GetType('System.Security.AccessControl.Privilege', $true)
    foreach ($name in @('SeTakeOwnershipPrivilege', 'SeRestorePrivilege')) {
        $privilege = $type.GetConstructor([type[]]@([string])).Invoke([object[]]@($name))
        $null = $type.GetMethod('Enable').Invoke($privilege, $null)
        $privilege
    }
}

function Register-Plugin { [CmdletBinding()] param()
    if (-not (Test-Path -LiteralPath "HKLM:\$($script:Locked)")) { throw "Windows has no key HKLM:\$($script:Locked)" }
    Restore-Access
    $before = (Get-Acl -LiteralPath "HKLM:\$($script:Locked)").Sddl
    Write-TextFile -Path $script:Saved -Text $before
    try {
        Set-Access -Text 'O:BA' -Part 'Owner' -Right 'TakeOwnership'
        # Full control for administrators, as the first entry.
        $entries = $before.Substring($before.IndexOf('D:', [System.StringComparison]::Ordinal)) -replace '^(D:[A-Z]*)', '$1(A;;KA;;;BA)'
        Set-Access -Text $entries -Part 'Access' -Right 'ChangePermissions'
        $null = Invoke-Native -FilePath (Get-SystemTool -Name 'reg.exe') -ArgumentList 'import', "$PSScriptRoot\registerplugin.reg" -TimeoutSeconds 60
    }
    finally { Restore-Access }
}

function Set-Access { [CmdletBinding()] param([string]$Text, [string]$Part, [string]$Right)
    $security = New-Object -TypeName System.Security.AccessControl.RegistrySecurity
    $security.SetSecurityDescriptorSddlForm($Text, [System.Security.AccessControl.AccessControlSections]$Part)
    $key = [Microsoft.Win32.Registry]::LocalMachine.OpenSubKey($script:Locked, 'ReadWriteSubTree', [System.Security.AccessControl.RegistryRights]$Right)
    try { $key.SetAccessControl($security) }
    finally { $key.Dispose() }
}

function Restore-Access { [CmdletBinding()] param()
    if (-not [System.IO.File]::Exists($script:Saved)) { return }
    $before = [System.IO.File]::ReadAllText($script:Saved)
    # A script that was killed before it opened the key left nothing to restore, and no right to do so. A text without entries, of a damaged disk, would open the key to everyone.
    if ($before.IndexOf('D:', [System.StringComparison]::Ordinal) -ge 0 -and (Get-Acl -LiteralPath "HKLM:\$($script:Locked)").Sddl -cne $before) { Set-Access -Text $before -Part 'Owner, Access' -Right 'ChangePermissions, TakeOwnership' }
    [System.IO.File]::Delete($script:Saved)
}

if ($Show) {
    $class = '{CCC2A336-D7F3-4818-A213-272B7924213E}'
    $dll = [string][Microsoft.Win32.Registry]::GetValue("HKEY_LOCAL_MACHINE\SOFTWARE\Classes\CLSID\$class\InprocServer32", '', '')
    $listed = Test-Path -LiteralPath "HKLM:\$($script:Locked)\$class"
    [System.Console]::Out.WriteLine("dll=$dll`r`nlisted=$listed`r`nrestored=$(-not [System.IO.File]::Exists($script:Saved))")
}
else {
    Import-Module -Name 'C:\ProgramData\imagegen\bundle\common.psm1' -Force -DisableNameChecking
    $privileges = @(Enable-Privilege)
    try { Register-Plugin }
    finally { foreach ($privilege in $privileges) { $null = $privilege.GetType().GetMethod('Revert').Invoke($privilege, $null) } }
}
exit 0
