# A program whose file access Defender does not scan. Where there is no Defender, it is so already.
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
            # Removed or disabled: nothing scans.
            return [ordered]@{ absent = $true }
        }
        foreach ($process in $excluded) {
            if (Test-SameText -Left $process -Right $Resource.process -IgnoreCase) { return [ordered]@{ process = [string]$process } }
        }
    }
    Test = {
        param($Resource, $Now)
        if ($null -eq $Now) { "Defender scans what $($Resource.process) opens" }
    }
    Set  = {
        param($Resource)
        $null = Add-MpPreference -ExclusionProcess $Resource.process -ErrorAction Stop
        $false
    }
}
