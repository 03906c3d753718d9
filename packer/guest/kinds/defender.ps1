# A program whose file access Defender does not scan. Without Defender nothing needs to be done.
Set-StrictMode -Version Latest
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'

@{
    Get  = {
        param($Resource)
        try { $excluded = @((Get-MpPreference -ErrorAction Stop).ExclusionProcess) }
        catch {
            $service = 'HKLM:\SYSTEM\CurrentControlSet\Services\WinDefend'
            $there = $null -ne (Get-RegistryValue -Key $service -Name 'ImagePath')
            if ($there -and (Get-RegistryData -Key $service -Name 'Start' -Default 4) -ne 4) { throw }
            # Defender is removed or disabled, so nothing is scanned.
            return [ordered]@{ absent = $true }
        }
        foreach ($process in $excluded) {
            if (Test-SameText -Left $process -Right $Resource.process -IgnoreCase) { return [ordered]@{ process = [string]$process } }
        }
    }
    Test = {
        param($Resource, $Now)
        if ($null -eq $Now) { "Defender scans the files that $($Resource.process) opens" }
    }
    Set  = {
        param($Resource)
        $null = Add-MpPreference -ExclusionProcess $Resource.process -ErrorAction Stop
        $false
    }
}
