# The last provisioner on AWS: seals and generalises the machine with EC2Launch v2. Packer stops the machine afterwards.
Set-StrictMode -Version Latest; $ErrorActionPreference, $ProgressPreference = 'Stop', 'SilentlyContinue'
trap { [System.Console]::Out.WriteLine("failed: $($_.Exception.Message)`r`n$($_.ScriptStackTrace)"); exit 1 }

Import-Module -Name 'C:\ProgramData\imagegen\bundle\seal.psm1' -Force -DisableNameChecking
$launch = 'C:\Program Files\Amazon\EC2Launch\EC2Launch.exe'
Invoke-Seal -Assert {
    if (-not [System.IO.File]::Exists($launch)) { throw "there is no $launch" }
} -Generalise {
    $null = Invoke-Native -FilePath $launch -ArgumentList 'reset', '--block' -TimeoutSeconds 300
    Invoke-Program -FilePath $launch -ArgumentList 'sysprep' -TimeoutSeconds 1500
} -Finish {
    # With this file, a node would take its first boot for a later one.
    if ([System.IO.File]::Exists('C:\ProgramData\Amazon\EC2Launch\state\.run-once')) { throw 'EC2Launch was not reset: its .run-once still exists' }
}
exit 0
