# The last provisioner on AWS: seals and generalises the machine by EC2Launch v2, and leaves stopping it to Packer.
[CmdletBinding()]
param()
Set-StrictMode -Version Latest
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'

$code = 0
try {
    # From the folder that only SYSTEM and Administrators reach, unpacked and verified by the last phase.
    Import-Module -Name 'C:\ProgramData\imagegen\bundle\seal.psm1' -Force -DisableNameChecking
    $launch = 'C:\Program Files\Amazon\EC2Launch\EC2Launch.exe'
    Invoke-Seal -Assert {
        if (-not [System.IO.File]::Exists($launch)) { throw "there is no $launch" }
    } -Generalise {
        $null = Invoke-Native -FilePath $launch -ArgumentList 'reset', '--block' -TimeoutSeconds 300
        $null = Invoke-Native -FilePath $launch -ArgumentList 'sysprep', '--block' -TimeoutSeconds 1500
        # With it, a node would take its first boot for a later one.
        if ([System.IO.File]::Exists('C:\ProgramData\Amazon\EC2Launch\state\.run-once')) { throw 'EC2Launch was not reset: its .run-once is still there' }
    }
}
catch {
    $code = 1
    [System.Console]::Out.WriteLine("failed: $($_.Exception.Message)")
    [System.Console]::Out.WriteLine($_.ScriptStackTrace)
}
exit $code
